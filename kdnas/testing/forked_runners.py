"""Runners of a forked coordinator, forked as well: real processes, without loading torch again.

A nursery is forked from the coordinator's process before that has threads or connections. Asked for
a runner, it forks it with the streams and the environment that the coordinator gives, and has it
adopted: the coordinator is the runner's parent, as it would be of a program that it had started,
and waits for it, signals it and hears of its end by its own code. That a fresh interpreter becomes
one is seen by the tests of the coordinator itself and of the service on a cluster.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

RUNNER = "api.jobs.runner"
"""The module that is forked, and the name of its processes."""
_LARGEST = 1 << 17  # bytes of an environment and arguments
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36  # of prctl(2)
_STARTED_BY = [sys.executable, "-P", "-m", RUNNER]

_Popen = subprocess.Popen


def fork_runners() -> None:
    """Have every runner that this process starts forked; to be called before it has threads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _be_nursery(theirs)
    theirs.close()

    class ForkingPopen(_Popen[Any]):
        """Starts what it is told to, except that a runner comes from the nursery."""

        def _execute_child(self, args: Any, *rest: Any) -> None:
            if list(args[: len(_STARTED_BY)]) != _STARTED_BY:
                super()._execute_child(args, *rest)  # type: ignore[misc]
                return
            environment, pipes = rest[5], rest[9:15]
            streams = [
                os.dup(own if given == -1 else given)
                for own, given in zip((0, 1, 2), (pipes[0], pipes[3], pipes[5]), strict=True)
            ]
            request = pickle.dumps((list(args[len(_STARTED_BY) - 1 :]), dict(environment)))
            _prctl(_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(ours, [request], streams)
                self.pid = int(ours.recv(32))
                ours.recv(32)  # it is adopted
            finally:
                _prctl(_SET_CHILD_SUBREAPER, 0)
                for stream in streams:
                    os.close(stream)
                self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
            self._child_created = True

    subprocess.Popen = ForkingPopen  # type: ignore[misc]


def _be_nursery(line: socket.socket) -> NoReturn:
    """Fork a runner for each request until nobody is left to make any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(line, _LARGEST, 3)
        if not request:
            os._exit(0)
        between = os.fork()
        if between == 0:
            runner = os.fork()
            if runner == 0:
                arguments, environment = pickle.loads(request)
                _be_runner(arguments, environment, streams)
            line.send(str(runner).encode())
            os._exit(0)  # and so the runner is the coordinator's
        for stream in streams:
            os.close(stream)
        os.waitpid(between, 0)
        line.send(b"adopted")


def _be_runner(
    arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> NoReturn:
    """Be ``python -P -m api.jobs.runner``: a session, an environment and streams of its own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _prctl(_SET_NAME, RUNNER.encode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 256)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = list(arguments)
    code: Any = 0
    try:
        runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter itself does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(bool(code)))


def _prctl(option: int, value: int | bytes) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option} was refused")
