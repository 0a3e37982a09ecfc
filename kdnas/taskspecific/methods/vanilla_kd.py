"""Distillation of the outputs alone (Hinton et al. 2015)."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.outputs import NetworkOutputs


class VanillaKD(Method):
    """L_KD = T² KL(σ(z^t / T) ‖ σ(z^s / T)) (Wu et al. 2021, Eq. 1 with α = 0).

    Eq. 1 mixes in the labels by α; in the paper's two stages they come afterwards (§4.2). There is
    no other loss beside it, and so β does not count.
    """

    name = "vanilla-kd"
    uses_beta = False

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Divergence of the student's outputs from the teacher's."""
        return self.output_loss(student, teacher)
