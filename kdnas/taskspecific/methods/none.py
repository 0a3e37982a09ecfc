"""No distillation: fine-tuning alone, for as long as the others take."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.outputs import NetworkOutputs


class NoDistillation(Method):
    """L_CE in both stages ("w/o KD" of Table 5).

    Both stages are gone through, each with its own schedule, so that a student without a teacher
    has seen its examples as often as one with a teacher.
    """

    name = "none"
    uses_temperature = False
    needs_teacher = False
    uses_beta = False

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Cross entropy with the labels."""
        return self.space.label_loss(student.logits, labels).mean()
