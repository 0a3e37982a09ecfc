"""Attention over a teacher's layers in the space of hidden states (Passban et al. 2020)."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method, Setting
from kdnas.taskspecific.methods.pkd import direction_distance
from kdnas.taskspecific.methods.projection import projections
from kdnas.taskspecific.outputs import NetworkOutputs


class ALPKD(Method):
    """β·L_KD + γ·Σ_{j<M} Sim(Σ_k a_jk h_k^t, h_j^s), with a_jk = softmax over k of h_k^t · h_j^s.

    A reading of what Wu et al. 2021 say of it (§3.1, §5.6): h is the hidden state of the first
    token, and the layers are the inner ones, as for Universal-KD (Eq. 7), so that the two differ in
    the space alone. Of the distance they say nothing; it is that of Eq. 2 here, as for PKD.
    Products of states of hundreds of dimensions are large, and weights accordingly near 0 and 1.
    Widths are brought together as in
    :class:`~kdnas.taskspecific.methods.pkd.PKD`.
    """

    name = "alp-kd"
    needs_teacher_states = True
    inner_layers = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.maps = projections(setting, setting.student.layers - 1)

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs, and of states towards attended mixtures."""
        own = self.maps(student.states_needed()[:, :-1])
        states = teacher.states_needed()
        target = _weights(own, states) @ states.float()  # (B, M − 1, D)
        return self.total(student, teacher, direction_distance(target, own).sum(1).mean())

    def attention(self, student: NetworkOutputs, teacher: NetworkOutputs) -> Tensor:
        """A of the inner layers, (B, M − 1, N)."""
        own = self.maps(student.states_needed()[:, :-1])
        return _weights(own, teacher.states_needed())

    def attending_layers(self) -> tuple[int, ...]:
        """The inner layers."""
        return tuple(range(1, self.setting.student.layers))


def _weights(own: Tensor, states: Tensor) -> Tensor:
    return (own.float() @ states.float().transpose(1, 2)).softmax(-1)
