from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from fsspec.implementations.local import LocalFileSystem

from kdnas.distill.checkpoint import (
    FORMAT,
    Checkpoints,
    absolute_place,
    check_place,
    place_below,
)
from kdnas.errors import RequestError, SpecError, StoreError
from kdnas.reach import Reach


@pytest.fixture(params=["plain", "a [strange] place", "memory"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoints:
    if request.param == "memory":
        return Checkpoints(f"memory://{tmp_path}/run")
    return Checkpoints(str(tmp_path / request.param / "run"))


def test_a_state_comes_back_as_it_was(checkpoints: Checkpoints) -> None:
    assert checkpoints.load() is None
    assert checkpoints.steps() == []
    state = {
        "weights": {"a": torch.randn(3, 4), "b": torch.arange(5)},
        "step": 7,
        "losses": (0.1, 0.2),
        "best": None,
        "curve": [(1, 0.5, 1e-3)],
    }
    checkpoints.save(state, 7)
    found = checkpoints.load()
    assert found is not None
    assert torch.equal(found["weights"]["a"], state["weights"]["a"])  # type: ignore[index]
    assert torch.equal(found["weights"]["b"], torch.arange(5))
    assert {k: v for k, v in found.items() if k != "weights"} == {
        k: v for k, v in state.items() if k != "weights"
    }


def test_only_the_newest_is_kept(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 2, 10):
        checkpoints.save({"step": step}, step)
        assert checkpoints.steps() == [step]
    assert checkpoints.load() == {"step": 10}
    checkpoints.remove()
    assert checkpoints.load() is None
    checkpoints.remove()  # there is nothing left to remove


def test_one_that_is_whole_is_never_written_over(tmp_path: Path) -> None:
    """Or a kill in the middle would leave nothing."""
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save({"step": 3}, 3)
    written = (tmp_path / "step-000000003" / "state.pt").stat()
    checkpoints.save({"step": 3}, 3)
    assert (tmp_path / "step-000000003" / "state.pt").stat() == written


@pytest.mark.parametrize("marker", [None, "", "{", "[]", '{"step": 9}'])
def test_one_that_was_interrupted_counts_for_nothing(tmp_path: Path, marker: str | None) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save({"step": 6}, 6)
    whole = (tmp_path / "step-000000006" / "state.pt").read_bytes()
    half = tmp_path / "step-000000009"
    half.mkdir()
    (half / "state.pt").write_bytes(whole[: len(whole) // 2])
    if marker is not None:
        (half / "checkpoint.json").write_text(marker)
    (tmp_path / "step-by-step.txt").write_text("mine")
    assert checkpoints.steps() == [6]
    assert checkpoints.load() == {"step": 6}
    checkpoints.save({"step": 7}, 7)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-000000007", "step-by-step.txt"]


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_damaged_one_is_named(tmp_path: Path, size: int) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save({"weights": torch.randn(2000)}, 3)
    state = tmp_path / "step-000000003" / "state.pt"
    state.write_bytes(state.read_bytes()[:size])
    with pytest.raises(StoreError, match=r"cannot be read .*remove its folder"):
        checkpoints.load()
    state.write_bytes(b"no archive at all")
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoints.load()
    state.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoints.load()


def test_one_of_another_format_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    checkpoints.save({}, 3)
    marker = tmp_path / "step-000000003" / "checkpoint.json"
    assert json.loads(marker.read_text()) == {"format": FORMAT, "step": 3}
    marker.write_text('{"format": 2, "step": 3}')
    with pytest.raises(StoreError, match="has format 2, this program reads 3; resume with"):
        checkpoints.load()


def test_those_of_the_first_format_are_refused_where_they_lie(tmp_path: Path) -> None:
    """They were kept a folder deeper; a run that begins anew would hide them."""
    former = tmp_path / "checkpoints" / "step-000000040"
    former.mkdir(parents=True)
    (former / "checkpoint.json").write_text('{"format": 1, "step": 40}')
    with pytest.raises(StoreError, match=r"has format 1, .*start the distillation anew"):
        Checkpoints(str(tmp_path)).load()


def test_a_place_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StoreError, match=r"kept at 'nowhere://x' .*training\.checkpoints"):
        Checkpoints("nowhere://x")


@pytest.mark.parametrize("place", ["nowhere://runs", "/proc/nothing/here"])
def test_a_place_of_no_use_is_found_before_the_work(place: str) -> None:
    with pytest.raises(SpecError, match=r"give training\.checkpoints a folder or"):
        check_place(place)


def test_a_place_that_holds_a_password_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^training\.checkpoints holds a password"):
        check_place("memory://user:pa55word@runs")


def test_a_good_place_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_place(str(tmp_path / "runs"))
    assert list((tmp_path / "runs").iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert absolute_place("runs") == str(tmp_path / "runs")
    assert absolute_place("s3://bucket/runs") == "s3://bucket/runs"


def test_which_ones_other_processes_reach(tmp_path: Path) -> None:
    assert Checkpoints("memory://run").in_this_process
    assert not Checkpoints(str(tmp_path)).in_this_process


FULL_DISK = """
import resource, sys
from kdnas.distill.checkpoint import Checkpoints
from kdnas.errors import StoreError
import torch

checkpoints = Checkpoints(sys.argv[1])
checkpoints.save({"weights": torch.zeros(1000)}, 1)
for limit in map(int, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        checkpoints.save({"weights": torch.zeros(100_000)}, 2)
    except StoreError as error:
        print(error)
"""


def test_a_full_disk_leaves_the_older_one(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk's: both end a write early."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), "0", "100", "150000"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"the checkpoint of step 2 could not be written to {tmp_path} (")
        assert "free space there or make it writable, and resume" in line
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    state = Checkpoints(str(tmp_path)).load()
    assert state is not None
    assert torch.equal(state["weights"], torch.zeros(1000))


class Failing(LocalFileSystem):
    """A file system that fails at chosen calls, as a remote one does."""

    protocol = "failing"
    cachable = False
    broken: frozenset[str] = frozenset()

    def _check(self, call: str) -> None:
        if call in self.broken:
            raise ConnectionError(f"{call}: the bucket is gone")

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self._check(f"open {mode}")
        return super().open(path, mode, **options)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        self._check("ls")
        return super().ls(path, detail, **options)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        self._check("rm")
        super().rm(path, recursive, maxdepth)


@pytest.mark.parametrize("broken", ["open wb", "ls", "rm"])
def test_a_failing_file_system_leaves_the_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    monkeypatch.setattr(checkpoints, "_fs", Failing())
    checkpoints.save({"step": 1}, 1)
    monkeypatch.setattr(Failing, "broken", frozenset({broken}))
    with pytest.raises(StoreError, match=rf"\({broken}: the bucket is gone\); \w+"):
        checkpoints.save({"step": 2}, 2)
    monkeypatch.setattr(Failing, "broken", frozenset())
    assert checkpoints.load() == {"step": 2 if broken == "rm" else 1}


def test_what_cannot_be_read_or_removed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(str(tmp_path))
    monkeypatch.setattr(checkpoints, "_fs", Failing())
    checkpoints.save({"step": 1}, 1)
    monkeypatch.setattr(Failing, "broken", frozenset({"ls", "rm", "open rb"}))
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoints.load()
    with pytest.raises(StoreError, match="cannot be read"):
        checkpoints.steps()
    with pytest.raises(StoreError, match="could not be removed"):
        checkpoints.remove()


def test_a_run_goes_on_at_another_place(tmp_path: Path) -> None:
    here, there = (Checkpoints(str(tmp_path / name)) for name in ("here", "there"))
    there.take_over(here)  # nothing was written yet
    assert there.steps() == []
    here.save({"step": 4}, 4)
    there.take_over(here)
    assert (here.steps(), there.steps()) == ([], [4])
    here.save({"step": 3}, 3)
    there.take_over(here)  # a kill came in between
    assert (here.steps(), there.steps()) == ([], [4])


@pytest.mark.parametrize(
    ("url", "below"),
    [
        ("/folder/", "/folder/run"),
        ("s3://bucket/store", "s3://bucket/store/run"),
        ("dir://store::file:///disk", "dir://store/run::file:///disk"),
        ("simplecache::s3://bucket", "simplecache::s3://bucket/run"),
    ],
)
def test_folders_inside_a_place(url: str, below: str) -> None:
    assert place_below(url, "run") == below


def test_a_chain_of_urls_is_not_below_a_root(tmp_path: Path) -> None:
    """It would be read from its end, and taken for the folder at its beginning."""
    kept = tmp_path / "texts"
    kept.mkdir()
    with pytest.raises(RequestError, match="is a chain of URLs"):
        Checkpoints(place_below(f"{kept}::file:///x", "run"), Reach.below([tmp_path])).remove()
    assert kept.is_dir()


def test_checkpoints_below_a_root_are_like_others(tmp_path: Path) -> None:
    reach = Reach.below([tmp_path])
    checkpoints = Checkpoints(str(tmp_path / "deep" / "run"), reach)
    assert (checkpoints.steps(), checkpoints.load()) == ([], None)
    checkpoints.try_writing()
    for step in (5, 10):
        checkpoints.save({"step": step}, step)
    assert checkpoints.steps() == [10]
    assert checkpoints.load() == {"step": 10}
    assert Checkpoints(str(tmp_path / "deep" / "run")).load() == {"step": 10}
    checkpoints.remove()
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize("link", ["deep", "deep/run", "deep/run/step-000000005"])
def test_no_link_leads_checkpoints_out_of_the_roots(tmp_path: Path, link: str) -> None:
    Checkpoints(str(tmp_path / "outside" / "deep" / "run")).save({"step": 5}, 5)
    outside = tmp_path / "outside" / link
    path = tmp_path / "data" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    reach = Reach.below([tmp_path / "data"])
    checkpoints = Checkpoints(str(tmp_path / "data" / "deep" / "run"), reach)
    uses: list[Callable[[], object]] = [
        checkpoints.load,
        checkpoints.steps,
        lambda: checkpoints.save({"step": 6}, 6),
    ]
    for use in uses:
        with pytest.raises(RequestError, match="leads out"):
            use()
    before = sorted(outside.rglob("*"))
    with suppress(RequestError, StoreError):
        checkpoints.remove()
    assert sorted(outside.rglob("*")) == before
