"""Timing of single inferences, many models side by side.

A machine drifts (clock rate, neighbours), so models are timed in batches: the models of a batch
take turns, a reference model among them, and what the reference lost or gained against its first
batch is divided out of all. A model's time is the mean of the fastest quarter of its repeats: all
disturbances make an inference slower, and a single minimum can be a fluke.
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from kdnas.errors import LatencyError, SpecError
from kdnas.latency.clock import cpu_clock
from kdnas.records import LatencyProfile
from kdnas.specs.search import LatencySpec

REFERENCE_EVERY = 4
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Effort:
    """How often a model is timed: ``rounds`` turns of ``repeats`` inferences after a warm-up."""

    rounds: int
    repeats: int
    warmups: int = 1


CAREFUL = Effort(rounds=12, repeats=4)
THOROUGH = Effort(rounds=6, repeats=4)
QUICK = Effort(rounds=3, repeats=4)


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one inference: the estimate, and half the distance of the quartiles."""

    ms: float
    spread_ms: float

    @classmethod
    def of(cls, samples_ms: Sequence[float]) -> Timing:
        """Condense repeats of one model."""
        ordered = np.sort(np.asarray(samples_ms, dtype=float))
        fastest = ordered[: max(1, len(ordered) // 4)]
        low, high = np.percentile(ordered, [25, 75])
        return cls(float(fastest.mean()), float(high - low) / 2)

    @classmethod
    def typical(cls, timings: Sequence[Timing]) -> Timing:
        """Condense timings of one model that lie apart: their medians."""
        ms, spread = np.median([(one.ms, one.spread_ms) for one in timings], axis=0)
        return cls(float(ms), float(spread))

    def scaled(self, factor: float) -> Timing:
        """Multiply both figures."""
        return Timing(self.ms * factor, self.spread_ms * factor)


def hardware_name(device: str) -> str:
    """Name the hardware behind ``cpu`` or ``cuda``, such as ``cpu:AMD EPYC``.

    Raises:
        SpecError: CUDA is asked for and not there.
    """
    if device == "cuda":
        if not torch.cuda.is_available():
            raise SpecError("latency device 'cuda' is not available here; take the device cpu")
        return f"cuda:{torch.cuda.get_device_name()}"
    return f"cpu:{_cpu_name()}"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text("utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def current_profile(spec: LatencySpec) -> LatencyProfile:
    """Complete a spec to the profile of the machine that runs this.

    Raises:
        SpecError: CUDA is asked for and not there.
    """
    device = "cuda" if spec.device == "cuda" else "cpu"
    return LatencyProfile(
        device=hardware_name(device),
        runtime="pytorch-eager",
        threads=spec.threads if device == "cpu" else 0,
        dtype=spec.dtype,
        length=spec.length,
        node=platform.node(),
    )


def require_this_machine(profile: LatencyProfile) -> torch.device:
    """Return the device to measure on.

    Raises:
        LatencyError: the profile is of other hardware.
        SpecError: CUDA is asked for and not there.
    """
    kind = profile.device.partition(":")[0]
    here = hardware_name(kind)
    if here != profile.device:
        raise LatencyError(
            f"the profile is of {profile.device!r}, this machine is {here!r}; measure there, or "
            "build a table for this machine"
        )
    return torch.device(kind)


def single_input(
    profile: LatencyProfile, vocab_size: int, device: torch.device, seed: int = 0
) -> dict[str, Tensor]:
    """Make the one unpadded sequence, (1, T) token ids and mask, that every model is given."""
    generator = torch.Generator().manual_seed(seed)
    # Low ids are padding and other special tokens, from which RoBERTa counts its positions.
    ids = torch.randint(
        min(5, vocab_size - 1), vocab_size, (1, profile.length), generator=generator
    )
    return {"input_ids": ids.to(device), "attention_mask": torch.ones_like(ids).to(device)}


def stopwatch(profile: LatencyProfile) -> Callable[[], float]:
    """Return the clock, in seconds, that times an inference under this profile.

    On a CPU it is :func:`kdnas.latency.clock.cpu_clock`; on a GPU, whose queue is emptied first, it
    is elapsed time.
    """
    return cuda_clock if profile.device.startswith("cuda") else cpu_clock(profile.threads)


def cuda_clock() -> float:
    """Return the time in seconds once the GPU has done what it was given."""
    torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def undisturbed(profile: LatencyProfile) -> Iterator[None]:
    """Inference mode, the profile's threads, no garbage collection; all as before afterwards."""
    threads, collecting = torch.get_num_threads(), gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        if profile.threads:
            torch.set_num_threads(profile.threads)
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()


def interleave(
    reference: Callable[[], object],
    runs: Sequence[Callable[[], object]],
    clock: Callable[[], float],
    effort: Effort,
) -> tuple[list[float], list[list[float]]]:
    """Let calls take turns, the reference before every fourth of them and at the end of a turn.

    The order turns round every other time, so that a steady drift inside the batch hits all alike.

    Returns:
        Milliseconds of the reference's repeats, and of every call's.
    """
    reference_samples: list[float] = []
    samples: list[list[float]] = [[] for _ in runs]

    def sample(run: Callable[[], object], into: list[float]) -> None:
        for _ in range(effort.warmups):
            run()
        for _ in range(effort.repeats):
            started = clock()
            run()
            into.append((clock() - started) * 1e3)

    for turn in range(effort.rounds):
        order = list(range(len(runs)))[:: 1 if turn % 2 == 0 else -1]
        for position, i in enumerate(order):
            if position % REFERENCE_EVERY == 0:
                sample(reference, reference_samples)
            sample(runs[i], samples[i])
        sample(reference, reference_samples)
    return reference_samples, samples


class Bench:
    """Times batches of models against one reference model.

    Args:
        profile: the conditions; must be of this machine.
        reference: the model that shows the machine's drift.
        vocab_size: token ids are drawn below it.
        reference_ms: what the reference took when an earlier run began, to continue that run;
            None takes the first batch as the measure.

    Raises:
        LatencyError: the profile is of other hardware.
    """

    def __init__(
        self,
        profile: LatencyProfile,
        reference: nn.Module,
        vocab_size: int,
        reference_ms: float | None = None,
    ) -> None:
        self.profile = profile
        self.device = require_this_machine(profile)
        self._reference_ms = reference_ms
        self._reference = reference
        self._inputs = single_input(profile, vocab_size, self.device)

    @property
    def pace_ms(self) -> float:
        """What the reference took when the run began: to it all times refer.

        Raises:
            LatencyError: nothing was timed yet.
        """
        if self._reference_ms is None:
            raise LatencyError("the bench has no pace before its first batch; time a batch first")
        return self._reference_ms

    def time(self, models: Sequence[nn.Module], effort: Effort) -> list[Timing]:
        """Time models side by side, the machine's drift since the first batch divided out.

        Raises:
            LatencyError: a model could not be run.
        """

        def runner(model: nn.Module) -> Callable[[], object]:
            return lambda: model(**self._inputs)

        with undisturbed(self.profile):
            try:
                reference_samples, samples = interleave(
                    runner(self._reference),
                    [runner(model) for model in models],
                    stopwatch(self.profile),
                    effort,
                )
            except (RuntimeError, MemoryError) as error:
                reason = " ".join(str(error).split())[:200]
                raise LatencyError(
                    f"a model could not be timed on {self.profile.device} ({reason}); free memory "
                    "or choose another device"
                ) from error
        reference = Timing.of(reference_samples)
        if not reference.ms > 0:
            raise LatencyError(
                f"the clock of {self.profile.device} is too coarse: the reference model took "
                f"{reference.ms} ms; use a greater length"
            )
        if self._reference_ms is None:
            self._reference_ms = reference.ms
        drift = self._reference_ms / reference.ms
        return [Timing.of(own).scaled(drift) for own in samples]
