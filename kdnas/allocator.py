"""The C allocator of this process."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_M_MMAP_MAX: Final = -4


def keep_freed_memory() -> None:
    """Let the allocator keep what a training step frees, for the next step to take.

    glibc gives buffers above 32 MiB (the gradient of an embedding) back to the system at once, and
    so what is free at the end of the heap: each step pays for thousands of page faults, a tenth of
    a student's time here and half of a small LSTM's. The process keeps its largest size until it
    ends. Where there is no glibc, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
