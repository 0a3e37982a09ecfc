"""Dropout on CPUs by masks that cost little to draw.

torch draws a number for each element from one Mersenne Twister: 6 ns an element, which on a CPU
that multiplies in bfloat16 is a tenth of a student's step. Here one 64-bit draw of SFC64 makes four
masks, so that a probability is rounded to a multiple of 2⁻¹⁶ (0.1 to 0.1000061); what is kept is
divided by exactly the share that is kept, so that expectations stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

LEVELS = 2**16
"""As many probabilities can be told apart."""


@contextmanager
def quick_dropout(model: nn.Module, seed: int) -> Iterator[None]:
    """Let all dropout modules of a model on a CPU draw from a seed, for the time of a ``with``.

    The process's own random state is not touched. What drops out by other means than a module
    (an LSTM between its layers) does as it did.

    Args:
        model: in training mode; in eval mode nothing is dropped.
        seed: decides all masks, in the order in which modules are called.
    """
    bits = np.random.SFC64(seed)
    changed = [module for module in model.modules() if type(module) is nn.Dropout]
    for module in changed:
        module.forward = _Masked(module, bits)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in changed:
            del module.forward


class _Masked:
    """The forward pass of one module."""

    def __init__(self, module: nn.Dropout, bits: np.random.SFC64) -> None:
        self._module, self._bits = module, bits

    def __call__(self, input: Tensor) -> Tensor:
        """Drop elements of any shape."""
        dropped = round(self._module.p * LEVELS)
        if not self._module.training or not dropped:
            return input
        if dropped == LEVELS:
            return input * 0.0
        count = input.numel()
        drawn = np.asarray(self._bits.random_raw(-(-count // 4)), np.uint64)
        kept = torch.from_numpy(drawn.view(np.uint16)[:count] >= dropped).view(input.shape)
        return input * kept.to(input.dtype).mul_(LEVELS / (LEVELS - dropped))
