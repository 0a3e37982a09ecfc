"""The program in a process that was forked from one which has already loaded what is heavy.

Loading torch and transformers takes seconds of every command. Tests that run many commands fork
them from a server that has done so once, and has loaded most of the project with them.
"""

from __future__ import annotations

import atexit
import importlib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from kdnas.testing.forked_runners import fork_runners

READ_AT_LOADING = ("OMP_", "HF_HOME", "HF_HUB_CACHE")
"""Beginnings of variables that libraries read once: a command that changes one is not forked. Ray,
which reads its own and HOME, is loaded after the fork; the hub's library reads where the hub is and
whether it may be asked once more."""


@cache
def _server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kdnas.testing.preloaded"])
    return context


@dataclass(frozen=True)
class Finished:
    """A command that ended; ``code`` is negative after a signal."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object that ``--json`` prints last on stdout."""
        return json.loads(self.out.strip().splitlines()[-1])


class Forked:
    """A command that runs, with what it prints in files.

    Args:
        arguments: of the command.
        folder: in which it runs.
        environment: that it has, all of it.
        first: called before it; a function of a module that the process can load.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        first: Callable[[], None] | None = None,
    ) -> None:
        self._printed = tempfile.TemporaryDirectory(prefix="kdnas-printed-")
        streams = [str(Path(self._printed.name) / name) for name in ("out", "err")]
        self._process: ForkServerProcess = _server().Process(
            target=_run, args=(list(arguments), str(folder), dict(environment), streams, first)
        )
        self._finished: Finished | None = None
        self._process.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return not self._process.is_alive()

    @property
    def said(self) -> str:
        """What it has printed on stderr so far."""
        return self._read()[1]

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing if it has ended."""
        if not self.has_ended:
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> Finished:
        """Wait for the end; who asks again is told the same.

        Raises:
            TimeoutError: it took longer, and was killed.
        """
        if self._finished is not None:
            return self._finished
        self._process.join(seconds)
        if self._process.exitcode is None:
            printed = self._read()
            self.kill()
            raise TimeoutError(f"not over after {seconds} s:\n" + "\n".join(printed))
        out, err = self._read()
        self._printed.cleanup()
        self._finished = Finished(self._process.exitcode, out, err)
        return self._finished

    def kill(self) -> None:
        """End it if it has not ended, and forget what it printed."""
        self._process.kill()
        self._process.join()
        self._printed.cleanup()

    def _read(self) -> list[str]:
        folder = Path(self._printed.name)
        return [
            (folder / name).read_text("utf-8") if (folder / name).exists() else ""
            for name in ("out", "err")
        ]


def _run(
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[str],
    first: Callable[[], None] | None,
) -> None:
    """Be the program: its group of processes, its environment, its streams, its end."""
    import huggingface_hub.constants

    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(huggingface_hub.constants)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.argv = ["kdnas", *arguments]
    if arguments[0] in {"coordinator", "serve"}:
        fork_runners()
    from kdnas.cli.main import main

    if first is not None:
        first()
    try:
        main()
    finally:
        atexit._run_exitfuncs()  # which processes of this kind leave out
