"""What data-parallel workers do together. Every worker must call these in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True, slots=True)
class Parallel:
    """This worker's place among the workers of a run; the default is a run of one.

    Sums, not means: each worker divides its losses by the totals of the whole step, so that the
    sum of the workers' gradients is the gradient of the whole batch, however uneven the shares.
    torch's ``DistributedDataParallel`` averages, and refuses parameters without a gradient, which
    some objectives leave in the student's last layer.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the worker that reads held-out losses and writes checkpoints."""
        return self.rank == 0

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace each gradient by the sum over all workers, in one exchange."""
        if self.world_size == 1:
            return
        learned = [p for p in parameters if p.grad is not None]
        flat = torch.cat([p.grad.flatten() for p in learned if p.grad is not None])
        distributed.all_reduce(flat)
        for parameter, part in zip(
            learned, torch.split(flat, [p.numel() for p in learned]), strict=True
        ):
            assert parameter.grad is not None
            parameter.grad.copy_(part.view_as(parameter))

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of the workers' values."""
        if self.world_size > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def any(self, flag: bool, device: str) -> bool:
        """Whether any worker's flag is set."""
        if self.world_size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=device)) > 0)


ALONE = Parallel()
