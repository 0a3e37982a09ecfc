"""Content-addressed artefacts (teachers, corpora, checkpoints, models) at any fsspec URL.

An artefact is a folder of files of one kind, named by a fingerprint. Its ``manifest.json`` lists
every file with size and SHA-256 and is written last, so an artefact without one does not exist.

On a local file system an artefact lies at ``<root>/<kind>/<fingerprint>/`` and appears whole, by
the renaming of a draft folder. Anywhere else each file lies below its own SHA-256, so two writers
of one fingerprint never mix their files, and the manifest decides whose are read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from filelock import FileLock

from kdnas.errors import NotFoundError, StoreError
from kdnas.records import fingerprint as fingerprint_of
from kdnas.settings import Settings

MANIFEST = "manifest.json"
DRAFT_PREFIX = ".draft-"
ABANDONED_AFTER_SECONDS = 2 * 24 * 3600
# What a full or read-only disk says; other errors in a draft's body are not the store's.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of an artefact: its SHA-256 in hexadecimal and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artefact consists of; ``files`` is keyed by the path inside the artefact."""

    kind: str
    fingerprint: str
    files: Mapping[str, StoredFile]
    metadata: Mapping[str, Any]

    def dump(self) -> bytes:
        """Write the manifest as JSON; :meth:`load` takes it back."""
        files = {n: {"sha256": f.sha256, "size": f.size} for n, f in self.files.items()}
        data = {
            "version": 1,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "files": files,
            "metadata": dict(self.metadata),
        }
        return json.dumps(data, indent=1, sort_keys=True).encode()

    @classmethod
    def load(cls, data: bytes, where: str) -> Manifest:
        """Read a manifest.

        Raises:
            StoreError: it is no manifest, or one of a newer program.
        """
        try:
            read = json.loads(data)
            if read["version"] != 1:
                raise StoreError(f"{where} has version {read['version']}, this program reads 1")
            files = {n: StoredFile(f["sha256"], f["size"]) for n, f in read["files"].items()}
            if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
                raise ValueError("a file outside the artefact")
            return cls(read["kind"], read["fingerprint"], files, read["metadata"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreError(
                f"{where} is damaged; remove it and store the artefact again"
            ) from None


@dataclass(frozen=True, slots=True)
class Draft:
    """An artefact in the making: write files into ``folder``, then publish."""

    store: Store
    kind: str
    folder: Path

    def publish(
        self, fingerprint: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Make the folder an artefact and return its fingerprint.

        Args:
            fingerprint: name of the artefact; None derives it from names and contents of the files.
            metadata: JSON-able notes, kept in the manifest.

        Raises:
            StoreError: the folder is empty, or it cannot be written.
        """
        return self.store._publish(self, fingerprint, dict(metadata or {}))


class Store:
    """Artefacts at ``url``; those of a remote store are brought to ``cache_dir`` once.

    Nothing is created before the first write.

    Args:
        url: a local folder, or any fsspec URL such as ``s3://bucket/kdnas`` or ``memory://kdnas``.
        cache_dir: local folder for drafts and downloads of a remote store.

    Raises:
        StoreError: the URL's protocol is unknown, or its package is not installed.
    """

    def __init__(self, url: str, cache_dir: Path) -> None:
        self.url = url
        self.cache_dir = cache_dir
        try:
            self._fs, root = fsspec.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"cannot use the store URL {url!r}: {error}; check KDNAS_STORE"
            ) from None
        self._root = root.rstrip("/")
        self.is_local = "file" in _protocols(self._fs)

    @classmethod
    def from_settings(cls, settings: Settings) -> Store:
        """Open the store that the environment names."""
        return cls(settings.store_url, settings.home / "cache")

    def put(
        self,
        kind: str,
        folder: Path,
        fingerprint: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Store a folder and return its fingerprint; one that is there already is left alone.

        On a local file system files are hard-linked where possible: replace them, never write into
        them. A ``manifest.json`` at the top of the folder is not part of the artefact.

        Raises:
            StoreError: the folder is missing or empty, or it cannot be written.
        """
        if fingerprint is not None and self.has(kind, fingerprint):
            return fingerprint
        with self.create(kind) as draft:
            for name, path in _files_of(folder).items():
                target = draft.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(path, target)
            return draft.publish(fingerprint, metadata)

    @contextmanager
    def create(self, kind: str) -> Iterator[Draft]:
        """Give a folder to build an artefact in; what is not published is removed.

        Raises:
            StoreError: the disk is full or read-only.
        """
        parent = self._drafts(kind)
        with _disk_errors(f"cannot write to {parent}"):
            parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(parent)
            folder = parent / f"{DRAFT_PREFIX}{uuid.uuid4().hex}"
            folder.mkdir()
        try:
            yield Draft(self, kind, folder)
        except OSError as error:
            if error.errno in _DISK_ERRORS:
                raise StoreError(_disk_sentence(f"cannot write to {parent}", error)) from error
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def has(self, kind: str, fingerprint: str) -> bool:
        """True if the artefact is there, whole."""
        with _disk_errors(f"cannot reach the store {self.url}"):
            return bool(self._fs.exists(f"{self._at(kind, fingerprint)}/{MANIFEST}"))

    def manifest(self, kind: str, fingerprint: str) -> Manifest:
        """Read what an artefact consists of, and its metadata.

        Raises:
            NotFoundError: there is no such artefact.
            StoreError: its manifest is damaged.
        """
        path = f"{self._at(kind, fingerprint)}/{MANIFEST}"
        with _disk_errors(f"cannot read {path}"):
            try:
                data = self._fs.cat_file(path)
            except FileNotFoundError:
                raise NotFoundError(
                    f"there is no {kind} {fingerprint!r} in the store {self.url}; "
                    "check the name and KDNAS_STORE"
                ) from None
        return Manifest.load(data, path)

    def fetch(self, kind: str, fingerprint: str) -> Path:
        """Return a local folder with the artefact's files.

        A local store's own folder is returned after its files' sizes are checked. From a remote
        store every file is downloaded once and verified by its SHA-256; other processes that ask
        for it at the same time wait.

        Raises:
            NotFoundError: there is no such artefact.
            StoreError: a file does not verify (named), or cannot be written.
        """
        if self.is_local:
            folder = Path(self._at(kind, fingerprint))
            manifest = self.manifest(kind, fingerprint)
            if problem := _wrong_size(folder, manifest):
                raise StoreError(f"{folder} is damaged: {problem}; remove it and store it again")
            return folder
        folder = self.cache_dir / kind / _checked(fingerprint)
        if _is_cached(folder):
            return folder
        with _disk_errors(f"cannot write to {folder}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.parent / f".{fingerprint}.lock"):
                if not _is_cached(folder):
                    self._download(self.manifest(kind, fingerprint), folder)
        return folder

    def remember(self, kind: str, key: str, fingerprint: str) -> None:
        """Note that ``key`` (a name for how an artefact was made) led to this artefact.

        Raises:
            StoreError: the note cannot be written.
        """
        path = self._note(kind, key)
        with _disk_errors(f"cannot write {path}"):
            if self.is_local:
                _write_atomically(Path(path), fingerprint.encode())
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, fingerprint.encode())

    def recall(self, kind: str, key: str) -> str | None:
        """Return the artefact that ``key`` led to, or None if there is none (any more)."""
        path = self._note(kind, key)
        with _disk_errors(f"cannot read {path}"):
            try:
                fingerprint: str = self._fs.cat_file(path).decode()
            except FileNotFoundError:
                return None
        return fingerprint if self.has(kind, fingerprint) else None

    def _at(self, kind: str, fingerprint: str) -> str:
        return f"{self._root}/{_checked(kind)}/{_checked(fingerprint)}"

    def _note(self, kind: str, key: str) -> str:
        return f"{self._root}/{_checked(kind)}-keys/{_checked(key)}"

    def _drafts(self, kind: str) -> Path:
        return (Path(self._root) if self.is_local else self.cache_dir) / _checked(kind)

    def _publish(self, draft: Draft, fingerprint: str | None, metadata: dict[str, Any]) -> str:
        with _disk_errors(f"cannot store {draft.kind} in {self.url}"):
            files = {name: _stored(path) for name, path in _files_of(draft.folder).items()}
            if fingerprint is None:
                fingerprint = fingerprint_of({name: file.sha256 for name, file in files.items()})
            if self.has(draft.kind, fingerprint):
                return fingerprint
            manifest = Manifest(draft.kind, fingerprint, files, metadata)
            if not self.is_local:
                self._upload(draft.folder, manifest)
            target = self._drafts(draft.kind) / _checked(fingerprint)
            (draft.folder / MANIFEST).write_bytes(manifest.dump())
            _move_into_place(draft.folder, target)
        return fingerprint

    def _upload(self, folder: Path, manifest: Manifest) -> None:
        base = self._at(manifest.kind, manifest.fingerprint)
        with self._remote_errors(f"cannot store {manifest.kind} in {self.url}"):
            for name, file in manifest.files.items():
                target = f"{base}/{file.sha256}/{name}"
                self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(folder / name), target)
            self._fs.pipe_file(f"{base}/{MANIFEST}", manifest.dump())

    def _download(self, manifest: Manifest, folder: Path) -> None:
        base = self._at(manifest.kind, manifest.fingerprint)
        with self.create(manifest.kind) as draft:
            for name, file in manifest.files.items():
                source, target = f"{base}/{file.sha256}/{name}", draft.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with self._remote_errors(f"cannot read {source} from {self.url}"):
                    self._fs.get_file(source, str(target))
                if (got := _stored(target)) != file:
                    raise StoreError(
                        f"{manifest.kind} {manifest.fingerprint} in {self.url} is damaged: {name} "
                        f"has {got.size} bytes and SHA-256 {got.sha256[:16]}… instead of "
                        f"{file.size} and {file.sha256[:16]}…; remove it there and store it again"
                    )
            (draft.folder / MANIFEST).write_bytes(manifest.dump())
            _move_into_place(draft.folder, folder)

    @contextmanager
    def _remote_errors(self, what: str) -> Iterator[None]:
        """Remote file systems raise errors of their client library, OSError or not."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                raise StoreError(_disk_sentence(what, error)) from error
            detail = " ".join(str(error).split()) or type(error).__name__
            raise StoreError(f"{what}: {detail}; check the store and its credentials") from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _checked(name: str) -> str:
    """Refuse names that would lead out of the store."""
    if not _NAME.fullmatch(name):
        raise NotFoundError(f"{name!r} cannot name an artefact; use letters, digits, '.', '_', '-'")
    return name


def _files_of(folder: Path) -> dict[str, Path]:
    """Path inside the folder → file, sorted, without the folder's own manifest."""
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder} to store; check the path")
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    files.pop(MANIFEST, None)
    if not files:
        raise StoreError(f"the folder {folder} is empty; there is nothing to store")
    return dict(sorted(files.items()))


def _stored(path: Path) -> StoredFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(digest, file.tell())


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        # os.link does not follow symbolic links, of which hub caches are made.
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def _move_into_place(draft: Path, target: Path) -> None:
    """Rename the draft to its place, unless somebody else was faster with the whole artefact."""
    while True:
        try:
            draft.rename(target)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            if _is_cached(target):
                return
            # Damaged: move it out of the way in one step, readers keep their open files.
            broken = target.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")
            target.rename(broken)
            shutil.rmtree(broken, ignore_errors=True)
        else:
            return


def _is_cached(folder: Path) -> bool:
    try:
        manifest = Manifest.load((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))
    except (FileNotFoundError, StoreError):
        return False
    return _wrong_size(folder, manifest) is None


def _wrong_size(folder: Path, manifest: Manifest) -> str | None:
    for name, file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != file.size:
            return f"{name} has {size} bytes instead of {file.size}"
    return None


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove drafts of processes that were killed; a living one touches its files more often."""
    for draft in parent.glob(f"{DRAFT_PREFIX}*"):
        try:
            touched = max(path.stat().st_mtime for path in (draft, *draft.rglob("*")))
        except FileNotFoundError:
            continue  # its owner is publishing it right now
        if time.time() - touched > ABANDONED_AFTER_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(_disk_sentence(what, error)) from error


def _disk_sentence(what: str, error: OSError) -> str:
    advice = {
        errno.ENOSPC: "free some space or point KDNAS_STORE elsewhere",
        errno.EDQUOT: "free some of the quota or point KDNAS_STORE elsewhere",
        errno.EROFS: "point KDNAS_STORE to a file system that can be written",
    }.get(error.errno or 0, "check KDNAS_STORE and its permissions")
    return f"{what}: {error.strerror or ' '.join(str(error).split())}; {advice}"
