"""The contract of all objectives.

An objective is a frozen description. For a student it makes a *head*: the module with whatever
is learned beside the student (projections), which gives the training loss and is thrown away
after distillation. Held-out losses are read by a *meter*, which sums over batches and divides at
the end, so that they do not depend on how the held-out split is cut into batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from torch import Tensor, nn

from kdnas.models.taps import HiddenStates
from kdnas.records import Losses


class Head(nn.Module, ABC):
    """What is learned beside the student, and the loss of a batch.

    Attributes:
        student_layers: layers to tap in the student.
        teacher_layers: layers to tap in the teacher.
    """

    student_layers: frozenset[int]
    teacher_layers: frozenset[int]

    @abstractmethod
    def forward(self, student: HiddenStates, teacher: HiddenStates) -> Tensor:
        """Return the training loss of a batch: a float32 scalar over real tokens only."""

    @abstractmethod
    def meter(self) -> Meter:
        """Return a fresh meter for held-out losses."""


class Meter(Protocol):
    """Sums a head's losses over the batches of the held-out split."""

    def add(self, student: HiddenStates, teacher: HiddenStates) -> None:
        """Take in a batch."""

    def losses(self, training: float) -> Losses:
        """Return the losses of all batches so far; ``training`` is passed through."""


class Objective(Protocol):
    """What a student learns; one implementation a file."""

    @property
    def name(self) -> str:
        """Name in specs."""

    @property
    def maps_layers(self) -> bool:
        """Whether it maps layer to layer, so that a student cannot be deeper than its teacher."""

    def teacher_layers(self, student_layers: int, teacher_layers: int) -> frozenset[int]:
        """Teacher layers that a student of this depth learns from."""

    def head(
        self,
        student_layers: int,
        student_hidden: int,
        teacher_layers: int,
        teacher_hidden: int,
        seed: int,
    ) -> Head:
        """Make the head for a student of this depth and width."""
