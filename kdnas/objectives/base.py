"""The contract of all objectives.

An objective is a frozen description. For a student it makes a *head*: the module with whatever
is learned beside the student (projections, a masked-LM head), which gives the training loss and
is thrown away after distillation. Held-out losses are read by a *meter*, which sums over batches
and divides at the end, so that they do not depend on how the held-out split is cut into batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.relations import Compared
from kdnas.models.taps import Activations, TapPoints, TokenStates
from kdnas.records import Losses, TeacherShape


class Head(nn.Module, ABC):
    """What is learned beside the student, and the loss of a batch.

    Attributes:
        student_taps: what to read from the student.
        teacher_taps: what to read from the teacher.
    """

    student_taps: TapPoints
    teacher_taps: TapPoints

    @property
    def student_lm_head(self) -> MaskedLMHead | None:
        """The student's masked-LM head, where the objective trains one."""
        return None

    def fit(self, student: TokenStates, teacher: TokenStates) -> None:
        """Bring what is learned beside the student to where it fits the student's start best.

        Args:
            student: its states on the calibration text, at :attr:`student_taps`.
            teacher: the teacher's on the same tokens, at :attr:`teacher_taps`.

        Where nothing is learned beside the student there is nothing to do.
        """

    @abstractmethod
    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """Return the training loss of a batch: a float32 scalar over real tokens only.

        It is a sum divided by the batch's *totals*, so that the losses of the parts of a step
        add up to the loss of the whole.
        """

    @abstractmethod
    def meter(self) -> Meter:
        """Return a fresh meter for held-out losses."""


class Meter(Protocol):
    """Sums a head's losses over the batches of the held-out split."""

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""

    def losses(self, training: float) -> Losses:
        """Return the losses of all batches so far; ``training`` is passed through."""


class Objective(Protocol):
    """What a student learns; one implementation a file."""

    @property
    def name(self) -> str:
        """Name in specs."""

    @property
    def masks_tokens(self) -> bool:
        """Whether tokens are hidden as in masked-LM training, for student and teacher alike."""

    @property
    def needs_lm_head(self) -> bool:
        """Whether it needs the teacher's masked-LM head."""

    @property
    def copies_layers(self) -> bool:
        """Whether its students start as copies of teacher layers."""

    def compared(self, teacher: TeacherShape) -> Compared | None:
        """What queries, keys and values of the student's last layer are compared with, if any."""

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Say why this teacher cannot teach this student and what to do, or None if it can."""

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> Head:
        """Make the head for a student; ``lm_head`` is the teacher's, where it is needed.

        Raises:
            RequestError: with the words of :meth:`problem`.
        """


@dataclass(frozen=True)
class Stage:
    """A stretch of training on one objective.

    Attributes:
        objective: what is learned.
        share: of all steps.
        rate: of the peak learning rate; each stage warms up and decays by itself.
    """

    objective: Objective
    share: float = 1.0
    rate: float = 1.0
