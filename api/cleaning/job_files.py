"""Files of jobs that were deleted, or are over, and nobody has removed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from api.cleaning.unneeded import Needs, Unneeded, delete, extent, remove_old
from api.jobs.files import JOBS, checkpoints_in_store, run_folder
from kdnas.distill.checkpoint import Checkpoints, place_below
from kdnas.errors import StoreError
from kdnas.in_use import REMOVED_PREFIX
from kdnas.settings import Settings
from kdnas.store import Store

CHECKPOINTS: Final = "checkpoints"
RESULTS: Final = ("evaluations", "task-distillations")
"""Folders of the home in which jobs keep results beside what they would go on with."""
_FOLDERS: Final = (JOBS, "distillations", *RESULTS)


def files_of_jobs(settings: Settings, needs: Needs, unused_since: float) -> Iterator[Unneeded]:
    """Find files of jobs in the home.

    Students in ``students`` are not among them: they are what users came for, and may be used
    without a job.
    """
    runs = run_folder(settings, "any").parent
    for parent, category, over_too in (
        (settings.home / JOBS, "logs", False),
        (runs, CHECKPOINTS, True),
        *((settings.home / name, "results", False) for name in RESULTS),
    ):
        for folder in sorted(parent.glob("*/")):
            is_over = over_too and folder.name in needs.over
            if not folder.name.startswith(".") and (is_over or needs.is_gone(folder.name)):
                num_bytes, changed = extent(folder)
                if changed <= unused_since:
                    name = f"{parent.name}/{folder.name}"
                    remove = partial(remove_old, folder, unused_since)
                    yield Unneeded(category, name, num_bytes, remove)


def files_in_store(
    settings: Settings, store: Store, needs: Needs, unused_since: float
) -> Iterator[Unneeded]:
    """Find logs and checkpoints of jobs in the store, wherever it is.

    Nobody writes under the id of a job that is gone, so nothing is lost by removing file by file.

    Raises:
        StoreError: the store is out of reach.
    """
    for kind, category in ((JOBS, "logs"), (CHECKPOINTS, CHECKPOINTS)):
        for name in store.names(kind):
            is_over = kind == CHECKPOINTS and name in needs.over
            if not (is_over or needs.is_gone(name)):
                continue
            folder = store.local_folder(kind, name)
            num_bytes, changed = store.extent(kind, name) if folder is None else extent(folder)
            if changed is not None and changed <= unused_since:
                remove = partial(_remove_from_store, settings, store, kind, name, unused_since)
                yield Unneeded(category, f"{kind}/{name} in the store", num_bytes, remove)


def left_of_removals(settings: Settings) -> Iterator[Unneeded]:
    """Find what a removal that was killed has set aside in the home."""
    for name in _FOLDERS:
        for path in sorted((settings.home / name).glob(f"{REMOVED_PREFIX}*")):
            yield Unneeded(
                "leftovers", f"{name}/{path.name}", extent(path)[0], partial(delete, path)
            )


def _remove_from_store(
    settings: Settings, store: Store, kind: str, name: str, unused_since: float
) -> int:
    folder = store.local_folder(kind, name)
    if folder is not None:
        return remove_old(folder, unused_since)
    changed = store.extent(kind, name)[1]
    if changed is None or changed > unused_since:
        return 0
    try:
        if kind == CHECKPOINTS:  # markers first, so that no half of one looks whole
            Checkpoints(place_below(checkpoints_in_store(settings), name)).remove()
        store.remove_files(kind, name)
    except StoreError:
        if name in store.names(kind):
            raise
        return 0  # another process was quicker
    return 1
