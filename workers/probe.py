"""What only a machine itself knows; imported on every node, so torch comes in for a GPU only."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from kdnas.cpu import is_fast_at_bfloat16


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Answers of one machine; all of its GPU's are 0 or False where torch sees none.

    Attributes:
        free_bytes: memory that is available.
        cpu_bfloat16: whether the CPU is fast at bfloat16.
        gpus: GPUs that torch sees.
        free_gpu_bytes: memory of the first one that nobody uses at present.
        gpu_bytes: all of its memory.
        gpu_bfloat16: whether it is fast at bfloat16.
    """

    free_bytes: int
    cpu_bfloat16: bool
    gpus: int = 0
    free_gpu_bytes: int = 0
    gpu_bytes: int = 0
    gpu_bfloat16: bool = False


def look_around(with_gpu: bool) -> MachineFacts:
    """Ask the machine that this runs on, about its GPU as well or not."""
    facts = MachineFacts(psutil.virtual_memory().available, is_fast_at_bfloat16())
    if not with_gpu:
        return facts
    import torch

    from kdnas.distill.numerics import is_gpu_fast_at_bfloat16

    if not torch.cuda.is_available():
        return facts
    free, total = torch.cuda.mem_get_info()
    return MachineFacts(
        facts.free_bytes,
        facts.cpu_bfloat16,
        torch.cuda.device_count(),
        free,
        total,
        is_gpu_fast_at_bfloat16(),
    )
