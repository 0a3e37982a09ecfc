"""What a runner prints: read as it comes, kept in its job's log, and passed on."""

from __future__ import annotations

import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Final

from api.logs.blanking import Blanker
from api.logs.lines import Lines, kept, only_coloured
from api.logs.writer import LogWriter

LOOK_SECONDS: Final = 0.2
LATE_SECONDS: Final = 5.0
"""So long after the end of a process its pipes are read, if others still write to them."""
_CHUNK: Final = 64 * 1024


class Output:
    """Reads two pipes of a process in a thread of its own, to their end.

    Processes that are left behind may hold the pipes open; they are read no longer when the one
    that was started has ended and nothing more comes.

    Args:
        stdout: a pipe, from now on this thread's.
        stderr: another; its lines are passed on as well.
        writer: of the log.
        blanker: blanks the secrets.
        pass_on: takes each line of stderr.
    """

    def __init__(
        self,
        stdout: IO[bytes],
        stderr: IO[bytes],
        writer: LogWriter,
        blanker: Blanker,
        pass_on: Callable[[str], None],
    ) -> None:
        self._streams = {stdout: Lines(blanker), stderr: Lines(blanker)}
        self._stderr = stderr
        self._writer = writer
        self._pass_on = pass_on
        self._how = "ended"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="job-output", daemon=True)
        self._thread.start()

    def end(self, how: str) -> None:
        """Say that the process has ended, and how; returns at once."""
        self._how = how
        self._ended.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until all is written and published; tells whether it is."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive() and self._writer.wait(timeout_seconds)

    @property
    def is_done(self) -> bool:
        """Whether all is written and published."""
        return self.wait(0.0)

    def _read(self) -> None:
        try:
            self._read_to_the_end()
        finally:  # whoever still writes gets an error, and does not wait for ever
            for stream in self._streams:
                stream.close()
            self._ended.wait()
            self._writer.end(self._how)

    def _read_to_the_end(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ, stream)
            latest = math.inf
            while selector.get_map():
                has_ended = self._ended.is_set()
                if has_ended and latest == math.inf:
                    latest = time.monotonic() + LATE_SECONDS
                ready = selector.select(LOOK_SECONDS)
                if (has_ended and not ready) or time.monotonic() > latest:
                    break
                for key, _ in ready:
                    chunk = os.read(key.fd, _CHUNK)
                    self._keep(key.data, self._streams[key.data].feed(chunk))
                    if not chunk:
                        selector.unregister(key.fileobj)
        for stream, lines in self._streams.items():
            self._keep(stream, lines.flush())

    def _keep(self, stream: IO[bytes], lines: Iterable[str]) -> None:
        for line in lines:
            if stream is self._stderr:
                self._pass_on(line)
            self._writer.add(kept(line))


def print_to_stderr(line: str) -> None:
    """Pass a line on to this process's own stderr; where nobody reads that, it is lost there."""
    with suppress(OSError):
        os.write(2, f"{only_coloured(line)}\n".encode(errors="replace"))
