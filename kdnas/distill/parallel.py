"""What data-parallel workers do together. Every worker must call these in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

PACKED = 2**16
"""Gradients of fewer numbers share a message; 256 KiB take longer to copy than to announce."""


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

    def sum_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        table: nn.Parameter | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """Replace each gradient by the sum over all workers.

        Large gradients are exchanged where they are, small ones packed into one message. An
        embedding table is most of a small student and its gradient mostly zeros; where the rows
        are known that any worker has looked up, these alone are exchanged.

        Args:
            parameters: the same on every worker.
            table: one of them whose gradient is zero outside of ``rows``.
            rows: (n,) of the table, the same on every worker.
        """
        if self.world_size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None and p is not table]
        looked_up = None
        if table is not None and table.grad is not None and rows is not None:
            looked_up = table.grad, rows, table.grad.index_select(0, rows)
            gradients.append(looked_up[2])
        whole = [g for g in gradients if g.numel() >= PACKED and g.is_contiguous()]
        small = [g for g in gradients if g.numel() < PACKED or not g.is_contiguous()]
        messages = [distributed.all_reduce(g, async_op=True) for g in whole]
        if small:
            packed = torch.cat([g.flatten() for g in small])
            distributed.all_reduce(packed)
            for gradient, part in zip(
                small, torch.split(packed, [g.numel() for g in small]), strict=True
            ):
                gradient.copy_(part.view_as(gradient))
        for message in messages:
            message.wait()
        if looked_up is not None:
            gradient, places, sums = looked_up
            gradient.index_copy_(0, places, sums)

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

    def wait(self) -> None:
        """Wait until all workers are here."""
        self.gather(0.0)

    def lead(self, tensors: Iterable[Tensor]) -> None:
        """Give every worker the values of the first."""
        if self.world_size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor.detach(), 0)


ALONE = Parallel()
