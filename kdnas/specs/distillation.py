"""The request for a full distillation."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.specs.base import Spec
from kdnas.specs.naming import Name
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.objectives import DEFAULT
from kdnas.specs.parts import CorpusSpec, ModelSpec, StudentSpec, TeacherSpec, TrainingSpec
from kdnas.specs.ranges import BatchSize, Epochs, HeldOut, Steps, StepsIfAny, Threads, Workers


class FullTrainingSpec(TrainingSpec):
    """Training on the whole corpus, with checkpoints.

    Attributes:
        steps: optimiser steps, or None to use ``epochs``; 0 makes the student as it starts,
            undistilled.
        checkpoint_every: steps between checkpoints; also how often the held-out loss is read.
            None is a tenth of all steps, at most 200.
        device: ``auto`` takes a GPU where there is one.
        threads: intra-op threads of a worker on a CPU; None shares all cores evenly.
        num_workers: data-parallel workers; each takes its share of every batch.
        accumulate: parts into which a worker cuts its share of a batch, to save memory; the
            gradients of all parts make one optimiser step.
        compile: run the student through ``torch.compile``.
        address: of a running Ray cluster, to which one worker goes as well; None takes that of
            ``KDNAS_RAY_ADDRESS``, else trains here, several workers on a local cluster.
        checkpoints: fsspec URL of a folder for the checkpoints; None keeps them in the store
            (``KDNAS_STORE``) if the work goes to a cluster, else under ``KDNAS_HOME``.
    """

    steps: StepsIfAny | None = None
    epochs: Epochs | None = 1.0
    held_out: HeldOut = 512
    checkpoint_every: Steps | None = None
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")
    threads: Threads | None = None
    num_workers: Workers = 1
    accumulate: BatchSize = Field(1, validate_default=True)
    compile: bool = False
    address: str | None = None
    checkpoints: str | None = None

    @field_validator("accumulate")
    @classmethod
    def _rows_for_all(cls, accumulate: int, info: ValidationInfo) -> int:
        workers, rows = info.data.get("num_workers"), info.data.get("batch_size")
        if workers is not None and rows is not None and workers * accumulate > rows:
            raise ValueError(
                f"num_workers ({workers}) times accumulate ({accumulate}) is above "
                f"batch_size ({rows}), so that a part would be empty; make the batch "
                "larger or the parts fewer"
            )
        return accumulate


class FullStudentSpec(StudentSpec):
    """How the student of a full distillation starts.

    Attributes:
        init: ``teacher`` cuts any architecture out of the teacher, ``warm`` takes its embeddings
            alone, ``random`` nothing, ``copy`` the embeddings and the layers of the ``uniform``
            mapping; counts for nothing where ``init_from`` is given.
        calibration_tokens: tokens of the corpus on which the teacher is watched for the start.
        init_from: the folder of an earlier student of the same architecture, whose weights it
            begins with.
    """

    init_from: ModelSpec | None = None


class DistillationSpec(Spec):
    """A full distillation, whole."""

    name: Name | None = None
    architecture: str
    teacher: TeacherSpec = TeacherSpec()
    corpus: CorpusSpec = CorpusSpec()
    objective: ObjectiveSpec = DEFAULT
    student: FullStudentSpec = FullStudentSpec()
    training: FullTrainingSpec = FullTrainingSpec()
    output: str | None = None

    @field_validator("architecture")
    @classmethod
    def _readable(cls, value: str) -> str:
        try:
            return str(Architecture.parse(value))
        except ArchitectureError as error:
            raise ValueError(str(error)) from None

    @property
    def arch(self) -> Architecture:
        """The architecture as a value."""
        return Architecture.parse(self.architecture)
