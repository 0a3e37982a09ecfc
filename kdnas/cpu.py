"""The processor of this machine, without torch: asked on every node before work goes there."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def available_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_flags() -> frozenset[str]:
    """Return the CPU's feature flags; empty where the system does not tell."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return frozenset()
    lines = info.read_text("utf-8", "replace").splitlines()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def is_fast_at_bfloat16() -> bool:
    """Whether the CPU multiplies in bfloat16 itself: with AVX-512-BF16 or AMX."""
    return bool(cpu_flags() & {"avx512_bf16", "amx_bf16"})


@cache
def runs_lstms_in_bfloat16() -> bool:
    """Whether there is a bfloat16 LSTM for the CPU, which oneDNN has for AVX-512 alone."""
    return cpu_flags() >= {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
