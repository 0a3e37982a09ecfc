"""A path is held to the roots where it is opened, whatever it was a moment ago."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import RequestError
from kdnas.reach import ANYWHERE, Reach, new_file

SECRET = "the key to everything"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder of texts, beside a folder with a secret."""
    root = tmp_path / "data"
    (root / "texts" / "deep").mkdir(parents=True)
    (root / "texts" / "a.txt").write_text("a")
    (root / "texts" / "deep" / "b.txt").write_text("b")
    (tmp_path / "outside" / "texts").mkdir(parents=True)
    (tmp_path / "outside" / "a.txt").write_text(SECRET)
    (tmp_path / "outside" / "texts" / "a.txt").write_text(SECRET)
    return root


@pytest.fixture
def outside(root: Path) -> Path:
    return root.parent / "outside"


@pytest.fixture
def reach(root: Path) -> Reach:
    return Reach.below([root])


def text(reach: Reach, path: Path) -> str:
    with reach.open(path) as stream:
        return stream.read().decode()


def swapped_when_looked_up(
    monkeypatch: pytest.MonkeyPatch, looked_up: Path, swap: Callable[[], object]
) -> None:
    """Do something as soon as it is known where a path leads, and before that is opened."""
    usual, done = os.path.realpath, []

    def realpath(path: Any, **options: Any) -> str:
        found = str(usual(path, **options))
        if Path(path) == looked_up and not done:
            done.append(swap())
        return found

    monkeypatch.setattr(os.path, "realpath", realpath)


def test_what_lies_below_a_root_is_opened(root: Path, reach: Reach) -> None:
    assert text(reach, root / "texts" / "deep" / "b.txt") == "b"
    assert text(reach, root / "texts" / "deep" / ".." / "a.txt") == "a"
    assert reach.stat(root / "texts" / "a.txt").st_size == 1
    assert reach.children(root / "texts") == [root / "texts" / "a.txt", root / "texts" / "deep"]
    assert reach.files_below(root) == [
        root / "texts" / "a.txt",
        root / "texts" / "deep" / "b.txt",
    ]


def test_links_that_stay_within_the_roots_are_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "c.txt").write_text("c")
    (tmp_path / "alias").symlink_to(root)
    (root / "relative").symlink_to("texts/deep")
    (root / "absolute.txt").symlink_to(root / "texts" / "a.txt")
    (root / "other").symlink_to(tmp_path / "more")
    reach = Reach.below([tmp_path / "alias", tmp_path / "more"])
    for name, content in (("relative/b.txt", "b"), ("absolute.txt", "a"), ("other/c.txt", "c")):
        assert text(reach, root / name) == content
        assert text(reach, tmp_path / "alias" / name) == content


@pytest.mark.parametrize("link", ["a.txt", "texts"])
def test_links_that_lead_out_are_refused(
    root: Path, outside: Path, reach: Reach, link: str
) -> None:
    (root / "way").symlink_to(outside / link)
    path = root / "way" if link.endswith(".txt") else root / "way" / "a.txt"
    for use in (reach.open, reach.stat, reach.require):
        with pytest.raises(RequestError) as caught:
            use(path)
        assert str(caught.value) == (
            f"'{root / 'way'}' leads out of the folders that requests may name ({root}), so it is "
            "not opened; put the files themselves below one of them, or start the service with "
            "another KDNAS_DATA_ROOTS"
        )


def test_a_folder_that_leads_out_is_not_listed(root: Path, outside: Path, reach: Reach) -> None:
    (root / "way").symlink_to(outside)
    for use in (reach.children, reach.files_below):
        with pytest.raises(RequestError, match="leads out"):
            use(root / "way")
    assert root / "way" / "a.txt" not in reach.files_below(root)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside/a.txt", "../data2/a.txt"])
def test_paths_elsewhere_are_refused(root: Path, reach: Reach, path: str) -> None:
    (root.parent / "data2").mkdir()
    with pytest.raises(RequestError, match="leads out"):
        reach.open(root / path)


