"""Universal-KD of inner layers: the teacher's are attended to in the output space."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method, Setting
from kdnas.taskspecific.methods.output_attention import attention_weights, universal_losses
from kdnas.taskspecific.outputs import NetworkOutputs


class UniversalKD(Method):
    """β·L_KD + γ·Σ_{j<M} l_Univ(j), the formula of Eq. 7 and of Eq. 9."""

    needs_teacher_layers = True
    needs_student_layers = True
    inner_layers = True

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs, and of the inner layers towards attended mixtures."""
        own = student.layers_needed()[:, :-1]  # (B, M − 1, K)
        losses = universal_losses(self.space, teacher.layers_needed(), own)
        return self.total(student, teacher, losses.sum(1).mean())

    def attention(self, student: NetworkOutputs, teacher: NetworkOutputs) -> Tensor:
        """λ of the inner layers, (B, M − 1, N)."""
        answers = self.space.answers
        own = answers(student.layers_needed()[:, :-1])
        return attention_weights(self.space, answers(teacher.layers_needed()), own)

    def attending_layers(self) -> tuple[int, ...]:
        """The inner layers."""
        return tuple(range(1, self.setting.student.layers))


class UniversalKDIL(UniversalKD):
    """Intermediate layers of a Transformer (Wu et al. 2021, Eq. 7)."""

    name = "universal-kd-il"

    @classmethod
    def problem(cls, setting: Setting) -> str | None:
        """Students of another kind have a method of the same formula, named after them."""
        if not setting.student.transformer:
            return (
                f"method {cls.name} is for students that are Transformers; for this one take "
                "universal-kd-ca, which has the same formula (Eq. 9)"
            )
        return super().problem(setting)
