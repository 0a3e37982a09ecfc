"""The request for distillations for one task: methods and seeds of one teacher and one student."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.evaluation import OwnTaskSpec, TaskName, seeds_from_count
from kdnas.specs.grid import ProductSpec
from kdnas.specs.naming import Name
from kdnas.specs.parts import Dtype, TeacherSpec
from kdnas.specs.ranges import (
    BatchSize,
    Epochs,
    Layer,
    LearningRate,
    Seed,
    Share,
    Steps,
    Temperature,
    Threads,
    TokensOfSample,
    Weight,
)
from kdnas.specs.wording import shown

MethodName = Literal[
    "none",
    "vanilla-kd",
    "pkd",
    "mhkd",
    "alp-kd",
    "takd",
    "dih",
    "annealing-kd",
    "universal-kd-il",
    "universal-kd-cg",
    "universal-kd-ca",
    "universal-kd-weighted",
]
METHODS: Final[tuple[str, ...]] = get_args(MethodName)

LearnedKind = Literal["classification", "regression"]
LEARNED: Final[tuple[str, ...]] = get_args(LearnedKind)
"""Kinds of tasks that students can be distilled for."""

LayerChoice = Literal["skip", "last"]
WarmupStates = Literal["raw", "standardised"]
Published = Literal["auto", "bert-4", "distilroberta", "bilstm", "gated-cnn"]

TRIED: Final[tuple[str, ...]] = ("batch_size", "learning_rate", "beta")
"""What a grid chooses of the hyper-parameters."""

Rate = Annotated[LearningRate, Field(lt=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class TaskGridSpec(ProductSpec):
    """Batch sizes, rates and weights of which the best are taken; by default as published (A.1).

    Attributes:
        batch_sizes: examples of a step.
        learning_rates: peak rates of AdamW.
        betas: weights of the distillation of the outputs in the first stage.
    """

    batch_sizes: tuple[BatchSize, ...] = Field((8, 16, 32), min_length=1)
    learning_rates: tuple[Rate, ...] = Field((2e-5, 5e-5), min_length=1)
    betas: tuple[Share, ...] = Field((0.2, 0.5, 0.7), min_length=1)


class TaskTeacherSpec(TeacherSpec):
    """Which encoder teaches, and how it learns the task first.

    A model that has learned the task already, with a head for its labels, is taken as it is.

    Attributes:
        fine_tune: ``auto`` fine-tunes it unless it has a head; ``always`` does so whatever head it
            has, such as that of another task.
        learning_rate: peak rate of its fine-tuning; None is as published.
        epochs: of its fine-tuning; None is as published.
        batch_size: of its fine-tuning; None is as published.
        max_steps: at most this many optimiser steps of its fine-tuning.
        seed: of its fine-tuning, and of its pseudo-classifiers.
        warmup_epochs: passes over the examples in which pseudo-classifiers are trained.
        warmup_rate: peak rate of that.
        warmup_states: what they learn from: ``raw``, the states as they are, or ``standardised``,
            by which they read more from lower layers, where states hardly vary.
    """

    fine_tune: Literal["auto", "always"] = "auto"
    learning_rate: Rate | None = None
    epochs: Epochs | None = None
    batch_size: BatchSize | None = None
    max_steps: Steps | None = None
    seed: Seed = 0
    warmup_epochs: Annotated[int, Field(ge=1, le=1000)] = 10
    warmup_rate: Rate = 1e-3
    warmup_states: WarmupStates = "raw"


class LearnedTaskSpec(OwnTaskSpec):
    """A task of the user's own that students can be distilled for.

    Attributes:
        kind: what is predicted: a class, or a number.
    """

    kind: LearnedKind = "classification"

    @field_validator("kind", mode="before")
    @classmethod
    def _learned(cls, kind: Any) -> Any:
        if kind in get_args(OwnTaskSpec.model_fields["kind"].annotation) and kind not in LEARNED:
            raise ValueError(
                f"a task of kind {kind} cannot be distilled for; give {' or '.join(LEARNED)}"
            )
        return kind


class TaskDistillationSpec(Spec):
    """Distillations for one task, whole: a run for each method and seed.

    What is None among the hyper-parameters is as published for the student and the task
    (Wu et al. 2021, App. A).

    Attributes:
        teacher: who teaches.
        task: name of the task; of a task of your own, what reports call it.
        data_dir: folder with the task's files, or a file of your own; None takes the data set of
            the Hugging Face hub.
        own: columns of a table of your own; None means a task that is known by its name.
        student: ``first-layers:4`` or ``layers:1,3,5`` of the teacher, ``bilstm``, ``gated-cnn``,
            an architecture of the search space, a model's folder, or ``distillation:`` and the id
            or name of a full distillation, for its student.
        methods: how the student learns; each is a run for each seed.
        seeds: of the runs; a plain number n is short for 0 … n − 1.
        published: whose hyper-parameters stand in for what is left open (Tables 7 to 9); ``auto``
            goes by student and teacher.
        epochs: of the first stage, in which the student learns from its teacher.
        finetune_epochs: of the second stage, in which it learns from the labels alone.
        max_steps: at most this many optimiser steps in each stage.
        batch_size: examples of a step.
        learning_rate: peak rate of AdamW in either stage.
        beta: weight of the distillation of the outputs in the first stage; a method's own loss has
            the rest (Eq. 10).
        dropout: of the student.
        temperature: of the distillation of the outputs (Eq. 1).
        warmup_fraction: share of a stage's steps in which the rate rises; then it falls to 0.
        weight_decay: AdamW's decoupled decay; None is 0.01 for Transformers, and 0 for other
            students.
        max_grad_norm: gradients are scaled down to this norm.
        max_length: tokens of an example, special tokens included.
        grid: of which batch size, learning rate and beta are taken for each method; None takes them
            as they are given.
        layer_choice: which teacher layers ``pkd`` and ``mhkd`` match a student's inner layers with:
            ``skip`` spreads them evenly, ``last`` takes those before the last.
        teacher_layers: which teacher layers these two, and ``dih``, learn from, in place of that.
        assistant: student that stands between teacher and student for ``takd``, as ``student``
            names one; None takes the first layers that lie half way.
        cache: whether the teacher's outputs are computed once and kept; ``auto`` does where they
            fit into memory.
        device: ``auto`` takes a GPU where there is one.
        dtype: of the forward passes; ``auto`` takes bfloat16 where the hardware is fast at it.
        threads: intra-op threads on a CPU; None takes all cores.
        output: folder for the best student of each method; None keeps them under ``KDNAS_HOME``.
    """

    name: Name | None = None
    teacher: TaskTeacherSpec = TaskTeacherSpec()
    task: TaskName
    data_dir: str | None = Field(None, min_length=1)
    own: LearnedTaskSpec | None = None
    student: str = Field("first-layers:3", min_length=1, max_length=1000)
    methods: tuple[MethodName, ...] = Field(("universal-kd-il",), min_length=1)
    seeds: tuple[Seed, ...] = Field((0,), min_length=1, max_length=1000)
    published: Published = "auto"
    epochs: Epochs | None = None
    finetune_epochs: Epochs | None = None
    max_steps: Steps | None = None
    batch_size: BatchSize | None = None
    learning_rate: Rate | None = None
    beta: Share | None = None
    dropout: Dropout | None = None
    temperature: Temperature = 1.0
    warmup_fraction: float = Field(0.1, ge=0, lt=1)
    weight_decay: Weight | None = None
    max_grad_norm: Weight = 1.0
    max_length: TokensOfSample = 128
    grid: TaskGridSpec | None = None
    layer_choice: LayerChoice = "skip"
    teacher_layers: tuple[Layer, ...] | None = Field(None, min_length=1)
    assistant: str | None = Field(None, min_length=1, max_length=1000)
    cache: Literal["auto", "always", "never"] = "auto"
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")
    dtype: Dtype = "auto"
    threads: Threads | None = None
    output: str | None = Field(None, min_length=1)

    @field_validator("seeds", mode="before")
    @classmethod
    def _from_count(cls, value: Any) -> Any:
        return seeds_from_count(value)

    @field_validator("methods", mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("methods", "seeds", "teacher_layers")
    @classmethod
    def _distinct(cls, value: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if value is not None and len(set(value)) < len(value):
            raise ValueError(f"give each once, not {shown(list(value))}")
        return value

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.own is not None and self.data_dir is None:
            raise ValueError("a task of your own needs data_dir, its file or folder")
        if self.grid is not None and {self.batch_size, self.learning_rate, self.beta} != {None}:
            raise ValueError(
                "a grid chooses batch size, learning rate and beta; leave them out, or the grid"
            )
        return self
