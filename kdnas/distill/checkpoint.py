"""Checkpoints of a full distillation: whole or not there at all, in a folder or behind a URL."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from pickle import UnpicklingError
from typing import Any

import fsspec
import torch

from kdnas.errors import StoreError

FORMAT = 2
_STATE, _MARKER = "state.pt", "checkpoint.json"


class Checkpoints:
    """The checkpoints of one run, at any place that fsspec reaches.

    A checkpoint is the folder ``step-N`` with its state and a marker, which is written last: a
    kill in between leaves a folder without one, which counts for nothing, and the one before it.
    Only one process writes at a time.

    Args:
        url: folder of the run: a path, or an fsspec URL such as ``s3://bucket/runs/ID``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._root = fsspec.core.url_to_fs(url)

    def save(self, state: Mapping[str, Any], step: int) -> None:
        """Write a checkpoint and remove older ones.

        Args:
            state: tensors, numbers and lists; what the next step depends on.
            step: steps made so far.

        Raises:
            StoreError: the place is full or not writable; older checkpoints are still there.
        """
        target = self._folder(step)
        try:
            self._remove_abandoned()
            if self._fs.exists(target):
                self._fs.rm(target, recursive=True)
            self._fs.makedirs(target, exist_ok=True)
            with self._fs.open(posixpath.join(target, _STATE), "wb") as stream:
                torch.save(dict(state), stream)
            marker = json.dumps({"format": FORMAT, "step": step})
            self._fs.pipe_file(posixpath.join(target, _MARKER), marker.encode())
        except Exception as error:
            self._discard(target)
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
        for old in self.steps()[:-1]:
            self._discard(self._folder(old))

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        self._fs.invalidate_cache()
        found = self._fs.glob(posixpath.join(self._root, "step-*", _MARKER))
        return sorted(int(path.split("/")[-2].removeprefix("step-")) for path in found)

    def load(self) -> dict[str, Any] | None:
        """Load the newest complete checkpoint; None if there is none.

        Raises:
            StoreError: it was written by another version, or is damaged, or is out of reach.
        """
        try:
            steps = self.steps()
            if not steps:
                return None
            newest = self._folder(steps[-1])
            about = json.loads(self._fs.cat_file(posixpath.join(newest, _MARKER)))
            if about["format"] != FORMAT:
                raise StoreError(
                    f"checkpoint {newest} has format {about['format']}, this program reads "
                    f"{FORMAT}; resume with the version that wrote it"
                )
            with self._fs.open(posixpath.join(newest, _STATE), "rb") as stream:
                state: dict[str, Any] = torch.load(stream, weights_only=True, map_location="cpu")
        except (OSError, ValueError, KeyError, RuntimeError, EOFError, UnpicklingError) as error:
            raise StoreError(
                f"the newest checkpoint under {self.url} cannot be read ({_short(error)}); remove "
                "its folder to go on from the one before it, or from the beginning"
            ) from error
        return state

    def remove(self) -> None:
        """Remove all checkpoints."""
        self._discard(self._root)

    def _folder(self, step: int) -> str:
        return posixpath.join(self._root, f"step-{step:09d}")

    def _remove_abandoned(self) -> None:
        complete = {self._folder(step) for step in self.steps()}
        for folder in self._fs.glob(posixpath.join(self._root, "step-*")):
            if folder not in complete:
                self._discard(folder)

    def _discard(self, folder: str) -> None:
        if self._fs.exists(folder):
            self._fs.rm(folder, recursive=True)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
