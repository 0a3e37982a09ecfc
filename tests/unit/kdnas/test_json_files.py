from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdnas.errors import RequestError
from kdnas.json_files import MOST_BYTES, read_json, read_object
from kdnas.reach import Reach


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": [1, "é"]}', "utf-8")
    assert read_json(file) == read_object(file) == {"a": [1, "é"]}
    file.write_text("[1]")
    assert read_json(file) == [1]
    assert read_object(file) is None


def test_what_has_no_end_or_is_no_json_is_none(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for content in (b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"."):
            read_json(file)
        assert read_object(file) is None
    with file.open("wb") as stream:
        stream.truncate(1 << 42)
    with pytest.raises(ValueError, match=f"more than {MOST_BYTES >> 20} MiB"):
        read_json(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "."):
        assert read_object(tmp_path / name) is None


def test_what_is_out_of_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(RequestError):
        read_object(tmp_path / "a.json", Reach.below([tmp_path / "data"]))
