"""One model in several runtimes, timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from kdnas.latency.device_lock import measuring_lock
from kdnas.latency.measure import CAREFUL, current_profile, interleave, stopwatch, undisturbed
from kdnas.records import LatencyProfile
from kdnas.specs.search import LatencySpec


def time_side_by_side(
    runs: Mapping[str, Callable[[], object]],
    threads: int,
    length: int,
    on_wait: Callable[[str], None] | None = None,
    *,
    wait_seconds: float | None = None,
) -> tuple[LatencyProfile, dict[str, float]]:
    """Time single inferences on the CPU, with the machine to themselves.

    Args:
        runs: name → one inference; there must be at least one.
        threads: of each runtime; torch is set to them here, others must be made with them.
        length: tokens of the sequence that the runs are given, for the profile.
        on_wait: is told if trainings on this machine have to be waited for.
        wait_seconds: longest time to wait for them; None waits for ever.

    Returns:
        The conditions, and the median milliseconds of each run.

    Raises:
        SpecError: no such threads or length.
        LatencyError: the lock of the machine cannot be had.
    """
    spec = LatencySpec.read({"device": "cpu", "threads": threads, "length": length}, "latency")
    profile = current_profile(spec)
    first, *others = runs
    with measuring_lock(wait_seconds, on_wait), undisturbed(profile):
        of_first, of_others = interleave(
            runs[first], [runs[name] for name in others], stopwatch(profile), CAREFUL
        )
    samples = {first: of_first, **dict(zip(others, of_others, strict=True))}
    return profile, {name: median(times) for name, times in samples.items()}
