"""The text of a log: what is left out, where it stands, and positions that stay true."""

from __future__ import annotations

import re

import pytest

from api.logs.text import HEAD_BYTES, LONGEST_BYTES, TAIL_BYTES, LogText, not_ours

BEGINNING = b"=== run 1 began 2026-01-31T12:00:00Z on host, process 1 ===\n"


def written(num_lines: int, first: int = 0) -> bytes:
    return b"".join(b"line %09d\n" % number for number in range(first, first + num_lines))


def grown(data: bytes, piece: bytes) -> LogText:
    """As the writer does it: append, and shorten what has become too long."""
    text = LogText.parse(data + piece)
    return text.shortened() if len(data + piece) > LONGEST_BYTES else text


def test_a_short_log_is_whole() -> None:
    data = BEGINNING + written(10)
    text = LogText.parse(data)
    assert (text.dump(), text.end, text.last_run) == (data, len(data), 1)
    assert text.shortened() == text
    assert text.after(0) == data
    assert text.after(len(data) - 5) == data[-5:]
    assert text.after(len(data)) == text.after(len(data) + 7) == b""
    assert text.newest(2) == written(2, 8)


def test_of_a_long_log_beginning_and_end_are_kept_and_the_rest_is_counted() -> None:
    everything, data = BEGINNING, BEGINNING
    for round_ in range(60):
        piece = written(5000, round_ * 5000)
        everything += piece
        data = grown(data, piece).dump()
        assert len(data) <= LONGEST_BYTES + 100
    text = LogText.parse(data)
    assert text.end == len(everything)
    assert HEAD_BYTES - 20 < len(text.head) <= HEAD_BYTES
    assert TAIL_BYTES - 20 < len(text.tail) <= LONGEST_BYTES - HEAD_BYTES
    assert everything.startswith(text.head)
    assert everything.endswith(text.tail)
    assert text.head.endswith(b"\n")
    assert text.tail.startswith(b"line ")
    shown = re.search(rb"--- (\d+) bytes were left out here; what follows is of run 1 ---\n", data)
    assert shown is not None
    assert int(shown[1]) == len(everything) - len(text.head) - len(text.tail)
    assert text.last_run == 1


def test_whoever_follows_misses_nothing_that_is_there() -> None:
    everything, data, seen, position = BEGINNING, BEGINNING, b"", 0
    for round_ in range(60):
        piece = written(5000, round_ * 5000)
        everything += piece
        text = grown(data, piece)
        data = text.dump()
        seen += text.after(position)
        position = text.end
    assert seen == everything


def test_whoever_comes_late_is_told_how_much_has_gone() -> None:
    text = LogText(b"a\nb\n", 100, 3, b"c\nd\n")
    assert (
        text.after(2)
        == b"b\n--- 100 bytes were left out here; what follows is of run 3 ---\nc\nd\n"
    )
    assert (
        text.after(44) == b"--- 60 bytes were left out here; what follows is of run 3 ---\nc\nd\n"
    )
    assert text.after(104) == b"c\nd\n"
    assert text.after(106) == b"d\n"
    assert LogText.parse(text.dump()) == text


def test_the_newest_run_is_known_when_its_beginning_is_left_out() -> None:
    data = BEGINNING + written(HEAD_BYTES // 15) + BEGINNING.replace(b"run 1", b"run 12")
    data += written(2 * LONGEST_BYTES // 15)
    text = LogText.parse(data).shortened()
    assert b"run 12 began" not in text.dump()
    assert (text.run, text.last_run) == (12, 12)
    later = LogText.parse(text.dump() + BEGINNING.replace(b"run 1", b"run 13"))
    assert (later.run, later.last_run) == (12, 13)


@pytest.mark.parametrize(
    "line",
    [
        "=== run 99 began yesterday ===",
        "--- 5 bytes were left out here; what follows is of run 99 ---",
    ],
)
def test_a_process_cannot_write_our_lines(line: str) -> None:
    data = BEGINNING + not_ours(line).encode() + b"\n" + written(3)
    text = LogText.parse(data)
    assert (text.last_run, text.left_out) == (1, 0)
    assert line.encode() in text.dump()
    assert not_ours("--- a rule ---") == "--- a rule ---"
