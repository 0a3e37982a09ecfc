"""The request for an evaluation: a model fine-tuned and scored on the tasks of a suite."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from kdnas.specs.base import Spec
from kdnas.specs.parts import Dtype, ModelSpec


class EvaluationPlanSpec(Spec):
    """How models are evaluated: all of an evaluation but the model.

    What is None among the hyper-parameters is as published for the task (science §7).

    Attributes:
        suite: name of the suite.
        tasks: some of its tasks; none means all of them.
        data_dir: folder with the tasks' files in their official layout; None takes the data sets
            of the Hugging Face hub.
        seeds: of the fine-tunings; a plain number n is short for 0 … n − 1.
        max_steps: at most this many optimiser steps a fine-tuning.
        learning_rate: peak rate of AdamW.
        epochs: passes over the training examples.
        batch_size: examples of a step.
        max_length: tokens of an example, special tokens included; longer ones are cut, contexts of
            questions into windows.
        stride: tokens that neighbouring windows of a context share.
        device: ``auto`` takes a GPU where there is one.
        dtype: of the forward passes; ``auto`` takes bfloat16 where the hardware is fast at it.
        threads: intra-op threads on a CPU; None takes all cores.
        early_stopping: end a fine-tuning after this many epochs without a better score on the
            evaluation set, and keep the best epoch's weights; None trains to the end.
    """

    suite: str = Field(min_length=1)
    tasks: tuple[str, ...] = ()
    data_dir: str | None = Field(None, min_length=1)
    seeds: tuple[int, ...] = (0, 1, 2)
    max_steps: int | None = Field(None, ge=1)
    learning_rate: float | None = Field(None, gt=0, lt=1)
    epochs: float | None = Field(None, gt=0)
    batch_size: int | None = Field(None, ge=1)
    max_length: int | None = Field(None, ge=8, le=8192)
    stride: int | None = Field(None, ge=0)
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")
    dtype: Dtype = "auto"
    threads: int | None = Field(None, ge=1)
    early_stopping: int | None = Field(None, ge=1)

    @field_validator("seeds", mode="before")
    @classmethod
    def _from_count(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            if not 1 <= value <= 1000:
                raise ValueError(f"give from 1 to 1000 seeds, not {value}")
            return tuple(range(value))
        return value

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("give at least one seed")
        if len(set(value)) < len(value) or min(value) < 0 or max(value) >= 2**31:
            raise ValueError("seeds must differ, and lie between 0 and 2147483647")
        return value


class EvaluationSpec(EvaluationPlanSpec):
    """An evaluation, whole; ``model`` is an alias, a model folder or a hub id."""

    model: ModelSpec
