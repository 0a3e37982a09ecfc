"""Globs match what those of the standard library do, with an end to it."""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path

import pytest

from kdnas.corpus import globs
from kdnas.corpus.globs import matches, split_glob
from kdnas.errors import CorpusError

TREE = ("a.txt", "b.md", ".hidden.txt", "x/a.txt", "x/y/b.txt", "x/y/[1].txt", ".dot/c.txt", "y/z")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "*",
            "*.txt",
            "?.txt",
            ".*",
            "[ab].*",
            "x/*",
            "*/a.txt",
            "*/y/*",
            ".dot/*",
            "x/y/[[]1].txt",
        ),
        *("**", "**/*", "**/*.txt", "**/y/*", "x/**", "x/**/b.txt", "**/**/*.txt", "**/*/**/b.txt"),
        *("none/*", "a.txt/*", "*/../*.md", "*/none/*", "x/[!y]*"),
    ],
)
def test_matches_are_those_of_the_standard_library(pattern: str, tree: Path) -> None:
    known = {Path(p) for p in glob.glob(str(tree / pattern), recursive=True)}  # noqa: PTH207
    if pattern in ("**", "x/**"):  # of which a shell's has the folder itself
        known.discard(tree / pattern.removesuffix("**"))
    assert matches(tree / pattern, pattern) == sorted(known)


def test_a_glob_begins_before_its_first_wildcard() -> None:
    assert split_glob(Path("/a/b*/c")) == (Path("/a"), ("b*", "c"))
    assert split_glob(Path("*.txt")) == (Path(), ("*.txt",))


def test_links_are_entered_where_they_are_matched_and_not_at_any_depth(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "x")
    assert tree / "link/a.txt" in matches(tree / "*/a.txt", "*/a.txt")
    assert tree / "link/a.txt" not in matches(tree / "**/*.txt", "**/*.txt")


def test_what_cannot_be_looked_at_matches_nothing(tree: Path) -> None:
    (tree / "circle").symlink_to(tree / "circle")
    long = "n" * 300
    for pattern in ("circle/*", "c*/*", f"*/{long}"):
        assert matches(tree / pattern, pattern) == []
    closed = tree / "closed"
    closed.mkdir(mode=0)
    if os.geteuid():
        assert matches(tree / "*/*/in", "") == []


def test_a_glob_that_looks_at_too_much_is_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tree / name).symlink_to(tree)
    began = time.monotonic()
    assert len(matches(tree / "**/*.md", "")) == 1  # 2^40 ways, where links are entered
    assert matches(tree / ("x/" + "**/*/" * 20 + "*.nope"), "") == []
    monkeypatch.setattr(globs, "MOST_NAMES", 20)
    with pytest.raises(CorpusError, match=r"the glob 'mine' looks at more than 20 names; name a"):
        matches(tree / "**/*/**/*.txt", "mine")
    with pytest.raises(CorpusError, match=r"the glob 'mine' has 101 parts; give at most 100"):
        matches(tree / ("*/" * 101), "mine")
    assert time.monotonic() - began < 60


def test_folders_that_are_nested_too_deeply_are_told(tree: Path) -> None:
    (tree / "/".join("d" * 900)).mkdir(parents=True)
    with pytest.raises(CorpusError, match=r"the glob 'mine' leads .* nested too deeply; name a"):
        matches(tree / "**/*.md", "mine")
