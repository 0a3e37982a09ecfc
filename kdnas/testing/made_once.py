"""What several processes of a test run need is made by the first of them and read by the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def made_once(base: Path, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that is made by the first process of a run that asks for it.

    Args:
        base: pytest's folder of this process; those of one run lie beside each other.
        name: of the folder; what it holds is for reading, and copied where a test writes.
        make: fills a new folder; if it fails, the next one to ask tries again.

    Returns:
        The folder.
    """
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"once-{name}"
    with FileLock(shared / f"once-{name}.lock"):
        if not folder.exists():
            begun = shared / f"once-{name}-{os.getpid()}"
            begun.mkdir()
            make(begun)
            begun.rename(folder)
    return folder
