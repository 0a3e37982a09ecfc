"""Content-addressed artefacts (teachers, corpora, checkpoints, models) at any fsspec URL.

An artefact is a folder of files of one kind, named by a fingerprint. Its ``manifest.json`` lists
every file with size and SHA-256 and is written last, so an artefact without one does not exist.

On a local file system an artefact lies at ``<root>/<kind>/<fingerprint>/`` and appears whole, by
the renaming of a draft folder. Anywhere else each file lies below its own SHA-256, so two writers
of one fingerprint never mix their files, and the manifest decides whose are read.
"""

from __future__ import annotations

import math
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec
from filelock import FileLock

from kdnas.artefact import (
    DRAFT_PREFIX,
    MANIFEST,
    Manifest,
    disk_errors,
    disk_sentence,
    files_of,
    is_whole,
    link_or_copy,
    move_into_place,
    remove_abandoned,
    stored_file,
    write_atomically,
    wrong_size,
)
from kdnas.errors import DISK_ERRORS, KdnasError, NotFoundError, StoreError
from kdnas.in_use import REMOVED_PREFIX, note_use
from kdnas.records import fingerprint as fingerprint_of
from kdnas.settings import Settings

MADE_OF = "made_of"
"""Key of an artefact's metadata: names of those that it can be made again from."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


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
            for name, path in files_of(folder).items():
                target = draft.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                link_or_copy(path, target)
            return draft.publish(fingerprint, metadata)

    @contextmanager
    def create(self, kind: str) -> Iterator[Draft]:
        """Give a folder to build an artefact in; what is not published is removed.

        Raises:
            StoreError: the disk is full or read-only.
        """
        parent = self._drafts(kind)
        with disk_errors(f"cannot write to {parent}"):
            parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(parent)
            folder = parent / f"{DRAFT_PREFIX}{uuid.uuid4().hex}"
            folder.mkdir()
        try:
            yield Draft(self, kind, folder)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise StoreError(disk_sentence(f"cannot write to {parent}", error)) from error
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def has(self, kind: str, fingerprint: str) -> bool:
        """True if the artefact is there, whole; in a local store it counts as used then.

        Raises:
            StoreError: the store is out of reach.
        """
        with self._errors(f"cannot reach the store {self.url}"):
            if self.is_local:
                return note_use(Path(self._at(kind, fingerprint)) / MANIFEST)
            try:  # fsspec's own exists() takes every error for a no
                self._fs.info(f"{self._at(kind, fingerprint)}/{MANIFEST}")
            except FileNotFoundError:
                return False
            return True

    def manifest(self, kind: str, fingerprint: str) -> Manifest:
        """Read what an artefact consists of, and its metadata.

        Raises:
            NotFoundError: there is no such artefact.
            StoreError: its manifest is damaged.
        """
        path = f"{self._at(kind, fingerprint)}/{MANIFEST}"
        with self._errors(f"cannot read {self._told(path)}"):
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

        It is kept from being cleaned away as long as this process lives (``kdnas.in_use``). A local
        store's own folder is returned after its files' sizes are checked. From a remote
        store every file is downloaded once and verified by its SHA-256; other processes that ask
        for it at the same time wait.

        Raises:
            NotFoundError: there is no such artefact.
            StoreError: a file does not verify (named), or cannot be written.
        """
        if self.is_local:
            folder = Path(self._at(kind, fingerprint))
            with disk_errors(f"cannot read {folder}"):
                note_use(folder / MANIFEST, hold=True)
            manifest = self.manifest(kind, fingerprint)
            if problem := wrong_size(folder, manifest):
                raise StoreError(f"{folder} is damaged: {problem}; remove it and store it again")
            return folder
        folder = self.cache_dir / kind / _checked(fingerprint)
        if note_use(folder / MANIFEST, hold=True) and is_whole(folder):
            return folder
        with disk_errors(f"cannot write to {folder}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.parent / f".{fingerprint}.lock"):
                if not is_whole(folder):
                    self._download(self.manifest(kind, fingerprint), folder)
                note_use(folder / MANIFEST, hold=True)
        return folder

    def remember(self, kind: str, key: str, fingerprint: str) -> None:
        """Note that ``key`` (a name for how an artefact was made) led to this artefact.

        Raises:
            StoreError: the note cannot be written.
        """
        path = self._note(kind, key)
        with self._errors(f"cannot write {self._told(path)}"):
            if self.is_local:
                write_atomically(Path(path), fingerprint.encode())
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, fingerprint.encode())

    def recall(self, kind: str, key: str) -> str | None:
        """Return the artefact that ``key`` led to, or None if there is none (any more)."""
        path = self._note(kind, key)
        with self._errors(f"cannot read {self._told(path)}"):
            try:
                fingerprint: str = self._fs.cat_file(path).decode()
            except FileNotFoundError:
                return None
        return fingerprint if self.has(kind, fingerprint) else None

    def write_file(self, kind: str, name: str, file: str, data: bytes) -> None:
        """Write ``<kind>/<name>/<file>``, a file that is no part of an artefact and may change.

        Raises:
            StoreError: it cannot be written.
        """
        path = f"{self._at(kind, name)}/{_checked(file)}"
        with self._errors(f"cannot write {self._told(path)}"):
            if self.is_local:
                write_atomically(Path(path), data)
            else:
                self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(path, data)

    def read_file(self, kind: str, name: str, file: str) -> bytes | None:
        """Return what :meth:`write_file` wrote last, by whomever; None if there is no such file.

        Raises:
            StoreError: the store is out of reach.
        """
        path = f"{self._at(kind, name)}/{_checked(file)}"
        with self._errors(f"cannot read {self._told(path)}"):
            try:
                data: bytes = self._fs.cat_file(path)
            except FileNotFoundError:
                return None
        return data

    def file_size(self, kind: str, name: str, file: str) -> int | None:
        """Return the bytes of a file of :meth:`write_file`; None if there is no such file.

        Raises:
            StoreError: the store is out of reach.
        """
        path = f"{self._at(kind, name)}/{_checked(file)}"
        with self._errors(f"cannot reach the store {self.url}"):
            self._fs.invalidate_cache(path.rpartition("/")[0])  # others write here as well
            try:
                return int(self._fs.size(path))
            except FileNotFoundError:
                return None

    def remove_files(self, kind: str, name: str) -> None:
        """Remove all files of :meth:`write_file` below ``<kind>/<name>``, if there are any.

        Raises:
            StoreError: the store is out of reach, or does not allow it.
        """
        folder = self._at(kind, name)
        with self._errors(f"cannot remove {folder} in {self.url}"):
            self._fs.invalidate_cache(folder)
            with suppress(FileNotFoundError):
                self._fs.rm(folder, recursive=True)

    def folders(self, kind: str) -> list[Path]:
        """Folders of a kind's artefacts on this machine, whole or damaged.

        They are the store's own, if it is local, else those that were fetched from it. What is a
        draft, or was taken away, is not among them.
        """
        found = self._drafts(kind).glob("*/")
        return sorted(folder for folder in found if _NAME.fullmatch(folder.name))

    def remains(self, kind: str) -> list[Path]:
        """Drafts of a kind on this machine, and what was taken away and not deleted yet."""
        parent = self._drafts(kind)
        return sorted([*parent.glob(f"{DRAFT_PREFIX}*"), *parent.glob(f"{REMOVED_PREFIX}*")])

    def notes(self, kind: str) -> dict[str, str]:
        """Read what :meth:`remember` has noted in a local store: key → artefact."""
        found = {}
        for path in Path(self._root).joinpath(f"{_checked(kind)}-keys").glob("*"):
            if _NAME.fullmatch(path.name):
                with suppress(FileNotFoundError):  # somebody else has just removed it
                    found[path.name] = path.read_text("utf-8", "replace")
        return found

    def note_file(self, kind: str, key: str) -> Path:
        """Where a local store keeps a note."""
        return Path(self._note(kind, key))

    def local_folder(self, kind: str, name: str) -> Path | None:
        """Where ``<kind>/<name>`` is on this machine; None in a store elsewhere."""
        return Path(self._at(kind, name)) if self.is_local else None

    def names(self, kind: str) -> list[str]:
        """Names of all that lies directly below a kind, wherever the store is.

        Raises:
            StoreError: the store is out of reach.
        """
        folder = f"{self._root}/{_checked(kind)}"
        with self._errors(f"cannot list {folder} in {self.url}"):
            self._fs.invalidate_cache(folder)
            try:
                found = self._fs.ls(folder, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        named = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in named if _NAME.fullmatch(name))

    def extent(self, kind: str, name: str) -> tuple[int, float | None]:
        """Bytes of all below ``<kind>/<name>``, and when it last changed (seconds since 1970).

        The moment is None where the store does not say.

        Raises:
            StoreError: the store is out of reach.
        """
        folder = self._at(kind, name)
        with self._errors(f"cannot read {folder} in {self.url}"):
            found = self._fs.find(folder, detail=True)
        return (
            sum(int(about.get("size") or 0) for about in found.values()),
            max(map(_changed, found.values()), key=lambda moment: moment or math.inf, default=0.0),
        )

    def _at(self, kind: str, fingerprint: str) -> str:
        return f"{self._root}/{_checked(kind)}/{_checked(fingerprint)}"

    def _note(self, kind: str, key: str) -> str:
        return f"{self._root}/{_checked(kind)}-keys/{_checked(key)}"

    def _told(self, path: str) -> str:
        """A path in a sentence."""
        return path if self.is_local else f"{path} in {self.url}"

    def _drafts(self, kind: str) -> Path:
        return (Path(self._root) if self.is_local else self.cache_dir) / _checked(kind)

    def _publish(self, draft: Draft, fingerprint: str | None, metadata: dict[str, Any]) -> str:
        with disk_errors(f"cannot store {draft.kind} in {self.url}"):
            files = {name: stored_file(path) for name, path in files_of(draft.folder).items()}
            if fingerprint is None:
                fingerprint = fingerprint_of({name: file.sha256 for name, file in files.items()})
            if self.has(draft.kind, fingerprint):
                return fingerprint
            manifest = Manifest(draft.kind, fingerprint, files, metadata)
            if not self.is_local:
                self._upload(draft.folder, manifest)
            target = self._drafts(draft.kind) / _checked(fingerprint)
            (draft.folder / MANIFEST).write_bytes(manifest.dump())
            move_into_place(draft.folder, target)
        return fingerprint

    def _upload(self, folder: Path, manifest: Manifest) -> None:
        base = self._at(manifest.kind, manifest.fingerprint)
        with self._errors(f"cannot store {manifest.kind} in {self.url}"):
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
                with self._errors(f"cannot read {source} from {self.url}"):
                    self._fs.get_file(source, str(target))
                if (got := stored_file(target)) != file:
                    raise StoreError(
                        f"{manifest.kind} {manifest.fingerprint} in {self.url} is damaged: {name} "
                        f"has {got.size} bytes and SHA-256 {got.sha256[:16]}… instead of "
                        f"{file.size} and {file.sha256[:16]}…; remove it there and store it again"
                    )
            (draft.folder / MANIFEST).write_bytes(manifest.dump())
            move_into_place(draft.folder, folder)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn what a file system raises into sentences that begin with ``what``.

        Remote ones raise errors of their client library, OSError or not.
        """
        try:
            yield
        except KdnasError:
            raise
        except Exception as error:
            of_a_disk = isinstance(error, OSError) and (self.is_local or error.errno in DISK_ERRORS)
            if isinstance(error, OSError) and of_a_disk:
                raise StoreError(disk_sentence(what, error)) from error
            detail = " ".join(str(error).split()) or type(error).__name__
            raise StoreError(f"{what}: {detail}; check the store and its credentials") from error


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _changed(about: Mapping[str, Any]) -> float | None:
    """When a file of a file system changed; each has a name and a form of its own for that."""
    for word in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = about.get(word)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).timestamp()
    return None


def _checked(name: str) -> str:
    """Refuse names that would lead out of the store."""
    if not _NAME.fullmatch(name):
        raise NotFoundError(f"{name!r} cannot name an artefact; use letters, digits, '.', '_', '-'")
    return name
