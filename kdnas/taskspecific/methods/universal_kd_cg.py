"""Universal-KD for a gap of capacity: the last layer learns from all of the teacher's."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.output_attention import attention_weights, universal_losses
from kdnas.taskspecific.outputs import NetworkOutputs


class UniversalKDCG(Method):
    """β·L_KD + γ·l_Univ(M) (Wu et al. 2021, Eq. 8).

    f_M^s is the student's own output, which decides how much it attends to each of the teacher's
    pseudo-classifiers.
    """

    name = "universal-kd-cg"
    needs_teacher_layers = True

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs, of the teacher and of the attended mixture of its layers."""
        own = student.logits[:, None]  # (B, 1, K)
        losses = universal_losses(self.space, teacher.layers_needed(), own)
        return self.total(student, teacher, losses.mean())

    def attention(self, student: NetworkOutputs, teacher: NetworkOutputs) -> Tensor:
        """λ of the last layer, (B, 1, N)."""
        answers = self.space.answers
        own = answers(student.logits[:, None])
        return attention_weights(self.space, answers(teacher.layers_needed()), own)

    def attending_layers(self) -> tuple[int, ...]:
        """The last layer."""
        return (self.setting.student.layers,)
