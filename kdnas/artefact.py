"""An artefact on a disk: its manifest, its files, and how it comes to its place in one step."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kdnas.errors import StoreError

MANIFEST = "manifest.json"
DRAFT_PREFIX = ".draft-"
ABANDONED_AFTER_SECONDS = 2 * 24 * 3600


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


def files_of(folder: Path) -> dict[str, Path]:
    """Path inside the folder → file, sorted, without the folder's own manifest."""
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder} to store; check the path")
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    files.pop(MANIFEST, None)
    if not files:
        raise StoreError(f"the folder {folder} is empty; there is nothing to store")
    return dict(sorted(files.items()))


def stored_file(path: Path) -> StoredFile:
    """Read a file once for its checksum and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return StoredFile(digest, file.tell())


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` the same file where the disk allows it, else a copy."""
    try:
        # os.link does not follow symbolic links, of which hub caches are made.
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def move_into_place(draft: Path, target: Path) -> None:
    """Rename the draft to its place, unless somebody else was faster with the whole artefact."""
    while True:
        try:
            draft.rename(target)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            if is_whole(target):
                return
            # Damaged: move it out of the way in one step, readers keep their open files.
            broken = target.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")
            with suppress(FileNotFoundError):  # somebody else did
                target.rename(broken)
            shutil.rmtree(broken, ignore_errors=True)
        else:
            return


def is_whole(folder: Path) -> bool:
    """Whether a folder has a manifest, and all files in it in their size."""
    try:
        manifest = Manifest.load((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))
    except (FileNotFoundError, StoreError):
        return False
    return wrong_size(folder, manifest) is None


def wrong_size(folder: Path, manifest: Manifest) -> str | None:
    """Say what is missing or of another size than the manifest says; None if nothing is."""
    for name, file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != file.size:
            return f"{name} has {size} bytes instead of {file.size}"
    return None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{DRAFT_PREFIX}{uuid.uuid4().hex}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def save_array(path: Path, values: NDArray[Any]) -> None:
    """Write an array; np.save to a file hides the reason of a failed write."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    path.write_bytes(buffer.getbuffer())


def remove_abandoned(parent: Path) -> None:
    """Remove drafts of processes that were killed; a living one touches its files more often."""
    for draft in parent.glob(f"{DRAFT_PREFIX}*"):
        try:
            touched = max(path.stat().st_mtime for path in (draft, *draft.rglob("*")))
        except FileNotFoundError:
            continue  # its owner is publishing it right now
        if time.time() - touched > ABANDONED_AFTER_SECONDS:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn a disk's errors into sentences that begin with ``what``.

    Raises:
        StoreError: for any OSError of the body.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(disk_sentence(what, error)) from error


def disk_sentence(what: str, error: OSError) -> str:
    """Say what a disk said, and what to do about it."""
    advice = {
        errno.ENOSPC: "free some space or point KDNAS_STORE elsewhere",
        errno.EDQUOT: "free some of the quota or point KDNAS_STORE elsewhere",
        errno.EROFS: "point KDNAS_STORE to a file system that can be written",
    }.get(error.errno or 0, "check KDNAS_STORE and its permissions")
    return f"{what}: {error.strerror or ' '.join(str(error).split())}; {advice}"
