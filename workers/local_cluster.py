"""A Ray cluster of this machine for several processes: ``python -m workers.local_cluster``.

Prints one line of JSON when it is up, the variables of the environment by which others connect to
it, and ends when its stdin closes or at SIGTERM. It ends with exit code 1 when one of the processes
dies without which it is no cluster, so that its owner starts another.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress

import psutil
import ray

from workers.cluster import cluster

_KEPT = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
"""A local cluster wants a token of whoever connects; these say where it is."""
_CORE = ("raylet", "gcs_server")
"""Ray's processes on which all others depend; who is connected waits for a dead one for ever."""
_LOOK_SECONDS = 1.0


def main() -> int:
    """Start the cluster, say where it is, and wait for the end.

    Returns:
        Exit code: 1 if the cluster died by itself.
    """
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the coordinator's to pass on

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()

    threading.Thread(target=wait, name="parent", daemon=True).start()
    itself = psutil.Process()
    with cluster(None):
        address = ray.get_runtime_context().gcs_address
        found = {name: os.environ[name] for name in _KEPT if name in os.environ}
        print(json.dumps({"KDNAS_RAY_ADDRESS": address, **found}), flush=True)
        core = [one for one in itself.children() if _is_of_the_core(one)]
        while not ended.wait(_LOOK_SECONDS):
            if not all(map(_is_alive, core)):
                left = itself.children(recursive=True)
                break
        else:
            return 0
    for one in left:  # some of them outlive a gcs_server that was killed
        with suppress(psutil.NoSuchProcess):
            one.kill()
    return 1


def _is_of_the_core(process: psutil.Process) -> bool:
    try:
        return process.name() in _CORE
    except psutil.NoSuchProcess:  # one of the short-lived ones
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(main())
