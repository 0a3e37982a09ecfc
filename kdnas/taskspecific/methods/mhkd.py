"""Classifiers on matched layers of both networks (Wang et al. 2020)."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method, Setting
from kdnas.taskspecific.methods.layer_choice import matched_layers
from kdnas.taskspecific.outputs import NetworkOutputs


class MHKD(Method):
    """β·L_KD + γ·Σ_{j<M} [ KL(f_g(j)^t ‖ f_j^s) + CE(y, f_j^s) ].

    A reading of what Wu et al. 2021 say of it (§3.1, §4.1): pseudo-classifiers on selected teacher
    layers and their student counterparts, chosen as for
    :class:`~kdnas.taskspecific.methods.pkd.PKD`, no attention, and the student's own ones learn
    from the labels too.
    """

    name = "mhkd"
    matches_layers = True
    takes_layers = True
    needs_teacher_layers = True
    needs_student_layers = True
    inner_layers = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.matched = matched_layers(setting)

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs, and of the pseudo-classifiers pair by pair."""
        own = student.layers_needed()[:, :-1]  # (B, M − 1, K)
        theirs = teacher.layers_needed()[:, [layer - 1 for layer in self.matched]]
        matching = self.space.divergence(self.space.answers(theirs), own)
        learning = self.space.label_loss(own, labels[:, None])
        return self.total(student, teacher, (matching + learning).sum(1).mean())
