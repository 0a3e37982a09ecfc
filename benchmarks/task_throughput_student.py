"""The student that all rows of the comparison with TextBrewer begin with, and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kdnas.distill.numerics import derived_seed
from workers.task.request import CheckedTask


def made_student(checked: CheckedTask, dropout: float) -> Any:
    """Make the student that all rows begin with."""
    return checked.student.build(dropout, derived_seed("student", 0) % 2**31)


def gradient_of(student: nn.Module) -> Tensor:
    """All gradients of a student in one row."""
    found = [p.grad.flatten() for p in student.parameters() if p.grad is not None]
    student.zero_grad()
    return torch.cat(found)
