"""What data-parallel workers do together. Every worker must call these in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    With more than one worker torch's process group must be there. On GPUs it needs a backend for
    CPU tensors too (``cpu:gloo,cuda:nccl``): what is agreed on at each step stays on the CPU, so
    that no worker has to wait for its GPU.
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
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [g.numel() for g in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of the workers' values."""
        if self.world_size > 1:
            value = value.clone()
            distributed.all_reduce(value)
        return value

    def gather(self, value: float) -> tuple[float, ...]:
        """Return the value of each worker, by rank."""
        values = torch.zeros(self.world_size, dtype=torch.float64)
        values[self.rank] = value
        return tuple(self.sum(values).tolist())

    def any(self, flag: bool) -> bool:
        """Whether any worker's flag is set."""
        return any(self.gather(flag))

    def lead(self, tensors: Iterable[Tensor]) -> None:
        """Give every worker the values of the first."""
        if self.world_size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor.detach(), 0)


ALONE = Parallel()
