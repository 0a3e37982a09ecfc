"""From what comes out of a pipe to lines fit to be kept: whole, bounded, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from api.logs.blanking import Blanker
from api.logs.text import not_ours

LONGEST_LINE: Final = 64 * 1024
"""Characters of a line that are kept."""

_LONGEST_FOUND = 4096
"""Characters of what is blanked by what stands before or after it, such as a password in a URL."""

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Lines:
    """Puts together the lines of one stream, wherever its chunks were cut.

    Of a line that is written over and over, as progress bars are, the last writing counts.

    Args:
        blanker: blanks the secrets.
    """

    def __init__(self, blanker: Blanker) -> None:
        self._blanker = blanker
        self._margin = blanker.longest + _LONGEST_FOUND
        self._most = 4 * (LONGEST_LINE + self._margin)  # a character has up to four bytes
        self._line = bytearray()
        self._num_dropped = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Take what was read, and give the lines that it ends, without their ends."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield self._end()
        self._add(rest)

    def flush(self) -> Iterator[str]:
        """Give the last line, if nothing ended it."""
        if self._line or self._num_dropped:
            yield self._end()

    def _add(self, part: bytes) -> None:
        _, returned, last = part.rstrip(b"\r").rpartition(b"\r")
        if returned or (part and self._line.endswith(b"\r")):
            self._line.clear()
            self._num_dropped = 0
        if returned:
            part = last + b"\r" * part.endswith(b"\r")
        room = max(0, self._most - len(self._line))
        self._line += part[:room]
        self._num_dropped += len(part) - len(part[:room])

    def _end(self) -> str:
        line = self._blanker(self._line.rstrip(b"\r").decode(errors="replace"))
        num_dropped, self._num_dropped = self._num_dropped, 0
        self._line.clear()
        if num_dropped:  # the beginning of a secret may be all that is there of it
            line = line[: -self._margin]
        if num_dropped or len(line) > LONGEST_LINE:
            more = max(0, len(line) - LONGEST_LINE) + num_dropped
            line = f"{line[:LONGEST_LINE]} … ({more} more)"
        return line


def kept(line: str) -> bytes:
    """Return a line as it stands in a log: without colours, and not to be taken for one of ours."""
    return f"{not_ours(printable(line))}\n".encode(errors="replace")


def printable(text: str) -> str:
    """Take out what would steer a terminal."""
    return _UNPRINTABLE.sub("", _CONTROL.sub("", text))


def only_coloured(line: str) -> str:
    """Take out what would steer a terminal, but for colours."""
    return "".join(
        part if number % 2 else printable(part) for number, part in enumerate(_COLOUR.split(line))
    )
