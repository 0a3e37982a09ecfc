"""The C allocator of this process."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_M_MMAP_MAX: Final = -4
_M_ARENA_MAX: Final = -8
FEW_ARENAS: Final = 2
"""The heap, and one beside it."""
GIVE_BACK_SECONDS = 60.0


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


def give_back_freed_memory() -> None:
    """Give back to the system what is free between what is not, from now on every minute.

    glibc by itself gives back only what is free at the end of the heap, so that a process of many
    threads keeps the most that it ever held, in pieces. From a thread that lives as long as the
    process. Where there is no glibc, nothing happens.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return

    def give_back() -> None:
        while True:
            time.sleep(GIVE_BACK_SECONDS)
            trim(0)

    threading.Thread(target=give_back, name="freed-memory", daemon=True).start()


def _mallopt(wanted: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter, value in wanted.items():
        mallopt(parameter, value)
