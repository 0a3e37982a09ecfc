"""Regression on logits that grow sharper from epoch to epoch (Jafari et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.outputs import NetworkOutputs


class AnnealingKD(Method):
    """‖ z^s − φ_e·z^t ‖² with φ_e = e / E in epoch e of E; then cross entropy alone.

    Of numbers it is their distance from the mean of the labels that φ_e scales.

    A reading of what Wu et al. 2021 say of it (§3.2): the factor climbs from 1/T_max to 1, and
    T_max is the number of the first stage's epochs, so that each has a temperature of its own.
    """

    name = "annealing-kd"
    uses_temperature = False
    uses_beta = False

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Squared distance of the logits, summed over outputs."""
        difference = student.logits.float() - self.space.annealed(teacher.logits, share)
        return difference.square().sum(-1).mean()
