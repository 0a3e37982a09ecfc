"""Patient distillation: hidden states of matched layers (Sun et al. 2019)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from kdnas.taskspecific.methods.base import Method, Setting
from kdnas.taskspecific.methods.layer_choice import matched_layers
from kdnas.taskspecific.methods.projection import projections
from kdnas.taskspecific.outputs import NetworkOutputs


class PKD(Method):
    """β·L_KD + γ·Σ_{j<M} ‖ h_g(j)^t / ‖h_g(j)^t‖ − h_j^s / ‖h_j^s‖ ‖² (Eq. 2).

    h is the hidden state of the first token, [CLS]; g(j) is chosen by
    :func:`~kdnas.taskspecific.methods.layer_choice.matched_layers`. That it teaches in the first of
    two stages, with γ = 1 − β and beside no cross entropy, is the reading that makes it comparable
    with the others here (Eq. 10); Sun et al. have one stage and all three terms.

    Where student and teacher differ in width, h_j^s goes through a linear map of its own to the
    teacher's width first (no bias, orthogonal at the start), learned with the student and thrown
    away.
    """

    name = "pkd"
    matches_layers = True
    takes_layers = True
    needs_teacher_states = True
    inner_layers = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.matched = matched_layers(setting)
        self.maps = projections(setting, len(self.matched))

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs and of the states of matched layers."""
        own = self.maps(student.states_needed()[:, :-1])  # (B, M − 1, D_T)
        target = teacher.states_needed()[:, [layer - 1 for layer in self.matched]]
        return self.total(student, teacher, direction_distance(target, own).sum(1).mean())


def direction_distance(target: Tensor, own: Tensor) -> Tensor:
    """‖a/‖a‖ − b/‖b‖‖² of vectors (…, D): (…), from 0 to 4 (Eq. 2); in float32."""
    difference = F.normalize(target.float(), dim=-1) - F.normalize(own.float(), dim=-1)
    return difference.square().sum(-1)
