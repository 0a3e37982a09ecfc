"""Sentence embeddings: how the states of a text's tokens become one vector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from kdnas.errors import TeacherError, unknown_name
from kdnas.models.sentence import (
    DENSE,
    MODULES_FILE,
    dense_behind_pooling,
    linear_pooling,
    modes_of,
    module_kind,
    read_dense,
    read_modules,
)
from kdnas.models.teacher import TeacherHandle


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    weights = mask.unsqueeze(-1).to(states.dtype)  # (B, T, 1)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def _first(states: Tensor, mask: Tensor) -> Tensor:
    return states[torch.arange(len(mask)), mask.argmax(1)]  # padding may come first


def _last(states: Tensor, mask: Tensor) -> Tensor:
    places = torch.arange(mask.shape[1], device=mask.device) * mask
    return states[torch.arange(len(mask)), places.argmax(1)]


def _weighted_mean(states: Tensor, mask: Tensor) -> Tensor:
    return _mean(states, mask * torch.arange(1, mask.shape[1] + 1, device=mask.device))


def _max(states: Tensor, mask: Tensor) -> Tensor:
    return states.masked_fill(~mask.bool().unsqueeze(-1), -torch.inf).amax(1)


MODES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "cls": _first,
    "lasttoken": _last,
    "weightedmean": _weighted_mean,  # by position
    "max": _max,
    "mean_sqrt_len_tokens": _mean,  # another length, but the same direction
}


@dataclass(frozen=True, slots=True)
class Pooling:
    """How a model makes a sentence embedding, up to its length.

    Attributes:
        modes: names of :data:`MODES`; of several, the vectors are joined.
        configured: whether the model's folder says so; otherwise it is the mean.
        projection: linear map behind it, (D, E); None if there is none.
    """

    modes: tuple[str, ...] = ("mean",)
    configured: bool = False
    projection: Tensor | None = field(default=None, compare=False)

    def __call__(self, states: Tensor, mask: Tensor) -> Tensor:
        """Embed states (B, T, D) where the mask (B, T) is 1: (B, D), or more for several modes.

        With a projection: (B, E).
        """
        pooled = torch.cat([MODES[mode](states, mask) for mode in self.modes], dim=-1)
        return pooled if self.projection is None else pooled @ self.projection.to(pooled)

    def __str__(self) -> str:
        through = ""
        if self.projection is not None:
            through = f", then a linear map to {self.projection.shape[1]} dimensions"
        return "+".join(self.modes) + through

    @property
    def variant(self) -> str:
        """What of it the fingerprint of a model does not tell; empty for the mean alone."""
        parts = [] if self.modes == Pooling().modes else [f"pooling {' '.join(self.modes)}"]
        if self.projection is not None:
            content = self.projection.contiguous().numpy().tobytes()
            parts.append(f"projection {hashlib.sha256(content).hexdigest()[:16]}")
        return " ".join(parts)


def pooling_of(model: TeacherHandle) -> Pooling:
    """Read how a model embeds sentences; without upper layers the map of the last one is not used.

    Raises:
        TeacherError: its files ask for a module or a mode that is not known here, or cannot be
            read.
    """
    if model.sentences is None:
        return Pooling()
    pooling = _fitting(read_pooling(model.sentences, model.ref), model)
    return pooling if model.keep_layers is None else replace(pooling, projection=None)


def teaching_pooling(teacher: TeacherHandle) -> Pooling | None:
    """How a teacher embeds the sentences that its students learn to embed.

    Returns:
        One way to pool, with the linear map that follows it, if there is one; None where it embeds
        none, or where no linear map of a student's tokens can do the same.

    Raises:
        TeacherError: the files cannot be read.
    """
    if teacher.sentences is None:
        return None
    mode = linear_pooling(teacher.sentences)
    if mode is None or mode not in MODES:
        return None
    own = dense_behind_pooling(teacher.sentences)
    return _fitting(Pooling((mode,), configured=True, projection=own), teacher)


def _fitting(pooling: Pooling, model: TeacherHandle) -> Pooling:
    """Return a pooling whose map, if it has one, starts from what the model's encoder gives."""
    width = len(pooling.modes) * model.shape.hidden
    if pooling.projection is not None and len(pooling.projection) != width:
        raise TeacherError(
            f"the Dense module of model {model.ref!r} takes {len(pooling.projection)} numbers, and "
            f"its pooling gives {width}; copy the model again"
        )
    return pooling


def read_pooling(folder: Path, ref: str) -> Pooling:
    """Read the pooling of a model as sentence-transformers keeps it; the mean if it keeps none.

    A module that normalises vectors changes no cosine and is passed over; a Dense module that is
    no more than a linear map is taken.

    Args:
        folder: of the model.
        ref: how the user named it.

    Raises:
        TeacherError: the folder asks for a module or a mode that is not known here, or cannot be
            read.
    """
    if not (folder / MODULES_FILE).is_file():
        return Pooling()
    listed = read_modules(folder)
    modules = {module_kind(module): module for module in listed}
    strange = modules.keys() - {"Transformer", "Pooling", DENSE, "Normalize"}
    if strange or len(modules) < len(listed):
        raise TeacherError(
            f"the sentence embeddings of model {ref!r} need the module "
            f"{min(strange or {DENSE})}{'' if strange else ' more than once'}, which is not "
            "supported; give a model of Transformer, Pooling, one Dense and Normalize alone"
        )
    if "Pooling" not in modules:
        return Pooling()
    modes = modes_of(folder, modules["Pooling"])
    unknown = next((mode for mode in modes if mode not in MODES), None)
    if unknown is not None or not modes:
        raise TeacherError(f"model {ref!r}: {unknown_name('pooling', unknown, MODES)}")
    projection = None
    if DENSE in modules:
        projection = read_dense(folder / modules[DENSE]["path"])
        if projection is None:
            raise TeacherError(
                f"the sentence embeddings of model {ref!r} need a Dense module with a bias, an "
                "activation or a residual, which is not supported; give a model whose Dense "
                "module is a linear map"
            )
    return Pooling(modes, configured=True, projection=projection)
