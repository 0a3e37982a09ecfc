"""A Ray cluster of this machine for several processes: ``python -m workers.local_cluster``.

Prints one line of JSON when it is up, the variables of the environment by which others connect to
it, and ends when its stdin closes or at SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import ray

from workers.cluster import cluster

_KEPT = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
"""A local cluster wants a token of whoever connects; these say where it is."""


def main() -> None:
    """Start the cluster, say where it is, and wait for the end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the coordinator's to pass on

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()

    threading.Thread(target=wait, name="parent", daemon=True).start()
    with cluster(None):
        address = ray.get_runtime_context().gcs_address
        found = {name: os.environ[name] for name in _KEPT if name in os.environ}
        print(json.dumps({"KDNAS_RAY_ADDRESS": address, **found}), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
