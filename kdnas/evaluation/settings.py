"""How a task is fine-tuned: as published, except for what a request says otherwise.

Learning rates, epochs and batches are those of Trivedi et al. 2023, Table 5. The paper does not
say the rest; that is as usual for BERT (Devlin et al. 2019): a tenth of the steps warms up,
the rate then falls linearly to 0, weight decay 0.01, dropout 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from kdnas.errors import SpecError
from kdnas.evaluation.tasks.task import Task
from kdnas.specs.evaluation import EvaluationSpec


@dataclass(frozen=True, slots=True)
class Grid:
    """Learning rates and epochs of which a pair is chosen."""

    learning_rates: tuple[float, ...]
    epochs: tuple[float, ...]

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.learning_rates) * len(self.epochs)


@dataclass(frozen=True, slots=True)
class FinetuneSettings:
    """Hyper-parameters of one fine-tuning; equal settings make results comparable.

    Attributes:
        learning_rate: peak rate of AdamW.
        epochs: passes over the training examples.
        batch_size: examples of a step; windows of contexts for questions.
        max_length: tokens of an example, special tokens included.
        stride: tokens that neighbouring windows of a context share.
        max_steps: at most this many steps; None for as many as the epochs have.
        early_stopping: epochs without a better score before training ends; None trains on.
        dtype: of the forward passes.
        warmup_fraction: share of the steps in which the rate rises.
        weight_decay: AdamW's decoupled decay.
        dropout: of all layers and of the head, whatever the model was distilled with.
        max_grad_norm: gradients are scaled down to this norm.
        grid: what learning rate and epochs are chosen from; what stands in their own places then
            counts for nothing until they are chosen.
    """

    learning_rate: float
    epochs: float
    batch_size: int = 32
    max_length: int = 128
    stride: int = 0
    max_steps: int | None = None
    early_stopping: int | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    dropout: float = 0.1
    max_grad_norm: float = 1.0
    grid: Grid | None = None

    @property
    def tuned(self) -> bool:
        """Whether something is chosen by examples that are kept for it."""
        return self.early_stopping is not None or self.grid is not None

    def without_choices(self) -> FinetuneSettings:
        """Return settings with which training goes on to its end."""
        return replace(self, early_stopping=None, grid=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` takes them back."""
        values = asdict(self)
        if self.grid is None:
            del values["grid"]  # keys of results that are older than grids
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> FinetuneSettings:
        """Read back what :meth:`to_json` gave."""
        grid = values.get("grid")
        if grid is None:
            return cls(**values)
        lists = {key: tuple(numbers) for key, numbers in grid.items()}
        return cls(**{**values, "grid": Grid(**lists)})


_SPANS = FinetuneSettings(3e-5, 6, max_length=384, stride=128)
_BY_SUITE: Mapping[str, FinetuneSettings] = {
    "glue": FinetuneSettings(2e-5, 3),
    "xnli": FinetuneSettings(2e-5, 5),
    "squad": _SPANS,
    "squad2": _SPANS,
    "mlqa": _SPANS,  # trained on SQuAD
    "tydiqa": replace(_SPANS, learning_rate=1e-5, epochs=10),
    "ner": FinetuneSettings(5e-5, 3),
}
_BY_KIND: Mapping[str, FinetuneSettings] = {
    "classification": _BY_SUITE["glue"],
    "multilabel": _BY_SUITE["glue"],
    "regression": _BY_SUITE["glue"],
    "tagging": _BY_SUITE["ner"],
    "span": _SPANS,
    "retrieval": FinetuneSettings(2e-5, 3, max_length=512),  # passages are long
}
AS_IT_IS = FinetuneSettings(0.0, 0)
"""Of a task that needs no fine-tuning."""
_BY_TASK: Mapping[str, Mapping[str, Any]] = {"CoLA": {"epochs": 10}}


def published_settings(task: Task) -> FinetuneSettings:
    """Return the published settings of a task; one of the user's own takes those of its kind."""
    settings = _BY_SUITE.get(task.suite, _BY_KIND[task.kind])
    return replace(settings, **_BY_TASK.get(task.name, {}))


def settings_for(
    task: Task, spec: EvaluationSpec, dtype: Literal["float32", "bfloat16"]
) -> FinetuneSettings:
    """Return the published settings with what a request changes.

    Raises:
        SpecError: windows of a context would not move on.
    """
    wanted = {
        key: getattr(spec, key)
        for key in ("learning_rate", "epochs", "batch_size", "max_length", "stride", "max_steps")
        if getattr(spec, key) is not None
    }
    if not task.fine_tuned:
        published = published_settings(task)
        length = wanted.get("max_length", published.max_length)
        stride = wanted.get("stride", min(published.stride, length // 3))
        return replace(AS_IT_IS, max_length=length, stride=stride)
    settings = replace(
        published_settings(task),
        **wanted,
        early_stopping=spec.early_stopping,
        dtype=dtype,
        grid=None if spec.grid is None else Grid(spec.grid.learning_rates, spec.grid.epochs),
    )
    if spec.stride is None:
        settings = replace(settings, stride=min(settings.stride, settings.max_length // 3))
    if task.kind == "span" and settings.stride * 2 > settings.max_length:
        raise SpecError(
            f"stride ({settings.stride}) is above half of max_length ({settings.max_length}), so "
            "that windows of a context would hardly move on; make `stride` smaller"
        )
    return settings
