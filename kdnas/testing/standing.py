"""Work that stands still after a checkpoint, so that a kill meets it there and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from kdnas.distill.checkpoint import Checkpoints


def stand_after_checkpoint(step: int) -> None:
    """Change this process: it goes no further than its first checkpoint from a step on."""
    usual = Checkpoints.save

    def save(checkpoints: Checkpoints, state: Mapping[str, Any], made: int) -> None:
        usual(checkpoints, state, made)
        if made >= step:
            threading.Event().wait()

    Checkpoints.save = save  # type: ignore[method-assign,assignment]
