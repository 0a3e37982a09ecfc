"""Distillation by intermediate heads of the teacher, each weighted alike (Asadian et al. 2021)."""

from __future__ import annotations

from torch import Tensor

from kdnas.taskspecific.methods.base import Method, Setting
from kdnas.taskspecific.methods.layer_choice import chosen_layers
from kdnas.taskspecific.outputs import NetworkOutputs


class DIH(Method):
    """β·L_KD + γ·(1/|C|)·Σ_{i∈C} KL(f_i^t ‖ f_M^s).

    A reading of what Wu et al. 2021 say of it (§3.2, §5.4): the outputs of the classifiers on
    selected teacher layers C guide the student's own output, each alike. All layers where none are
    given; the last one then speaks twice, by its classifier and as the teacher itself. How the
    teacher's own output stands to the others they do not say; it has β, and the others share the
    rest, as the other methods do (Eq. 10).
    """

    name = "dih"
    takes_layers = True
    needs_teacher_layers = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.chosen = chosen_layers(setting)

    def forward(
        self, student: NetworkOutputs, teacher: NetworkOutputs, labels: Tensor, share: float
    ) -> Tensor:
        """Distillation of the outputs of the teacher and of its layers."""
        theirs = self.space.answers(
            teacher.layers_needed()[:, [layer - 1 for layer in self.chosen]]
        )
        own = student.logits[:, None].expand(-1, len(self.chosen), -1)
        return self.total(student, teacher, self.space.divergence(theirs, own).mean())
