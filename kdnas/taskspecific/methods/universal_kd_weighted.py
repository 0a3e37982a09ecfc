"""Universal-KD with attention on losses in place of outputs: the variant ▲ of §5.6."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.output_attention import attention_weights
from kdnas.taskspecific.methods.universal_kd_cg import UniversalKDCG
from kdnas.taskspecific.outputs import NetworkOutputs


class UniversalKDWeighted(UniversalKDCG):
    """β·L_KD + γ·Σ_i λ_iM KL(f_i^t ‖ f_M^s) (Wu et al. 2021, §5.6).

    The paper's sum ends at M, which counts the student's layers; i counts the teacher's, and so
    does the sum here. With equal weights it is :class:`~kdnas.taskspecific.methods.dih.DIH`.
    """

    name = "universal-kd-weighted"

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs, of the teacher and of its layers as they are attended to."""
        own = student.logits[:, None]  # (B, 1, K)
        theirs = self.space.answers(teacher.layers_needed())  # (B, N, K)
        weights = attention_weights(self.space, theirs, self.space.answers(own))[:, 0]  # (B, N)
        losses = self.space.divergence(theirs, own.expand_as(theirs))  # (B, N)
        return self.total(student, teacher, (weights * losses).sum(1).mean())
