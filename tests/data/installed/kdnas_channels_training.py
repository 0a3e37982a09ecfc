"""L = MSE(H^S W, H^T[:, :c]) of the last layers, a mean over real tokens and c channels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from kdnas_channels_spec import ChannelsSpec
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.architecture import Architecture
from kdnas.errors import RequestError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.taps import Activations, TapPoints
from kdnas.objectives.base import Head, Meter, Stage
from kdnas.records import Losses, TeacherShape


def stages(spec: ChannelsSpec) -> tuple[Stage, ...]:
    """Return the one stage of a spec."""
    return (Stage(Channels(spec.channels)),)


@dataclass(frozen=True)
class Channels:
    """The objective."""

    channels: int
    name: str = "channels"
    masks_tokens: bool = False
    needs_lm_head: bool = False
    copies_layers: bool = False

    def compared(self, teacher: TeacherShape) -> None:
        """Queries, keys and values are not compared."""

    def problem(self, student: Architecture, teacher: TeacherShape) -> str | None:
        """Say that the teacher has fewer channels."""
        if self.channels <= teacher.hidden:
            return None
        return f"{self.channels} channels are more than the teacher's {teacher.hidden}; lower them"

    def head(
        self,
        student: Architecture,
        teacher: TeacherShape,
        seed: int,
        lm_head: MaskedLMHead | None = None,
    ) -> ChannelsHead:
        """Make the map W."""
        if problem := self.problem(student, teacher):
            raise RequestError(problem)
        return ChannelsHead(self.channels, student, teacher, seed)


class ChannelsHead(Head):
    """The map W, (d_S, c)."""

    def __init__(
        self, channels: int, student: Architecture, teacher: TeacherShape, seed: int
    ) -> None:
        super().__init__()
        self.last, self.teachers_last = student.layers, teacher.layers
        self.student_taps = TapPoints(hidden=frozenset({self.last}))
        self.teacher_taps = TapPoints(hidden=frozenset({self.teachers_last}))
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(student.hidden, channels, generator=generator) / 50)

    def target(self, teacher: Activations) -> Tensor:
        """The teacher's channels, zero at the padding: (R, c)."""
        return teacher.masked(self.teachers_last)[:, : self.weight.shape[1]]

    def square(self, student: Activations, teacher: Activations) -> Tensor:
        """Σ over real tokens of the mean square error."""
        own = (student.flat(self.last) @ self.weight).float()
        own = own.masked_fill(student.batch.padding, 0.0)
        return F.mse_loss(own, self.target(teacher), reduction="sum") / self.weight.shape[1]

    def forward(self, student: Activations, teacher: Activations) -> Tensor:
        """The loss of a batch."""
        return self.square(student, teacher) / max(1, student.batch.totals.tokens)

    def meter(self) -> Meter:
        """Sums over batches."""
        return ChannelsMeter(self)


class ChannelsMeter:
    """Sums squares and the teacher's moments in float64."""

    def __init__(self, head: ChannelsHead) -> None:
        self._head, self._tokens = head, 0
        self._sums = torch.zeros(3, head.weight.shape[1], dtype=torch.float64)

    def add(self, student: Activations, teacher: Activations) -> None:
        """Take in a batch."""
        target = self._head.target(teacher).double()
        square = self._head.square(student, teacher).double().expand(target.shape[1])
        self._sums = self._sums + torch.stack([square, target.sum(0), target.square().sum(0)])
        self._tokens += teacher.batch.num_tokens

    def losses(self, training: float) -> Losses:
        """`mean`, and its ratio to the variance of the channels."""
        squares, first, second = self._sums / self._tokens
        loss, variance = float(squares[0]), float((second - first.square()).mean())
        return Losses(training, loss, loss / variance, loss / variance)
