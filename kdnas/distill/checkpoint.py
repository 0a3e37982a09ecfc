"""Checkpoints of a full distillation: whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from kdnas.errors import StoreError

FORMAT = 1


def save_checkpoint(folder: Path, state: Mapping[str, Any], step: int) -> Path:
    """Write ``step-N`` under a folder and remove older ones; a kill leaves the older one whole.

    Args:
        folder: where the run keeps its checkpoints.
        state: tensors, numbers and lists; what the next step depends on.
        step: steps made so far.

    Raises:
        StoreError: the disk is full or not writable; older checkpoints are still there.
    """
    target = folder / f"step-{step:09d}"
    draft = folder / f".draft-{os.getpid()}"
    try:
        for abandoned in folder.glob(".draft-*"):  # only one process writes here at a time
            shutil.rmtree(abandoned, ignore_errors=True)
        draft.mkdir(parents=True)
        with (draft / "state.pt").open("wb") as stream:
            torch.save(dict(state), stream)
            stream.flush()
            os.fsync(stream.fileno())
        with (draft / "checkpoint.json").open("w") as text:
            json.dump({"format": FORMAT, "step": step}, text)
            text.flush()
            os.fsync(text.fileno())
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        # On a full disk torch raises a RuntimeError about positions in its archive.
        reason = getattr(error, "strerror", None) or "the disk took only a part of it"
        raise StoreError(
            f"the checkpoint of step {step} could not be written to {folder} ({reason}); free "
            "space there and resume"
        ) from None
    for old in checkpoints(folder)[:-1]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """List the complete checkpoints under a folder, oldest first."""
    return sorted(p for p in folder.glob("step-*") if (p / "checkpoint.json").is_file())


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Load the newest complete checkpoint under a folder; None if there is none.

    Raises:
        StoreError: it was written by another version, or is damaged.
    """
    found = checkpoints(folder)
    if not found:
        return None
    try:
        about = json.loads((found[-1] / "checkpoint.json").read_text())
    except (OSError, ValueError) as error:
        raise _unreadable(found[-1], error) from None
    if about["format"] != FORMAT:
        raise StoreError(
            f"checkpoint {found[-1]} has format {about['format']}, this program reads {FORMAT}; "
            "resume with the version that wrote it"
        )
    try:
        state: dict[str, Any] = torch.load(found[-1] / "state.pt", weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
        raise _unreadable(found[-1], error) from None
    return state


def _unreadable(checkpoint: Path, error: Exception) -> StoreError:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return StoreError(
        f"checkpoint {checkpoint} cannot be read ({reason}); remove that folder to start again "
        "from the checkpoint before it, or from the beginning"
    )
