"""Linear maps to the teacher's width, where hidden states of two widths are compared."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kdnas.taskspecific.methods.base import Setting


class Projections(nn.Module):
    """A linear map for each of some layers, from the student's width to the teacher's.

    Args:
        count: J, layers.
        student: D_S.
        teacher: D_T.
        seed: of the start, which keeps lengths as far as widths let it (orthogonal).
    """

    def __init__(self, count: int, student: int, teacher: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.empty(count, student, teacher))
        for layer in self.weight.data:
            nn.init.orthogonal_(layer, generator=generator)

    def forward(self, states: Tensor) -> Tensor:
        """Map (B, J, D_S) to (B, J, D_T), in float32."""
        return torch.einsum("bjs,jst->bjt", states.float(), self.weight)


def projections(setting: Setting, count: int) -> nn.Module:
    """Return maps for so many layers; nothing is done where both widths are the same."""
    student, teacher = setting.student.width, setting.teacher.width
    if student == teacher:
        return nn.Identity()
    return Projections(count, student, teacher, setting.seed)