def test_a_folder_that_is_swapped_while_it_is_entered(
    root: Path, outside: Path, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "texts" / "a.txt"

    def swap() -> None:
        (root / "texts").rename(root / "was")
        (root / "texts").symlink_to(outside / "texts")

    swapped_when_looked_up(monkeypatch, path, swap)
    with pytest.raises(RequestError) as caught:
        reach.open(path)
    assert f"'{root / 'texts'}' leads out" in str(caught.value)


def test_a_file_that_is_swapped_while_it_is_opened(
    root: Path, outside: Path, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "texts" / "a.txt"

    def swap() -> None:
        path.unlink()
        path.symlink_to(outside / "a.txt")

    swapped_when_looked_up(monkeypatch, path, swap)
    with pytest.raises(RequestError, match="leads out"):
        reach.open(path)


def test_one_that_is_swapped_for_a_link_within_is_opened(
    root: Path, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps versions in folders and turns a link to the newest does no harm."""
    path = root / "texts" / "a.txt"

    def swap() -> None:
        (root / "texts").rename(root / "version-2")
        (root / "texts").symlink_to("version-2")

    swapped_when_looked_up(monkeypatch, path, swap)
    assert text(reach, path) == "a"


def test_a_folder_held_open_stays_the_same(root: Path, outside: Path, reach: Reach) -> None:
    with reach.folder(root / "texts" / "deep") as folder:
        (root / "texts" / "deep").rename(root / "was")
        (root / "texts" / "deep").symlink_to(outside)
        with new_file("new.txt", folder) as stream:
            stream.write(b"new")
    assert (root / "was" / "new.txt").read_text() == "new"
    assert not (outside / "new.txt").exists()


def test_folders_are_made_below_a_root_alone(root: Path, outside: Path, reach: Reach) -> None:
    with reach.folder(root / "new" / "deep", create=True):
        assert (root / "new" / "deep").is_dir()
    (root / "way").symlink_to(outside)
    with (
        pytest.raises(RequestError, match="leads out"),
        reach.folder(root / "way" / "new", create=True),
    ):
        pass
    assert not (outside / "new").exists()


def test_a_new_file_takes_the_place_of_a_link(root: Path, outside: Path, reach: Reach) -> None:
    (root / "texts" / "c.txt").symlink_to(outside / "a.txt")
    with reach.folder(root / "texts") as folder, new_file("c.txt", folder) as stream:
        stream.write(b"c")
    assert (root / "texts" / "c.txt").read_text() == "c"
    assert (outside / "a.txt").read_text() == SECRET


def test_a_folder_is_put_in_a_place_that_is_new_or_empty(
    root: Path, tmp_path: Path, reach: Reach
) -> None:
    own = tmp_path / "own"
    (own / "deep").mkdir(parents=True)
    (own / "a.txt").write_text("a")
    (own / "deep" / "b.txt").write_text("b")
    (root / "empty").mkdir()
    (root / "link").symlink_to("texts/deep")
    for name in ("new/student", "empty"):
        reach.put(own, root / name, ".draft")
        assert (root / name / "deep" / "b.txt").read_text() == "b"
        assert not (root / name).with_name(".draft").exists()
    with pytest.raises(OSError, match="not empty"):
        reach.put(own, root / "link", ".draft")
    assert not (root / "texts" / ".draft").exists()


def test_one_that_is_replaced_is_there_until_the_copy_is_whole(
    root: Path, tmp_path: Path, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, there = tmp_path / "own", root / "student"
    for folder, text in ((own, "new"), (there, "old")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("kdnas.reach._copy_tree", full)
        with pytest.raises(OSError, match="No space left"):
            reach.put(own, there, ".draft", replaces=True)
    assert (there / "a.txt").read_text() == "old"
    (root / ".draft.before").mkdir()  # of a process that was killed
    reach.put(own, there, ".draft", replaces=True)
    assert (there / "a.txt").read_text() == "new"
    assert not list(root.glob(".draft*"))
    rename = os.rename

    def full_for_the_new(source: str, *rest: Any, **folders: int) -> None:
        if source == ".draft":
            full()
        rename(source, *rest, **folders)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full_for_the_new)
        with pytest.raises(OSError, match="No space left"):
            reach.put(own, there, ".draft", replaces=True)
    assert sorted(root.glob("*student*")) == [there]
    assert (there / "a.txt").read_text() == "new"
    there.rename(root / ".draft.before")  # of a process that was killed between the two renamings
    with monkeypatch.context() as patched:
        patched.setattr("kdnas.reach._copy_tree", full)
        with pytest.raises(OSError, match="No space left"):
            reach.put(own, there, ".draft", replaces=True)
    assert (there / "a.txt").read_text() == "new"
    assert not list(root.glob(".draft*"))
    reach.put(own, root / "other", ".draft", replaces=True)
    assert (root / "other" / "a.txt").read_text() == "new"


@pytest.mark.parametrize("link", ["students", "students/one"])
def test_nothing_is_put_where_a_link_leads(
    root: Path, outside: Path, tmp_path: Path, reach: Reach, link: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.txt").write_text("a")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside / "empty")
    (outside / "empty").mkdir()
    with pytest.raises(RequestError, match="leads out"):
        reach.put(tmp_path / "own", root / "students" / "one", ".draft")
    assert list((outside / "empty").iterdir()) == []


def test_what_is_no_file_is_not_waited_for(root: Path, reach: Reach) -> None:
    os.mkfifo(root / "pipe")
    for anywhere_too in (reach, ANYWHERE):
        for name in ("pipe", "texts", "."):
            with pytest.raises(OSError, match=r"no file|Is a directory"):
                anywhere_too.open(root / name)
    with pytest.raises(FileNotFoundError):
        reach.open(root / "absent.txt")
    with pytest.raises(NotADirectoryError):
        reach.open(root / "texts" / "a.txt" / "b.txt")


def test_one_folder_more(root: Path, outside: Path, reach: Reach) -> None:
    more = reach.and_folder(outside / "texts")
    assert text(more, outside / "texts" / "a.txt") == SECRET
    with pytest.raises(RequestError, match="leads out"):
        more.open(outside / "a.txt")
    (root / "student").symlink_to(outside)  # by its name below a root, wherever it leads
    assert reach.and_folder(root / "student") == reach
    (root.parent / "student").symlink_to(outside)
    with pytest.raises(RequestError, match="leads out"):
        reach.and_folder(root.parent / "student").open(root.parent / "student" / "a.txt")


def test_what_is_apart_is_out_of_reach_below_a_root_too(root: Path) -> None:
    for name in ("data", "own/store", "own/students"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "file").write_text(name)
    (root / "data" / "link").symlink_to(root / "own" / "store" / "file")
    reach = Reach.below([root, root / "own" / "students"], [root / "own"])
    for name in ("data", "own/students"):
        assert text(reach, root / name / "file") == name
    for way in ("own/store/file", "data/link", "data/../own/store/file"):
        with pytest.raises(RequestError, match="leads out of the folders"):
            reach.open(root / way)
    with reach.folder(root / "data"), pytest.raises(RequestError):
        reach.children(root / "own")
    more = reach.and_folder(root / "own" / "store")
    assert text(more, root / "data" / "link") == "own/store"
    named_itself = Reach.below([root / "own"], [root / "own"])
    assert named_itself.leads_to(root / "own" / "store")


def test_without_roots_nothing_is_in_reach(root: Path) -> None:
    with pytest.raises(RequestError, match="leads out"):
        Reach.below([]).open(root / "texts" / "a.txt")


def test_the_command_line_goes_anywhere(root: Path, outside: Path) -> None:
    (root / "way").symlink_to(outside)
    assert text(ANYWHERE, root / "way" / "a.txt") == SECRET
    assert ANYWHERE.children(root / "way") == [root / "way" / "a.txt", root / "way" / "texts"]
    assert ANYWHERE.and_folder(outside) is ANYWHERE
    with ANYWHERE.folder(root / "way" / "new", create=True):
        assert (outside / "new").is_dir()
