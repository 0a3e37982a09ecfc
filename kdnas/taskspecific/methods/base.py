"""The contract of all methods.

A method gives the loss of the first stage, in which the student learns from its teacher
(Wu et al. 2021, §4.2); the second stage is the cross entropy with the labels for all of them. The
total loss is α·L_CE + β·L_KD + γ·L_method (Eq. 10); in the first stage α = 0 and γ = 1 − β.

Legend: B examples, K outputs, N teacher layers, M student layers; layers count from 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from kdnas.errors import SpecError
from kdnas.specs.task_distillation import LayerChoice
from kdnas.taskspecific.output_space import OutputSpace
from kdnas.taskspecific.outputs import NetworkOutputs


@dataclass(frozen=True)
class NetworkShape:
    """A network as methods see it.

    Attributes:
        layers: N or M.
        width: D, of the vectors that stand for an example.
        transformer: whether its layers are those of a Transformer.
    """

    layers: int
    width: int
    transformer: bool = True


@dataclass(frozen=True)
class Setting:
    """What methods are made for.

    Attributes:
        space: of the task's outputs.
        student: the student.
        teacher: the teacher.
        beta: β, weight of L_KD.
        temperature: T of L_KD.
        layer_choice: how teacher layers are chosen where a method matches some of them.
        teacher_layers: the layers themselves, where they are given.
        seed: of what is learned beside the student.
    """

    space: OutputSpace
    student: NetworkShape
    teacher: NetworkShape
    beta: float
    temperature: float = 1.0
    layer_choice: LayerChoice = "skip"
    teacher_layers: tuple[int, ...] | None = None
    seed: int = 0


class Method(nn.Module, ABC):
    """The loss of the first stage, with what is learned beside the student.

    Class attributes:
        name: in requests.
        needs_teacher: whether the first stage looks at the teacher at all.
        needs_teacher_layers: whether it needs the teacher's pseudo-classifiers.
        needs_teacher_states: whether it needs the teacher's states.
        needs_student_layers: whether it needs pseudo-classifiers behind the student's inner layers.
        inner_layers: whether it teaches the student's inner layers, of which there must be one.
        assisted: whether the teacher is an assistant that has learned from the teacher first.
        uses_beta: whether β counts: a loss of the method's own has the rest of it.
        uses_temperature: whether the temperature of L_KD counts.
        matches_layers: whether inner layers are matched with chosen ones of the teacher's.
        takes_layers: whether the teacher's layers may be given.
    """

    name: ClassVar[str]
    needs_teacher: ClassVar[bool] = True
    needs_teacher_layers: ClassVar[bool] = False
    needs_teacher_states: ClassVar[bool] = False
    needs_student_layers: ClassVar[bool] = False
    inner_layers: ClassVar[bool] = False
    assisted: ClassVar[bool] = False
    uses_beta: ClassVar[bool] = True
    uses_temperature: ClassVar[bool] = True
    matches_layers: ClassVar[bool] = False
    takes_layers: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        problem = self.problem(setting)
        if problem is not None:
            raise SpecError(problem)
        self.setting = setting
        self.space = setting.space

    @classmethod
    def problem(cls, setting: Setting) -> str | None:
        """Say why this student cannot learn so and what to do, or None if it can."""
        if cls.inner_layers and setting.student.layers < 2:
            return (
                f"method {cls.name} teaches the inner layers of a student, and one of "
                f"{setting.student.layers} layer has none; choose a deeper student, or "
                "universal-kd-cg, which teaches the last layer"
            )
        return None

    @abstractmethod
    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Return the loss of a batch, a mean over its examples: a float32 scalar.

        Args:
            student: outputs of the student, with gradient.
            teacher: outputs of the teacher, without.
            labels: (B,) class numbers, or numbers.
            share: of the first stage's epochs, this one counted as made: 1/E … 1.
        """

    def attention(self, student: NetworkOutputs, teacher: NetworkOutputs) -> Tensor | None:
        """Weights of the teacher's layers for each student layer that attends, (B, J, N).

        They sum to 1 over N. None where the method has none.
        """
        return None

    def attending_layers(self) -> tuple[int, ...]:
        """The student layers that attend, J of them."""
        return ()

    def output_loss(self, student: NetworkOutputs, teacher: NetworkOutputs) -> Tensor:
        """L_KD of Eq. 1, a mean over the batch."""
        temperature = self.setting.temperature
        return self.space.output_loss(teacher.logits, student.logits, temperature).mean()

    def total(self, student: NetworkOutputs, teacher: NetworkOutputs, own: Tensor) -> Tensor:
        """β·L_KD + (1 − β)·L_method (Eq. 10 with α = 0)."""
        beta = self.setting.beta
        return beta * self.output_loss(student, teacher) + (1 - beta) * own
