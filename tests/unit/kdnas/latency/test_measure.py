from __future__ import annotations

import gc
import time

import pytest
import torch
from torch import nn

from kdnas.errors import LatencyError, SpecError
from kdnas.latency.measure import (
    Bench,
    Effort,
    Timing,
    current_profile,
    hardware_name,
    interleave,
    require_this_machine,
    single_input,
    stopwatch,
    undisturbed,
)
from kdnas.records import LatencyProfile
from kdnas.specs.search import LatencySpec

PROFILE = current_profile(LatencySpec(length=8))


class Counted(nn.Module):
    """A model that counts its calls."""

    calls = 0

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return input_ids * attention_mask


def test_profile_of_this_machine() -> None:
    assert PROFILE.device == hardware_name("cpu")
    assert PROFILE.device.startswith("cpu:")
    assert (PROFILE.threads, PROFILE.dtype, PROFILE.length) == (1, "float32", 8)
    assert require_this_machine(PROFILE) == torch.device("cpu")


def test_auto_is_the_cpu() -> None:
    assert current_profile(LatencySpec(device="auto")).device == hardware_name("cpu")


def test_cuda_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SpecError, match="take the device cpu"):
        current_profile(LatencySpec(device="cuda"))


def test_another_machine_is_refused() -> None:
    other = LatencyProfile("cpu:PDP-11", "pytorch-eager", 1, "float32", 8)
    with pytest.raises(LatencyError, match="PDP-11"):
        Bench(other, Counted(), 100)


def test_timing_takes_the_fastest_quarter() -> None:
    timing = Timing.of([4.0, 1.0, 100.0, 2.0, 3.0, 5.0, 6.0, 7.0])
    assert timing.ms == 1.5
    assert timing.spread_ms > 0
    assert timing.scaled(2.0).ms == 3.0


def test_calls_take_turns_and_the_order_turns_round() -> None:
    seen: list[str] = []
    ticks = iter(range(1000))
    reference, samples = interleave(
        lambda: seen.append("r"),
        [lambda: seen.append("a"), lambda: seen.append("b")],
        lambda: float(next(ticks)),
        Effort(rounds=2, repeats=2, warmups=1),
    )
    assert "".join(seen) == "rrraaabbbrrr" + "rrrbbbaaarrr"
    assert len(reference) == 8
    assert samples == [[1000.0] * 4, [1000.0] * 4]


def test_drift_of_the_reference_is_divided_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock by which every inference takes as long as the pace says.
    now, pace = [0.0], [1.0]

    def clock() -> float:
        now[0] += pace[0] / 2
        return now[0]

    monkeypatch.setattr("kdnas.latency.measure.stopwatch", lambda profile: clock)
    bench = Bench(PROFILE, Counted(), 100)
    with pytest.raises(LatencyError, match="first batch"):
        _ = bench.pace_ms
    first = bench.time([Counted()], Effort(1, 4))[0].ms
    pace[0] = 3.0
    assert bench.time([Counted()], Effort(1, 4))[0].ms == pytest.approx(first)
    continued = Bench(PROFILE, Counted(), 100, reference_ms=bench.pace_ms)
    assert continued.time([Counted()], Effort(1, 4))[0].ms == pytest.approx(first)


def test_every_model_is_warmed_up_and_repeated() -> None:
    model = Counted()
    Bench(PROFILE, Counted(), 100).time([model], Effort(rounds=3, repeats=4, warmups=2))
    assert model.calls == 3 * (4 + 2)


def test_a_model_that_fails_is_a_sentence() -> None:
    class Broken(nn.Module):
        def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("out of\nmemory")

    with pytest.raises(LatencyError, match="out of memory"):
        Bench(PROFILE, Counted(), 100).time([Broken()], Effort(1, 1))


@pytest.mark.parametrize("fail", [False, True])
def test_the_callers_state_is_as_before(fail: bool) -> None:
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    three = LatencyProfile(PROFILE.device, "pytorch-eager", threads + 1, "float32", 8)

    def inside() -> None:
        with undisturbed(three):
            assert torch.get_num_threads() == threads + 1
            assert torch.is_inference_mode_enabled()
            assert not gc.isenabled()
            if fail:
                raise KeyError

    if fail:
        with pytest.raises(KeyError):
            inside()
    else:
        inside()
    assert gc.isenabled()
    assert not torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random)


def test_input_is_seeded_and_free_of_special_tokens() -> None:
    first, second = (single_input(PROFILE, 50, torch.device("cpu")) for _ in range(2))
    assert torch.equal(first["input_ids"], second["input_ids"])
    assert first["input_ids"].shape == (1, 8)
    assert first["input_ids"].min() >= 5
    assert bool((first["attention_mask"] == 1).all())


def test_the_clock_of_one_thread_does_not_count_sleep() -> None:
    clock = stopwatch(PROFILE)
    assert clock is time.thread_time
    two = LatencyProfile(PROFILE.device, "pytorch-eager", 2, "float32", 8)
    assert stopwatch(two) is time.perf_counter
