"""What a process that works for another one owes it."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, however that went.

    A process of a pool waits for work at a pipe that it holds open itself, so that otherwise it
    would wait for ever.
    """
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()
