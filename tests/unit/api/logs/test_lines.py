"""Lines out of chunks: wherever they were cut, however long they are."""

from __future__ import annotations

import random

import pytest

from api.logs.blanking import Blanker
from api.logs.lines import LONGEST_LINE, Lines, kept, only_coloured, printable

SECRET = "s3cr3t-value-of-some-length"
BLANKER = Blanker({"SOME_TOKEN": SECRET})


def lines_of(*chunks: bytes) -> list[str]:
    lines = Lines(BLANKER)
    return [line for chunk in chunks for line in lines.feed(chunk)] + list(lines.flush())


def test_a_secret_is_blanked_wherever_its_line_is_cut() -> None:
    whole = f"before\nthe token is {SECRET}, é\n\nafter".encode()
    expected = ["before", "the token is ***, é", "", "after"]
    for cut in range(len(whole) + 1):
        assert lines_of(whole[:cut], whole[cut:]) == expected
    assert lines_of(*(whole[i : i + 1] for i in range(len(whole)))) == expected


@pytest.mark.parametrize("offset", [-40, -27, -10, -1, 0, 5])
def test_a_secret_at_the_end_of_what_is_kept_of_a_line_is_blanked(offset: int) -> None:
    line = "x" * (LONGEST_LINE + offset) + SECRET + "y" * 10_000_000
    (kept_line,) = lines_of(line.encode(), b"\n")
    assert len(kept_line) < LONGEST_LINE + 40
    assert kept_line.endswith(" more)")
    assert "s3c" not in kept_line


def test_secrets_that_fill_a_line_beyond_all_bounds_leave_no_piece() -> None:
    generator = random.Random(0)
    line = (f"{SECRET} " * 100_000).encode()
    chunks = []
    while line:
        cut = generator.randint(1, 70_000)
        chunks.append(line[:cut])
        line = line[cut:]
    (kept_line,) = lines_of(*chunks)
    assert "***" in kept_line
    assert "s3" not in kept_line


@pytest.mark.parametrize(
    "chunks",
    [
        (b"10 %\r20 %\r30 %\ndone\n",),
        (b"\r10 %", b"\r20 %", b"\r30 %", b"\r\nd", b"one\r\n"),
        (b"10 %\r", b"20 %\r", b"30 %\r", b"\n", b"done"),
    ],
)
def test_of_a_progress_bar_the_last_state_counts(chunks: tuple[bytes, ...]) -> None:
    assert lines_of(*chunks) == ["30 %", "done"]


def test_nothing_but_colours_steers_a_terminal() -> None:
    line = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jgone\x9b2J\x08\ttab"
    assert only_coloured(line) == "\x1b[31mred\x1b[0m gone2J\ttab"
    assert printable(line) == "red gone2J\ttab"


def test_a_line_is_kept_without_colours_and_as_a_line_of_the_process() -> None:
    assert kept("\x1b[31;1mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\x00\ttab") == (
        b"red link\ttab\n"
    )
    assert kept("=== run 7 began") == b" === run 7 began\n"
    assert kept("half of a pair \ud800") == b"half of a pair ?\n"
