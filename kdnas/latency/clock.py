"""The clock that times inferences on a CPU; no torch, for it times other runtimes too."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_clock(threads: int) -> Callable[[], float]:
    """Return a clock in seconds.

    On one thread it is the thread's own processor time: equal to elapsed time on a free core, and
    blind to the moments in which the system ran somebody else. With several it is elapsed time.
    """
    return time.thread_time if threads == 1 else time.perf_counter
