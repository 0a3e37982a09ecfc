"""Outputs in float32 whatever the precision around them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PreciseLinear(nn.Linear):
    """A linear map in float32, whatever the precision of the matrix products around it.

    In bfloat16 a score between 2 and 4 comes in steps of 1/64, and the scores of several spans
    are the same: a rank correlation, or the choice of an answer, would be that of the rounding.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Map (…, in) to (…, out)."""
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())
