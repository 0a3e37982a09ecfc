"""The parts that searches and distillations share: teacher, corpus, objective, training."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.ranges import (
    Average,
    BatchSize,
    CalibrationTokens,
    Epochs,
    Fraction,
    HeldOut,
    LearningRate,
    Samples,
    Seed,
    Steps,
    TokensOfSample,
    Weight,
)
from kdnas.specs.wording import REVISION_PATTERN

Start = Literal["teacher", "warm", "random", "copy"]
Dtype = Literal["auto", "float32", "bfloat16"]
Revision = Annotated[str, Field(min_length=1, max_length=200, pattern=REVISION_PATTERN)]
"""Of a model or a data set of the hub; never a path, which the hub's own library would follow."""


class ModelSpec(Spec):
    """An encoder: a local folder, a hub id, or an alias such as ``minilm``.

    ``fingerprint`` pins its content; it is written out when a request is stored, and then the
    store gives the model even if the folder has changed since.
    """

    ref: str = Field(min_length=1)
    revision: Revision | None = None
    fingerprint: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"ref": value} if isinstance(value, str) else value


class TeacherSpec(ModelSpec):
    """Which encoder teaches."""

    ref: str = Field("minilm", min_length=1)


class CorpusSpec(Spec):
    """Which text is learned from, and how it is cut.

    Attributes:
        source: files, globs, folders, ``pydocs``, or ``hub:owner/name``; one or several.
        text_column: column of JSONL, Parquet and hub data sets that holds the text.
        language_column: column that names the language; else a file's stem names it where
            ``language_per_file`` is set.
        config: configuration of a hub data set.
        split: split of a hub data set.
        revision: revision of a hub data set.
        max_length: tokens of a sample, special tokens included; longer samples are cut.
        held_out_fraction: share of the samples that is drawn to be held out; those of which
            training has a near twin are trained on all the same.
        max_held_out: largest number of held-out samples.
        max_samples: stop after this many distinct samples (for trying things).
        seed: which samples are held out.
        fingerprint: pins the tokenised corpus; written out when a request is stored.
    """

    source: tuple[str, ...] = ("pydocs",)
    text_column: str = "text"
    language_column: str | None = None
    language_per_file: bool = False
    config: str | None = None
    split: str = "train"
    revision: Revision | None = None
    max_length: TokensOfSample = 256
    held_out_fraction: Fraction = 0.05
    max_held_out: HeldOut = 2000
    max_samples: Samples | None = None
    seed: Seed = 0
    fingerprint: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, (str, list, tuple)):
            value = {"source": value}
        if isinstance(value, dict) and isinstance(value.get("source"), str):
            value = {**value, "source": [value["source"]]}
        return value

    @model_validator(mode="after")
    def _not_empty(self) -> CorpusSpec:
        if not self.source or not all(self.source):
            raise ValueError("name at least one source, such as ./texts or pydocs")
        return self


class StudentSpec(Spec):
    """How a student starts.

    What an objective learns beside the student, such as projections, is fitted to the start, except
    to a random one.

    Attributes:
        init: ``teacher`` cuts any architecture out of the teacher, ``warm`` takes its embeddings
            alone, ``random`` nothing, ``copy`` the embeddings and the layers of the ``uniform``
            mapping (a student of fewer layers that is otherwise like its teacher).
        calibration_tokens: tokens of the corpus on which the teacher is watched for that; at least
            2 for each of its channels.
    """

    init: Start = "teacher"
    calibration_tokens: CalibrationTokens = 8192

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"init": value} if isinstance(value, str) else value


class TrainingSpec(Spec):
    """How long and how a student is trained; steps win over epochs.

    Attributes:
        steps: optimiser steps, or None to use ``epochs``.
        epochs: passes over the training sequences.
        batch_size: sequences of a step.
        learning_rate: peak rate of AdamW.
        warmup_fraction: share of the steps in which the rate rises; then it falls linearly to 0.
        betas: AdamW's two averages (Trivedi App. B: 0.9, 0.98).
        weight_decay: AdamW's decoupled decay of matrices and embeddings; biases and LayerNorms
            do not decay.
        max_grad_norm: gradients are scaled down to this norm; 0 switches it off.
        dropout: dropout of the student while training.
        dtype: of the forward passes; ``auto`` takes bfloat16 where the hardware is fast at it.
        seed: of the student's start, the proxy set and the batch order.
        held_out: how many held-out sequences the losses are read on, the same for every seed.
    """

    steps: Steps | None = None
    epochs: Epochs | None = None
    batch_size: BatchSize = 32
    learning_rate: LearningRate = 8e-4
    warmup_fraction: float = Field(0.05, ge=0, lt=1)
    betas: tuple[Average, Average] = (0.9, 0.98)
    weight_decay: Weight = 0.0
    max_grad_norm: Weight = 1.0
    dropout: float = Field(0.0, ge=0, lt=1)
    dtype: Dtype = "auto"
    seed: Seed = 0
    held_out: HeldOut = 256

    @model_validator(mode="after")
    def _has_length(self) -> TrainingSpec:
        if self.steps is None and self.epochs is None:
            raise ValueError("steps and epochs are both null; give one of them")
        return self
