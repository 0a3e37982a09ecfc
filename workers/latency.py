"""Measuring latency on the machine that this runs on, alone on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdnas.latency.device_lock import measuring_lock
from kdnas.latency.table import OnEntries, Progress, build_latency_table
from kdnas.models.teacher import TeacherHandle
from kdnas.records import LatencyEntry, LatencyProfile, LatencyTable
from kdnas.search_space import SearchSpace
from kdnas.specs.search import LatencySpec


def build_table(
    handle: TeacherHandle,
    space: SearchSpace,
    profile: LatencyProfile,
    spec: LatencySpec,
    *,
    seed: int = 0,
    known: Mapping[str, LatencyEntry] | None = None,
    on_entries: OnEntries | None = None,
    progress: Progress | None = None,
    on_wait: Callable[[str], None] | None = None,
    wait_seconds: float | None = None,
) -> LatencyTable:
    """Wait until nobody trains on this machine, then build a latency table.

    Args:
        handle: the teacher, on this machine.
        space: whose states the table covers.
        profile: the conditions, of this machine.
        spec: budget, and whether to measure exhaustively.
        seed: of the order of measurements and of the check.
        known: entries of an earlier exhaustive build.
        on_entries: is given entries of an exhaustive build as they come.
        progress: is told how far the build is.
        on_wait: is told once if trainings must end first.
        wait_seconds: longest wait; None waits for ever.

    Raises:
        LatencyError: nothing could be measured, or trainings did not end in time.
    """
    with measuring_lock(wait_seconds, on_wait):
        return build_latency_table(
            handle,
            space,
            profile,
            budget_seconds=spec.budget_seconds,
            exhaustive=spec.exhaustive,
            seed=seed,
            progress=progress,
            known=known,
            on_entries=on_entries,
        )
