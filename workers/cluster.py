"""Connecting to Ray: an address, or a small cluster of our own."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray

from kdnas.errors import BackendError, NotNowError, OutOfReachError

OBJECT_STORE_BYTES = 256 * 1024**2  # results are small; corpora travel as files
CONNECT_SECONDS = 10
LOCAL_STARTS = 2
"""So often a local cluster is started: Ray gives up a busy machine's after a fixed half minute."""
END_SECONDS = 10
LAST_WORDS_SECONDS = 1.5
"""So long it takes until what workers print is here; what comes after a shutdown is lost."""


@contextmanager
def cluster(address: str | None, num_cpus: int | None = None) -> Iterator[None]:
    """Be connected to Ray for the time of a ``with`` block.

    Args:
        address: of a running cluster; None starts a local one that ends with the block.
        num_cpus: cores of a local cluster; None takes all.

    Raises:
        OutOfReachError: nobody answers at the address.
        NotNowError: a local one does not start, also when it is started again; Ray gives it half
            a minute.
        BackendError: who answers there is no cluster for us; or a local one cannot be started.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Off unless asked for: a terminal shows the work's own screen. The service keeps it in logs.
    shows_workers = os.environ.get("RAY_LOG_TO_DRIVER", "0").lower() in {"1", "true"}
    options = (
        {"address": address}
        if address
        else {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    )
    with _signal_handlers_kept():
        try:
            if address:
                _knock(address)
            with _quiet_ray(), _signal_handlers_kept(defaults=False):
                _start(
                    1 if address else LOCAL_STARTS,
                    **options,
                    runtime_env=_quoted_python(address),
                    log_to_driver=shows_workers,
                    logging_level=logging.ERROR,
                    configure_logging=True,
                )
        except Exception as error:  # a plain one where a node is not up within half a minute
            raise _told(error, address) from error
        try:
            yield
        finally:
            if shows_workers:
                time.sleep(LAST_WORDS_SECONDS)
            ray.shutdown()


def _start(times: int, **options: Any) -> None:
    """Call ray.init, and again where a node was too slow."""
    for left in reversed(range(times)):
        before = set(_ray_below())
        try:
            ray.init(**options)
            return
        except Exception as error:  # Ray has no other name for it
            _end([process for process in _ray_below() if process not in before])
            if not left or "timed out" not in str(error):
                raise


def _ray_below() -> list[psutil.Process]:
    """Find the processes of Ray among those below ours."""
    marks = ("ray::", str(Path(ray.__file__).parent))
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended while we looked
            if any(word.startswith(marks) for word in process.cmdline()):
                found.append(process)
    return found


def _end(processes: list[psutil.Process]) -> None:
    """Kill them: a node that came too late would hold a busy machine until our own end."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, END_SECONDS)


def _told(error: Exception, address: str | None) -> BackendError:
    """Say what Ray said."""
    reason = " ".join(str(error).split())[:200]
    without = (
        "do without a cluster: a search by `backend.name: local`, a distillation by one worker"
    )
    if address is None and _is_lasting(error):
        return BackendError(
            f"a local Ray cluster cannot be started ({reason}); mend that, or {without}"
        )
    if address is None:
        return NotNowError(
            f"a local Ray cluster did not start ({reason}); try again when the machine is less "
            f"busy, or {without}"
        )
    kind = OutOfReachError if isinstance(error, OSError) else BackendError
    return kind(
        f"the Ray cluster at {address!r} did not answer ({reason}); check KDNAS_RAY_ADDRESS, or "
        f"unset it and {without}"
    )


def _is_lasting(error: Exception) -> bool:
    """Whether a start would fail again: an option, a folder or a path that Ray cannot take."""
    lasting = isinstance(error, OSError | ValueError)
    return lasting and not isinstance(error, ConnectionError | TimeoutError)


def _quoted_python(address: str | None) -> dict[str, str] | None:
    """Name our Python so that Ray finds it in a folder whose path has a space.

    Ray starts some workers, those of Ray Train among them, by a shell command in which it quotes
    everything but this path, and then waits for them for ever. Not for clusters of other machines:
    their Python lies elsewhere.
    """
    quoted = shlex.quote(sys.executable)
    host = (address or "auto").removeprefix("ray://").rpartition(":")[0].strip("[]")
    here = {"", "localhost", "127.0.0.1", "::1", ray.util.get_node_ip_address()}
    return {"py_executable": quoted} if quoted != sys.executable and host in here else None


def _knock(address: str) -> None:
    """Raise an OSError unless somebody listens there; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError("an address is host:port, such as 10.0.0.5:6379, or auto")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


@contextmanager
def _signal_handlers_kept(defaults: bool = True) -> Iterator[None]:
    """Undo what ray.init does to SIGTERM on the main thread and leaves so after shutdown.

    Args:
        defaults: also where the system's default was in force; without it the handler stays that
            Ray has put there, which ends a local cluster together with the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if defaults or handler is not signal.SIG_DFL:
                signal.signal(number, handler)


@contextmanager
def _quiet_ray() -> Iterator[None]:
    """Keep the start-up lines of ray.init off the user's screen; errors still show."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that are not set yet, for the time of a ``with`` block."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def largest_node_cores() -> float:
    """Return the cores of the cluster's largest node: more than these cannot be reserved.

    Where no node has any at present, work waits for one that has, instead of going to a node that
    is not for work.
    """
    return max((n["Resources"].get("CPU", 0.0) for n in ray.nodes() if n["Alive"]), default=0) or 1
