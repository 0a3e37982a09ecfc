"""The request for an evaluation: a model fine-tuned and scored on the tasks of a suite."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.grid import ProductSpec
from kdnas.specs.parts import Dtype, ModelSpec
from kdnas.specs.ranges import (
    BatchSize,
    Epochs,
    Layer,
    LearningRate,
    Seed,
    Steps,
    Threads,
    TimedTokens,
    TokensOfSample,
)

OWN_SUITE = "own"
TAGGED_SUITE = "ner"
Column = Annotated[int, Field(ge=1, le=1000)]
TASK_NAME_LENGTH = 100
TaskName = Annotated[
    str, Field(min_length=1, max_length=TASK_NAME_LENGTH, pattern=r"^[^\x00-\x1f]+$")
]
"""What reports call a task."""


def seeds_from_count(value: Any) -> Any:
    """Take a plain number n for the seeds 0 … n − 1; anything else stays.

    Raises:
        ValueError: it is not from 1 to 1000.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 1000:
            raise ValueError(f"give from 1 to 1000 seeds, not {value}")
        return tuple(range(value))
    return value


class GridSpec(ProductSpec):
    """Learning rates times epochs, of which the best pair is taken; by default as published.

    Attributes:
        learning_rates: peak rates of AdamW.
        epochs: passes over the training examples.
    """

    learning_rates: tuple[Annotated[LearningRate, Field(lt=1)], ...] = Field(
        (1e-5, 2e-5, 3e-5, 5e-5), min_length=1
    )
    epochs: tuple[Epochs, ...] = Field((3, 5, 10), min_length=1)


class OwnTaskSpec(Spec):
    """A task of the user's own: which columns of his table mean what.

    Attributes:
        name: what reports call it; None takes the name of the file or folder.
        kind: what is predicted: a class, several classes or none, a number, or a tag for each
            word; without training, by sentence embeddings, how similar two texts are, or which
            passages answer a query.
        text: column of the text; of a tagging task, of the list of words; of a retrieval, of the
            query.
        pair: column of a second text; of a retrieval, of the passage, which a folder with passages,
            queries and judgements does without.
        label: column of the class, the number, or the list of tags; of several classes, of their
            list, or a column for each with commas between; of a retrieval, of how well the passage
            answers, where not each does.
        metrics: the first one counts; none means the usual ones of the kind.
    """

    name: TaskName | None = None
    kind: Literal[
        "classification", "multilabel", "regression", "tagging", "similarity", "retrieval"
    ] = "classification"
    text: str = Field("text", min_length=1)
    pair: str | None = Field(None, min_length=1)
    label: str = Field("label", min_length=1)
    metrics: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _two_texts(self) -> Self:
        if self.kind == "similarity" and self.pair is None:
            raise ValueError(
                "similarity is that of two texts; name the column of the second one as `own.pair`"
            )
        return self


class ColumnsSpec(Spec):
    """Which columns of files of words and tags are taken, counted from 1.

    Attributes:
        word: of the words; None finds it out.
        tag: of the tags; None finds it out.
    """

    word: Column | None = None
    tag: Column | None = None


class TimedSpec(Spec):
    """How the latency of a report is measured: of one sequence, on the CPU.

    Attributes:
        length: tokens of the sequence; models with fewer positions are given what they take.
        threads: intra-op threads.
    """

    length: TimedTokens = 32
    threads: Threads = 1


OF_TRAINING: Final = (
    *("learning_rate", "epochs", "batch_size"),
    *("max_steps", "early_stopping", "grid"),
)
"""What an evaluation without training has no use for."""


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
        early_stopping: end a fine-tuning after this many epochs without a better score on
            examples that are kept for it, and keep the best epoch's weights; None trains to the
            end.
        grid: of which learning rate and epochs are taken; None takes them as they are given.
        own: the task of the suite ``own``, whose table is ``data_dir``.
        columns: of the suite ``ner``, or of an own task of kind ``tagging`` in columns, those that
            are taken; None finds them out.
        latency: how fast the model is, for the report; None leaves it out.
        card: put the scores into the model card of a student that kdnas has made.
    """

    suite: str = Field(min_length=1)
    tasks: tuple[str, ...] = ()
    data_dir: str | None = Field(None, min_length=1)
    seeds: tuple[Seed, ...] = (0, 1, 2)
    max_steps: Steps | None = None
    learning_rate: LearningRate | None = Field(None, lt=1)
    epochs: Epochs | None = None
    batch_size: BatchSize | None = None
    max_length: TokensOfSample | None = None
    stride: int | None = Field(None, ge=0, le=8192)
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")
    dtype: Dtype = "auto"
    threads: Threads | None = None
    early_stopping: int | None = Field(None, ge=1, le=10**6)
    grid: GridSpec | None = None
    own: OwnTaskSpec | None = None
    columns: ColumnsSpec | None = None
    latency: TimedSpec | None = TimedSpec()
    card: bool = True

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.grid is not None and not (self.learning_rate is None and self.epochs is None):
            raise ValueError(
                "a grid chooses learning rate and epochs; give grid.learning_rates and "
                "grid.epochs, or learning_rate and epochs"
            )
        if self.own is not None and self.suite != OWN_SUITE:
            raise ValueError(
                f"kind and columns are of a task of your own, not of suite {self.suite!r}; take "
                f"suite {OWN_SUITE!r}"
            )
        tags = self.suite == TAGGED_SUITE or (self.own is not None and self.own.kind == "tagging")
        if self.columns is not None and not tags:
            raise ValueError(
                f"columns are of files of words and tags, not of suite {self.suite!r}; take suite "
                f"{TAGGED_SUITE!r}, or {OWN_SUITE!r} with kind tagging"
            )
        if self.suite == OWN_SUITE and self.data_dir is None:
            raise ValueError("a task of your own needs data_dir, its file or folder")
        return self

    @field_validator("seeds", mode="before")
    @classmethod
    def _from_count(cls, value: Any) -> Any:
        return seeds_from_count(value)

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("give at least one seed")
        if len(set(value)) < len(value):
            raise ValueError("seeds must differ")
        return value


class EvaluationSpec(EvaluationPlanSpec):
    """An evaluation, whole.

    Attributes:
        model: an alias, a model folder or a hub id.
        int8: weights in 8 bits after the fine-tuning, by onnxruntime's dynamic quantisation.
        keep_layers: cut off the layers above this many before the fine-tuning.
        training: False scores the model as it is, with the head that it has.
    """

    model: ModelSpec
    int8: bool = False
    keep_layers: Layer | None = None
    training: bool = True

    @model_validator(mode="after")
    def _nothing_to_learn_with(self) -> Self:
        if self.training:
            return self
        given = [key for key in OF_TRAINING if getattr(self, key) is not None]
        if given:
            raise ValueError(
                f"without training {given[0]} counts for nothing; leave out {', '.join(given)}, or "
                "`training: false`"
            )
        return self

    @property
    def variant(self) -> str:
        """What is done to the model, in words; empty if it is taken as it is."""
        kept = self.keep_layers
        layers = "" if kept is None else f"{kept} layer{'' if kept == 1 else 's'}"
        untrained = "" if self.training else "as it is"
        return ", ".join(filter(None, (layers, "int8" if self.int8 else "", untrained)))

    @property
    def model_name(self) -> str:
        """What reports call the model, such as ``minilm (3 layers)``."""
        return f"{self.model.ref} ({self.variant})" if self.variant else self.model.ref
