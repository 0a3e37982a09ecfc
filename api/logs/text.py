"""The text of a log that stays small: its beginning, how much was left out, its newest lines.

The file is plain text. Two kinds of lines in it are ours::

    === run 2 began 2026-01-31T12:00:00Z on host, process 4711 ===
    --- 123456 bytes were left out here; what follows is of run 2 ---

The second one stands at most once. A position in a log counts all bytes that were ever written,
also those that are left out by now, and not that line; so who follows a log asks for what comes
after a position, and it stays true when the log is shortened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 256 * 1024
TAIL_BYTES: Final = 1024 * 1024
SLACK_BYTES: Final = 256 * 1024
"""So much longer than its two parts a log may grow, so that it is not rewritten for each line."""
LONGEST_BYTES: Final = HEAD_BYTES + TAIL_BYTES + SLACK_BYTES

_RUN = re.compile(rb"^=== run (\d+) [^\n]*$", re.MULTILINE)
_CUT = re.compile(
    rb"^--- (\d+) bytes were left out here; what follows is of run (\d+) ---\n", re.MULTILINE
)
_OURS = re.compile(r"=== run \d|--- \d+ bytes were left out here")


def not_ours(line: str) -> str:
    """Return a line of a process so that it cannot be taken for one of ours."""
    return f" {line}" if _OURS.match(line) else line


@dataclass(frozen=True, slots=True)
class LogText:
    """A log, taken apart.

    Attributes:
        head: from the beginning on; all of it, if nothing was left out.
        left_out: bytes between head and tail.
        run: of which run the first line of the tail is; 0 if nothing was left out.
        tail: the newest lines; empty if nothing was left out.
    """

    head: bytes
    left_out: int = 0
    run: int = 0
    tail: bytes = b""

    @classmethod
    def parse(cls, data: bytes) -> LogText:
        """Take a file apart."""
        cut = _CUT.search(data)
        if cut is None:
            return cls(data)
        return cls(data[: cut.start()], int(cut[1]), int(cut[2]), data[cut.end() :])

    def dump(self) -> bytes:
        """Return the file."""
        if not self.left_out:
            return self.head + self.tail
        line = (
            f"--- {self.left_out} bytes were left out here; what follows is of run {self.run} ---\n"
        )
        return self.head + line.encode() + self.tail

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return len(self.head) + self.left_out + len(self.tail)

    @property
    def last_run(self) -> int:
        """The number of the newest run; 0 if none has begun."""
        return _last_run(self.tail) or self.run or _last_run(self.head)

    def shortened(self) -> LogText:
        """Return it with no more than the beginning and the newest lines, whole lines each."""
        head, rest = self.head, self.tail
        if not self.left_out:
            split = self.head.rfind(b"\n", 0, HEAD_BYTES) + 1
            head, rest = self.head[:split], self.head[split:]
        start = len(rest) - TAIL_BYTES
        if start <= 0:
            return self
        start = rest.find(b"\n", start - 1) + 1 or len(rest)
        run = _last_run(rest[:start]) or self.run or _last_run(head)
        return LogText(head, self.left_out + start, run, rest[start:])

    def after(self, position: int) -> bytes:
        """Return what comes after a position, with the line that says what is left out."""
        if position < len(self.head):
            return self.dump()[position:]
        into_tail = position - len(self.head) - self.left_out
        if into_tail >= 0:
            return self.tail[into_tail:]
        return LogText(b"", -into_tail, self.run, self.tail).dump()

    def newest(self, num_lines: int) -> bytes:
        """Return the last lines, with the line that says what is left out if it is among them."""
        return last_lines(self.dump(), num_lines)


def last_lines(data: bytes, num_lines: int) -> bytes:
    """Return the last lines of a text."""
    return b"".join(data.splitlines(keepends=True)[-num_lines:])


def _last_run(data: bytes) -> int:
    return int((_RUN.findall(data) or [0])[-1])
