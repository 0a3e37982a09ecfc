"""The two stages of a run, and what it is trained with (Wu et al. 2021, §4.2 and App. A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import ceil
from typing import Any


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What a run is trained with.

    Attributes:
        epochs: of the first stage.
        finetune_epochs: of the second.
        batch_size: examples of a step.
        learning_rate: peak rate of AdamW, in either stage.
        beta: β, weight of L_KD in the first stage.
        dropout: of the student.
        temperature: T of L_KD.
        warmup_fraction: share of a stage's steps in which the rate rises; then it falls to 0.
        weight_decay: AdamW's decoupled decay of matrices and embeddings.
        max_grad_norm: gradients are scaled down to this norm; 0 switches it off.
        max_length: tokens of an example.
        max_steps: of each stage at most; None for as many as its epochs have.
    """

    epochs: float
    finetune_epochs: float
    batch_size: int
    learning_rate: float
    beta: float
    dropout: float = 0.1
    temperature: float = 1.0
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    max_length: int = 128
    max_steps: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` takes them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Hyperparameters:
        """Read back what :meth:`to_json` gave, which may have more beside it."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Stage:
    """One of the two stages.

    Attributes:
        number: 1, learning from the teacher, or 2, from the labels alone.
        steps: optimiser steps.
        batches_per_epoch: steps of a whole pass over the examples.
    """

    number: int
    steps: int
    batches_per_epoch: int

    @property
    def epochs(self) -> int:
        """Passes that are begun."""
        return ceil(self.steps / self.batches_per_epoch)

    def epoch_of(self, step: int) -> int:
        """The pass that a step belongs to, from 1 on; steps count from 0."""
        return step // self.batches_per_epoch + 1

    def ends_epoch(self, done: int) -> bool:
        """Whether a pass, or the stage, is over after so many steps."""
        return done == self.steps or done % self.batches_per_epoch == 0


def stages_of(hyper: Hyperparameters, batches_per_epoch: int) -> tuple[Stage, Stage]:
    """Cut a run into its stages."""

    def stage(number: int, epochs: float) -> Stage:
        steps = max(1, ceil(epochs * batches_per_epoch))
        if hyper.max_steps is not None:
            steps = min(steps, hyper.max_steps)
        return Stage(number, steps, batches_per_epoch)

    return stage(1, hyper.epochs), stage(2, hyper.finetune_epochs)
