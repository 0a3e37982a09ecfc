"""The store: the same contract on a local folder and on a remote file system."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

from kdnas.artefact import DRAFT_PREFIX, MANIFEST, Manifest
from kdnas.errors import NotFoundError, StoreError
from kdnas.settings import Settings
from kdnas.store import Store
from kdnas.testing.webhdfs_server import store_server

FILES = {"weights.bin": b"\x00\x01" * 1000, "nested/config.json": b"{}", "empty": b""}


@pytest.fixture(params=["local", "file-url", "memory", "webhdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "webhdfs":
        with store_server(tmp_path / "remote") as server:
            yield Store(server.url, tmp_path / "cache")
        return
    url = {
        "local": str(tmp_path / "store"),
        "file-url": f"file://{tmp_path}/store",
        "memory": f"memory://{uuid.uuid4().hex}/store",
    }[request.param]
    yield Store(url, tmp_path / "cache")


@pytest.fixture
def remote(tmp_path: Path) -> Store:
    return Store(f"memory://{uuid.uuid4().hex}/store", tmp_path / "cache")


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"), tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "source", FILES)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != MANIFEST
    }


def drafts(tmp_path: Path) -> list[Path]:
    return list(tmp_path.rglob(f"{DRAFT_PREFIX}*"))


def test_round_trip(store: Store, folder: Path, tmp_path: Path) -> None:
    name = store.put("model", folder, metadata={"epoch": 3})
    assert store.has("model", name)
    assert not store.has("teacher", name)
    assert content(store.fetch("model", name)) == FILES
    assert store.manifest("model", name).metadata == {"epoch": 3}
    assert content(folder) == FILES
    assert not drafts(tmp_path)


def test_fingerprint_is_of_names_and_contents(store: Store, folder: Path, tmp_path: Path) -> None:
    name = store.put("model", folder)
    assert store.put("model", write(tmp_path / "elsewhere", FILES)) == name
    assert store.put("model", write(tmp_path / "more", {**FILES, "x": b""})) != name
    renamed = {key.replace("empty", "void"): data for key, data in FILES.items()}
    assert store.put("model", write(tmp_path / "renamed", renamed)) != name


def test_given_fingerprint_is_kept(store: Store, folder: Path, tmp_path: Path) -> None:
    assert store.put("teacher", folder, "abc123") == "abc123"
    other = write(tmp_path / "other", {"other": b"1"})
    assert store.put("teacher", other, "abc123") == "abc123"
    assert content(store.fetch("teacher", "abc123")) == FILES


def test_fetched_artefact_can_be_put_elsewhere(store: Store, folder: Path, tmp_path: Path) -> None:
    name = store.put("model", folder)
    other = Store(str(tmp_path / "second"), tmp_path / "cache2")
    assert other.put("model", store.fetch("model", name)) == name


def test_create_in_place(store: Store, tmp_path: Path) -> None:
    with store.create("corpus") as draft:
        write(draft.folder, FILES)
        name = draft.publish(metadata={"n": 1})
    assert content(store.fetch("corpus", name)) == FILES
    assert not drafts(tmp_path)


def test_unpublished_draft_is_removed(store: Store, tmp_path: Path) -> None:
    with store.create("corpus") as draft:
        write(draft.folder, FILES)
    assert not drafts(tmp_path)


def test_concurrent_puts_of_one_artefact(store: Store, folder: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: store.put("model", folder), range(16)))
    assert len(set(names)) == 1
    assert content(store.fetch("model", names[0])) == FILES
    assert not drafts(tmp_path)


def test_concurrent_fetches(store: Store, folder: Path, tmp_path: Path) -> None:
    name = store.put("model", folder)
    readers = [Store(store.url, tmp_path / "node") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda reader: reader.fetch("model", name), readers))
    assert len(folders) == 1
    assert content(folders.pop()) == FILES


def test_missing_artefact(store: Store) -> None:
    with pytest.raises(NotFoundError, match=r"no model 'abc' in the store .*KDNAS_STORE"):
        store.fetch("model", "abc")


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b"])
def test_names_cannot_lead_out_of_the_store(store: Store, name: str) -> None:
    with pytest.raises(NotFoundError, match="cannot name an artefact"):
        store.fetch("model", name)


def test_empty_or_missing_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(StoreError, match="is empty"):
        store.put("model", tmp_path / "nothing")
    with pytest.raises(StoreError, match="there is no folder"):
        store.put("model", tmp_path / "missing")
    assert not drafts(tmp_path)


def test_notes(store: Store, folder: Path) -> None:
    assert store.recall("model", "key") is None
    name = store.put("model", folder)
    store.remember("model", "key", name)
    assert store.recall("model", "key") == name
    store.remember("model", "key", "gone")
    assert store.recall("model", "key") is None


def test_local_put_links_also_through_symlinks(local: Store, folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "weights.bin").symlink_to(folder / "weights.bin")
    stored = local.fetch("model", local.put("model", linked)) / "weights.bin"
    assert not stored.is_symlink()
    assert stored.samefile(folder / "weights.bin")


def test_put_copies_where_links_are_impossible(
    local: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    stored = local.fetch("model", local.put("model", folder))
    assert content(stored) == FILES
    assert not (stored / "weights.bin").samefile(folder / "weights.bin")


def test_local_artefact_without_manifest_is_not_there(local: Store, folder: Path) -> None:
    half = write(Path(local.url) / "model" / "abc", FILES)
    assert not local.has("model", "abc")
    local.put("model", folder, "abc")
    assert local.has("model", "abc")
    assert content(half) == FILES


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_damaged_local_artefact_is_named(local: Store, folder: Path, damage: str) -> None:
    with local.create("model") as draft:
        write(draft.folder, FILES)
        name = draft.publish()
    path = local.fetch("model", name) / "weights.bin"
    path.write_bytes(b"1") if damage == "truncate" else path.unlink()
    with pytest.raises(StoreError, match=r"is damaged: weights\.bin"):
        local.fetch("model", name)


def test_damaged_manifest_is_named(local: Store, folder: Path) -> None:
    name = local.put("model", folder)
    (local.fetch("model", name) / MANIFEST).write_text("{")
    with pytest.raises(StoreError, match=r"manifest\.json is damaged"):
        local.fetch("model", name)


def test_newer_or_hostile_manifest_is_refused() -> None:
    data = json.loads(Manifest("model", "abc", {}, {}).dump())
    with pytest.raises(StoreError, match="has version 2, this program reads 1"):
        Manifest.load(json.dumps({**data, "version": 2}).encode(), "m")
    files = {"../evil": {"sha256": "0", "size": 1}}
    with pytest.raises(StoreError, match="m is damaged"):
        Manifest.load(json.dumps({**data, "files": files}).encode(), "m")


def test_remote_file_that_does_not_verify_is_named(
    remote: Store, folder: Path, tmp_path: Path
) -> None:
    name = remote.put("model", folder)
    fs, root = fsspec.url_to_fs(remote.url)
    path = next(p for p in fs.find(root) if p.endswith("weights.bin"))
    fs.pipe_file(path, b"\x00\x02" * 1000)
    reader = Store(remote.url, tmp_path / "node")
    with pytest.raises(StoreError, match=r"is damaged: weights\.bin has 2000 bytes and SHA-256"):
        reader.fetch("model", name)
    assert not drafts(tmp_path)
    assert not (tmp_path / "node" / "model" / name).exists()


def test_remote_artefact_is_downloaded_once_and_again_if_damaged(
    remote: Store, folder: Path, tmp_path: Path
) -> None:
    name = remote.put("model", folder)
    reader = Store(remote.url, tmp_path / "node")
    fetched = reader.fetch("model", name)
    inode = (fetched / "weights.bin").stat().st_ino
    assert (reader.fetch("model", name) / "weights.bin").stat().st_ino == inode
    (fetched / "weights.bin").write_bytes(b"short")
    assert content(reader.fetch("model", name)) == FILES


def test_a_store_in_trouble_says_so_and_nothing_counts_as_missing(
    folder: Path, tmp_path: Path
) -> None:
    with store_server(tmp_path / "remote") as server:
        store = Store(server.url, tmp_path / "cache")
        name = store.put("model", folder)
        store.remember("model", "key", name)
        assert store.recall("model", "key") == name
        assert content(Store(server.url, tmp_path / "node").fetch("model", name)) == FILES
        acts: list[Callable[[], object]] = [
            lambda: store.has("model", name),
            lambda: store.manifest("model", name),
            lambda: store.recall("model", "key"),
            lambda: store.remember("model", "key", name),
            lambda: store.put("model", folder, "other"),
            lambda: store.names("model"),
            lambda: Store(server.url, tmp_path / "another").fetch("model", name),
        ]
        for server.status, act in itertools.product((500, 503), acts):
            with pytest.raises(StoreError, match=re.escape(server.url)) as told:
                act()
            assert str(told.value).endswith("; check the store and its credentials")
        server.status = None
        assert store.has("model", name)
        assert not store.has("model", "other")


def test_writers_of_one_name_do_not_mix_remotely(remote: Store, tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"a": b"1", "b": b"1"})
    second = write(tmp_path / "second", {"a": b"2", "b": b"2"})
    remote.put("model", first, "abc")
    before = Manifest.load(remote.manifest("model", "abc").dump(), "m")
    fs, root = fsspec.url_to_fs(remote.url)
    fs.rm_file(f"{root}/model/abc/{MANIFEST}")
    Store(remote.url, tmp_path / "cache2").put("model", second, "abc")
    fs.pipe_file(f"{root}/model/abc/{MANIFEST}", before.dump())
    fetched = Store(remote.url, tmp_path / "node").fetch("model", "abc")
    assert content(fetched) == {"a": b"1", "b": b"1"}


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("failing", ["shutil.copyfile", "pathlib.Path.write_bytes"])
def test_full_disk_is_one_sentence_and_leaves_nothing(
    local: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.link", full_disk)
        patch.setattr(failing, full_disk)
        with pytest.raises(StoreError, match=r"No space left on device; free some space"):
            local.put("model", folder, "abc")
    assert not local.has("model", "abc")
    assert not drafts(tmp_path)
    assert local.put("model", folder, "abc") == "abc"


def test_full_disk_while_building_in_place(store: Store, tmp_path: Path) -> None:
    def build() -> None:
        with store.create("corpus") as draft:
            (draft.folder / "half").write_bytes(b"half")
            full_disk()

    with pytest.raises(StoreError, match="No space left"):
        build()
    assert not drafts(tmp_path)


def test_other_errors_of_a_draft_are_not_the_stores(store: Store) -> None:
    with pytest.raises(PermissionError), store.create("corpus"):
        raise PermissionError(errno.EACCES, "of a source file")


def test_full_disk_while_downloading(
    remote: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = remote.put("model", folder)
    reader = Store(remote.url, tmp_path / "node")
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.get_file", full_disk)
    with pytest.raises(StoreError, match=r"No space left on device; free some space"):
        reader.fetch("model", name)
    assert not drafts(tmp_path)


def test_errors_of_the_remote_client_are_one_sentence(
    remote: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials\nfound")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.put_file", refuse)
    with pytest.raises(StoreError, match=r"no credentials found; check the store and its cred"):
        remote.put("model", folder)


def test_unknown_protocol(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot use the store URL 'nonsense://x'.*KDNAS_STORE"):
        Store("nonsense://x", tmp_path)


def test_store_that_is_a_file(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="check KDNAS_STORE"):
        Store(str(tmp_path / "file"), tmp_path / "cache").put("model", folder)


def test_abandoned_drafts_are_removed(local: Store, folder: Path) -> None:
    old, young = (Path(local.url) / "model" / f"{DRAFT_PREFIX}{age}" for age in ("old", "young"))
    for draft in (old, young):
        write(draft, {"half": b"1"})
    past = time.time() - 7 * 24 * 3600
    for path in (old / "half", old):
        os.utime(path, (past, past))
    local.put("model", folder)
    assert not old.exists()
    assert young.exists()


def test_from_settings_creates_nothing(tmp_path: Path) -> None:
    store = Store.from_settings(Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")}))
    assert store.is_local
    assert store.url == str(tmp_path / "home" / "store")
    assert not store.has("model", "abc")
    assert not (tmp_path / "home").exists()


def test_a_file_that_is_no_artefact_may_change_and_go(store: Store) -> None:
    assert store.read_file("notes", "one", "note.txt") is None
    assert store.file_size("notes", "one", "note.txt") is None
    for text in (b"first", b"second, longer"):
        store.write_file("notes", "one", "note.txt", text)
        assert store.read_file("notes", "one", "note.txt") == text
        assert store.file_size("notes", "one", "note.txt") == len(text)
    store.write_file("notes", "two", "note.txt", b"")
    store.remove_files("notes", "one")
    store.remove_files("notes", "one")
    assert store.read_file("notes", "one", "note.txt") is None
    assert store.read_file("notes", "two", "note.txt") == b""
    with pytest.raises(NotFoundError, match="cannot name an artefact"):
        store.read_file("notes", "..", "note.txt")


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    with pytest.raises(StoreError, match=r"cannot write .*note\.txt"):
        store.write_file("notes", "one", "note.txt", b"text")
    with pytest.raises(StoreError, match=r"cannot read .*note\.txt"):
        store.read_file("notes", "one", "note.txt")
    with pytest.raises(StoreError, match="cannot reach the store"):
        store.file_size("notes", "one", "note.txt")
