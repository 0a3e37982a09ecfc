"""Checkpoints of a full distillation: whole or not there at all, in a folder or behind a URL."""

from __future__ import annotations

import io
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from kdnas.distill.reached_files import ReachedFiles
from kdnas.errors import RequestError, SpecError, StoreError
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.urls import refuse_password

FORMAT = 3
_STATE, _MARKER = "state.pt", "checkpoint.json"
_NAME = re.compile(r"step-(\d{9,})")
_FORMER = "checkpoints"  # the subfolder in which format 1 kept them


class Checkpoints:
    """The checkpoints of one run, at any place that fsspec reaches.

    A checkpoint is the folder ``step-N`` with its state and a marker, which is written last: a
    kill in between leaves a folder without a whole marker, which counts for nothing, and the one
    before it. Only one process writes at a time.

    Args:
        url: folder of the run: a path, or an fsspec URL such as ``s3://bucket/runs/ID``.
        reach: how a folder of this machine is opened; all that is done there raises RequestError
            where it leads out.

    Raises:
        StoreError: the URL's protocol is unknown, or its package is not installed.
        RequestError: it is a chain of URLs where not everything is in reach: nobody can say where
            that leads.
    """

    def __init__(self, url: str, reach: Reach = ANYWHERE) -> None:
        if reach.limited and "::" in url:
            raise RequestError(f"checkpoints cannot be kept at {url!r}: it is a chain of URLs")
        self.url, self.reach = url, reach
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"checkpoints cannot be kept at {url!r} ({_short(error)}); give training."
                "checkpoints a folder or another URL"
            ) from None
        self._root: str = root.rstrip("/")
        if reach.limited and isinstance(self._fs, LocalFileSystem):
            self._fs = ReachedFiles(reach)

    @property
    def in_this_process(self) -> bool:
        """Whether they live in the memory of this process, where no other one reaches them."""
        protocols = self._fs.protocol
        return "memory" in ((protocols,) if isinstance(protocols, str) else protocols)

    def save(self, state: Mapping[str, Any], step: int) -> None:
        """Write a checkpoint and remove older ones; one of this step that is whole is kept.

        Args:
            state: tensors, numbers and lists; what the next step depends on.
            step: steps made so far.

        Raises:
            StoreError: the place is full or not writable; older checkpoints are still there.
        """
        try:
            complete = self._complete()
            if step not in complete:
                for abandoned in self._steps(self._root) - complete.keys():
                    self._remove(self._folder(abandoned))
                self._write(self._folder(step), state, step)
        except RequestError:
            raise
        except Exception as error:
            # On a full disk torch raises a RuntimeError about positions in its archive.
            reason = getattr(error, "strerror", None) or (
                "the disk took only a part of it"
                if isinstance(error, RuntimeError)
                else _short(error)
            )
            raise StoreError(
                f"the checkpoint of step {step} could not be written to {self.url} ({reason}); "
                "free space there or make it writable, and resume"
            ) from error
        with self._removing():
            for old in complete:
                if old < step:
                    self._remove(self._folder(old))

    def try_writing(self) -> None:
        """Write a small file and remove it.

        Raises:
            StoreError: the place is full, not writable or out of reach.
        """
        probe = f"{self._root}/.probe-{os.getpid()}"
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            with self._fs.open(probe, "wb") as stream:
                stream.write(b"kdnas")
            self._fs.rm_file(probe)
        except RequestError:
            raise
        except Exception as error:
            reason = getattr(error, "strerror", None) or _short(error)
            raise StoreError(
                f"checkpoints cannot be written to {self.url} ({reason}); give training."
                "checkpoints a folder or a URL that can be written"
            ) from error

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending.

        Raises:
            StoreError: the place is out of reach.
        """
        with self._reading():
            return sorted(self._complete())

    def load(self) -> dict[str, Any] | None:
        """Load the newest complete checkpoint; None if there is none.

        Raises:
            StoreError: it was written by another version, or is damaged, or is out of reach.
        """
        with self._reading():
            markers = self._complete()
            former = not markers and self._steps(f"{self._root}/{_FORMER}")
            found = 1 if former else markers[max(markers)] if markers else None
        if found is None:
            return None
        import torch  # here, so that the service can remove checkpoints without it

        if found != FORMAT:
            raise StoreError(
                f"the newest checkpoint under {self.url} has format {found}, this program reads "
                f"{FORMAT}; resume with the version that wrote it, or start the distillation anew"
            )
        with (
            self._reading(),
            self._fs.open(f"{self._folder(max(markers))}/{_STATE}", "rb") as stream,
        ):
            state: dict[str, Any] = torch.load(stream, weights_only=True, map_location="cpu")
        return state

    def take_over(self, former: Checkpoints) -> None:
        """Go on from the newest checkpoint of another place, unless there is one here.

        Raises:
            StoreError: one of the two places is out of reach.
        """
        steps = former.steps()
        if steps and not self.steps():
            state = former.load()
            assert state is not None
            self.save(state, steps[-1])
        former.remove()

    def remove(self) -> None:
        """Remove all checkpoints.

        Raises:
            StoreError: the place does not let them be removed.
        """
        with self._removing():
            self._remove(self._root)

    def _folder(self, step: int) -> str:
        return f"{self._root}/step-{step:09d}"

    def _steps(self, root: str) -> set[int]:
        """Steps of all folders of checkpoints; no glob, since a path may hold its signs."""
        self._fs.invalidate_cache()
        try:
            paths = self._fs.ls(root, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return set()
        names = [posixpath.basename(str(path).rstrip("/")) for path in paths]
        return {int(found[1]) for name in names if (found := _NAME.fullmatch(name))}

    def _complete(self) -> dict[int, Any]:
        """Step → format of each checkpoint with a whole marker."""
        found = {}
        for step in self._steps(self._root):
            with suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # not whole
                about = json.loads(self._fs.cat_file(f"{self._folder(step)}/{_MARKER}"))
                found[step] = about["format"]
        return found

    def _write(self, target: str, state: Mapping[str, Any], step: int) -> None:
        import torch

        try:
            self._fs.makedirs(target, exist_ok=True)
            with self._fs.open(f"{target}/{_STATE}", "wb") as stream:
                torch.save(dict(state), stream)
                _flush(stream)
            with self._fs.open(f"{target}/{_MARKER}", "wb") as stream:
                stream.write(json.dumps({"format": FORMAT, "step": step}).encode())
                _flush(stream)
        except BaseException:
            with suppress(Exception):  # without a whole marker it counts for nothing anyway
                self._remove(target)
            raise

    def _remove(self, folder: str) -> None:
        """Remove a folder, its marker first, so that no half of it looks whole."""
        marker = f"{folder}/{_MARKER}"
        if self._fs.exists(marker):
            self._fs.rm_file(marker)
        if self._fs.exists(folder):
            self._fs.rm(folder, recursive=True)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """File systems raise errors of their client library, and torch those of its archives."""
        try:
            yield
        except RequestError:
            raise
        except Exception as error:
            raise StoreError(
                f"the newest checkpoint under {self.url} cannot be read ({_short(error)}); if it "
                "is damaged, remove its folder to go on from the one before it, or from the "
                "beginning"
            ) from error

    @contextmanager
    def _removing(self) -> Iterator[None]:
        try:
            yield
        except RequestError:
            raise
        except Exception as error:
            raise StoreError(
                f"old checkpoints under {self.url} could not be removed ({_short(error)}); make "
                "the folder writable, or remove them yourself"
            ) from error


def absolute_place(url: str) -> str:
    """Return a path as an absolute one, so that it means the same wherever a run is resumed."""
    return url if "://" in url else str(expanded(url).absolute())


def place_below(url: str, name: str) -> str:
    """Return a folder inside another; in a chain of URLs the first one that has a path goes on."""
    parts = url.split("::")
    at = next((i for i, part in enumerate(parts) if "://" in part), len(parts) - 1)
    parts[at] = f"{parts[at].rstrip('/')}/{name}"
    return "::".join(parts)


def check_place(url: str, reach: Reach = ANYWHERE) -> None:
    """Make sure that checkpoints can be written, before hours are spent.

    Raises:
        RequestError: it is a folder out of reach.
        SpecError: the URL is of no use or holds a password, or nothing can be written there.
    """
    refuse_password(url, "training.checkpoints")
    try:
        Checkpoints(url, reach).try_writing()
    except StoreError as error:
        raise SpecError(str(error)) from error


def _flush(stream: Any) -> None:
    """Have a local file on the disk before the marker says so."""
    stream.flush()
    with suppress(AttributeError, io.UnsupportedOperation):  # no file of this machine
        os.fsync(stream.fileno())


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
