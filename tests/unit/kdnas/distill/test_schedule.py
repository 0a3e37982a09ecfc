from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kdnas.distill.numerics import choose_device, choose_dtype, derived_seed, num_threads
from kdnas.distill.schedule import linear_warmup_decay, total_steps
from kdnas.errors import SpecError
from kdnas.specs.parts import TrainingSpec


def test_steps_win_over_epochs() -> None:
    assert total_steps(TrainingSpec(steps=7, epochs=100), 50) == 7
    assert total_steps(TrainingSpec(epochs=4), 50) == 200
    assert total_steps(TrainingSpec(epochs=0.25), 50) == 13
    assert total_steps(TrainingSpec(epochs=0.001), 50) == 1


def test_the_published_schedule() -> None:
    """130 000 steps of which 6500 warm up (Trivedi App. B)."""
    assert linear_warmup_decay(0, 130_000, 0.05) == pytest.approx(1 / 6501)
    assert linear_warmup_decay(6500, 130_000, 0.05) == 1
    assert linear_warmup_decay(68_250, 130_000, 0.05) == pytest.approx(0.5)
    assert linear_warmup_decay(129_999, 130_000, 0.05) == pytest.approx(1 / 123_500)


@given(st.integers(1, 500), st.floats(0, 0.99))
def test_any_schedule_rises_then_falls(steps: int, warmup: float) -> None:
    factors = [linear_warmup_decay(step, steps, warmup) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)
    top = factors.index(max(factors))
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def test_devices_and_formats() -> None:
    assert choose_device("cpu") == "cpu"
    assert choose_dtype("float32", "cpu") == "float32"
    assert choose_dtype("bfloat16", "cpu") == "bfloat16"
    assert choose_dtype("auto", "cpu") in {"float32", "bfloat16"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert choose_device("auto") == "cpu"
    with pytest.raises(SpecError, match="torch sees no GPU; take the device cpu"):
        choose_device("cuda")


def test_seeds_depend_on_every_part() -> None:
    seeds = {derived_seed(*parts) for parts in [("a", 1), ("a", 2), ("b", 1), ("a", 1, "")]}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derived_seed("head", 0, "1,2,24,48,gelu") == 196042961895409471


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    with num_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
