"""The request for a full distillation."""

from __future__ import annotations

from pydantic import Field, field_validator

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.specs.base import Spec
from kdnas.specs.parts import CorpusSpec, ObjectiveSpec, StudentSpec, TeacherSpec, TrainingSpec


class FullTrainingSpec(TrainingSpec):
    """Training on the whole corpus, with checkpoints.

    Attributes:
        checkpoint_every: steps between checkpoints; also how often the held-out loss is read.
        device: ``auto`` takes a GPU where there is one.
        threads: intra-op threads on a CPU; None takes all cores.
    """

    epochs: float | None = Field(1.0, gt=0)
    held_out: int = Field(512, ge=8)
    checkpoint_every: int = Field(200, ge=1)
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")
    threads: int | None = Field(None, ge=1)


class DistillationSpec(Spec):
    """A full distillation, whole."""

    name: str | None = Field(None, min_length=1, max_length=80, pattern=r"^[\w.-]+$")
    architecture: str
    teacher: TeacherSpec = TeacherSpec()
    corpus: CorpusSpec = CorpusSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    student: StudentSpec = StudentSpec()
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
