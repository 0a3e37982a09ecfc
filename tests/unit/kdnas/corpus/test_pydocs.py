"""The documentation strings of the installed packages as a corpus."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from kdnas.corpus import pydocs
from kdnas.corpus.pydocs import environment, read_pydocs
from kdnas.corpus.reading import ReadingReport
from kdnas.corpus.sources import find_sources
from kdnas.specs.parts import CorpusSpec


def test_prose_of_the_standard_library_in_a_fixed_order() -> None:
    report = ReadingReport()
    first = list(read_pydocs(report, max_bytes=600_000))
    assert first == list(read_pydocs(ReadingReport(), max_bytes=600_000))
    assert report.bytes_read == sum(len(sample.text.encode()) for sample in first)
    assert 590_000 < report.bytes_read <= 600_000
    assert len({sample.text for sample in first}) == len(first)
    assert {sample.language for sample in first} == {"en"}
    assert not any(sample.text.startswith(">>>") for sample in first)


def test_packages_are_parsed_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pkg" / "tests").mkdir(parents=True)
    (tmp_path / "pkg" / "module.py").write_text(
        '"""A module about many different things.\n\n    >>> 1 + 1 is what two words say\n"""\n'
        "raise SystemExit('imported')\n"
        "class A:\n"
        '    """A class of hard\n    wrapped words here."""\n'
        "    async def f(self):\n"
        '        """A coroutine that does nothing useful."""\n'
        "        x = '\\d'\n"
    )
    (tmp_path / "pkg" / "broken.py").write_text('"""Broken files are left out quietly."""\n(')
    (tmp_path / "pkg" / "tests" / "test_a.py").write_text('"""Tests are no prose for anybody."""')
    (tmp_path / "pkg" / ".#edited.py").symlink_to("nowhere")  # an editor's lock
    (tmp_path / "lib").mkdir()
    places = {"stdlib": tmp_path / "lib", "purelib": tmp_path / "pkg", "platlib": tmp_path / "pkg"}
    monkeypatch.setattr(pydocs.sysconfig, "get_paths", lambda: places)
    monkeypatch.setattr(pydocs, "topics", {"t": "A topic of the help with words.\n\nToo short."})
    report = ReadingReport()
    assert [sample.text for sample in read_pydocs(report)] == [
        "A topic of the help with words.",
        "A module about many different things.",
        "A class of hard wrapped words here.",
        "A coroutine that does nothing useful.",
    ]
    assert report.files == 1
    assert gc.isenabled()


def test_state_is_the_environment() -> None:
    (source,) = find_sources(CorpusSpec())
    assert source.state() == {"kind": "pydocs", "environment": environment()}
    assert environment()["python"].startswith(f"{sys.version_info.major}.")
    assert "numpy" in environment()
