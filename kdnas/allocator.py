"""The C allocator of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_M_MMAP_MAX: Final = -4
_M_ARENA_MAX: Final = -8
FEW_ARENAS: Final = 2
"""The heap, and one beside it."""


def keep_freed_memory() -> None:
    """Let the allocator keep what a training step frees, for the next step to take.

    glibc gives buffers above 32 MiB (the gradient of an embedding) back to the system at once, and
    so what is free at the end of the heap: each step pays for thousands of page faults, a tenth of
    a student's time here and half of a small LSTM's. The process keeps its largest size until it
    ends. Where there is no glibc, nothing happens.
    """
    _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1})


def share_freed_memory() -> None:
    """Let threads take what others freed, in a process of many threads that lives for months.

    glibc gives up to eight threads a core an arena each, and every one of them keeps the most that
    its threads ever held: with 15 threads that answer requests, fifteen times the largest answer.
    Threads of Python gain nothing from arenas of their own, since one runs at a time. Asked for
    before there are threads. Where there is no glibc, nothing happens.
    """
    _mallopt({_M_ARENA_MAX: FEW_ARENAS})


def _mallopt(wanted: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter, value in wanted.items():
        mallopt(parameter, value)
