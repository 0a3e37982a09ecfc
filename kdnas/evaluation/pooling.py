"""Sentence embeddings: how the states of a text's tokens become one vector."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kdnas.errors import TeacherError, unknown_name
from kdnas.models.sentence import MODULES_FILE


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    weights = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def _first(states: Tensor, mask: Tensor) -> Tensor:
    return states[torch.arange(len(mask)), mask.argmax(1)]  # padding may come first


def _max(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(~mask.bool().unsqueeze(-1), -torch.inf).amax(1)


MODES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "cls": _first,
    "max": _max,
    "mean_sqrt_len_tokens": _mean,  # another length, but the same direction
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a model makes a sentence embedding, up to its length.

    Attributes:
        modes: names of :data:`MODES`; of several, the vectors are joined.
        configured: whether the model's folder says so; otherwise it is the mean.
    """

    modes: tuple[str, ...] = ("mean",)
    configured: bool = False

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """Pool states (B, T, D) where the mask (B, T) is 1: (B, D), or more for several modes."""
        return torch.cat([MODES[mode](states, mask) for mode in self.modes], dim=-1)


def read_pooling(folder: Path, ref: str) -> Pooling:
    """Read the pooling of a model as sentence-transformers keeps it; the mean if it keeps none.

    A module that normalises vectors changes no cosine and is passed over.

    Args:
        folder: of the model.
        ref: how the user named it.

    Raises:
        TeacherError: the folder asks for a module or a mode that is not known here.
    """
    if not (folder / MODULES_FILE).is_file():
        return Pooling()
    try:
        modules = json.loads((folder / MODULES_FILE).read_text("utf-8"))
        kinds = {str(module["type"]).rpartition(".")[2]: module["path"] for module in modules}
        strange = kinds.keys() - {"Transformer", "Pooling", "Normalize"}
        if strange:
            raise TeacherError(
                f"the sentence embeddings of model {ref!r} need the module {min(strange)}, which "
                "is not supported; give a model of Transformer, Pooling and Normalize alone"
            )
        if "Pooling" not in kinds:
            return Pooling()
        config = json.loads((folder / kinds["Pooling"] / "config.json").read_text("utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        raise TeacherError(
            f"the pooling configuration of model {ref!r} in {folder / MODULES_FILE} cannot be "
            "read; copy the model again"
        ) from None
    modes = _modes(config)
    unknown = next((mode for mode in modes if mode not in MODES), None)
    if unknown is not None or not modes:
        raise TeacherError(f"model {ref!r}: {unknown_name('pooling', unknown, MODES)}")
    return Pooling(modes, configured=True)


def _modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Read one name or several, or the flags that older versions wrote."""
    named = config.get("pooling_mode")
    if named is not None:
        return (named,) if isinstance(named, str) else tuple(named)
    flags = (key for key, on in config.items() if key.startswith("pooling_mode_") and on)
    return tuple(
        key.removeprefix("pooling_mode_").replace("cls_token", "cls").replace("_tokens", "")
        if "sqrt" not in key
        else "mean_sqrt_len_tokens"
        for key in flags
    )
