"""What a sweep may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.specs.load import load_preset
from kdnas.specs.sweep import SweepSpec


def test_the_last_reading_ends_a_training_and_its_schedule() -> None:
    spec = SweepSpec.read({"steps": [0, 30, 120], "seeds": [3, 5], "proxy": {"epochs": 2}}, "sweep")
    assert spec.trains
    proxy = spec.proxy_of(5)
    assert (proxy.steps, proxy.epochs, proxy.seed) == (120, 2, 5)
    assert SweepSpec.read(spec.to_json(), "again") == spec


def test_reading_starts_trains_nothing() -> None:
    spec = SweepSpec.read({}, "sweep")
    assert (spec.steps, spec.seeds, spec.states) == ((0,), (0,), None)
    assert not spec.trains
    assert spec.proxy_of(0) == spec.proxy


def test_a_preset_trains_students_of_a_sweep_as_those_of_its_search() -> None:
    whole, part = load_preset("laptop", "search"), load_preset("laptop", "sweep")
    assert {key: whole[key] for key in part} == part
    assert whole.keys() - part.keys() == {"goal", "reward", "controller"}
    assert SweepSpec.read(part, "preset").proxy.learning_rate == 1e-3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"steps": []}, "steps: "),
        ({"steps": [60, 0]}, "rising order, not [60, 0]"),
        ({"steps": [0, 0]}, "rising order, not [0, 0]"),
        ({"steps": [-1]}, "not -1"),
        ({"steps": list(range(21))}, "a list of 1 to 20"),
        ({"seeds": [1, 1]}, "give each seed once, not [1, 1]"),
        ({"seeds": []}, "seeds: "),
        ({"proxy": {"steps": 40, "rungs": [30]}}, "trains every state to its end"),
        ({"states": 0}, "not 0"),
        ({"states": 10**18}, "1000000000"),
        ({"controller": {}}, "unknown key 'controller'"),
    ],
)
def test_what_means_nothing_is_refused(data: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as raised:
        SweepSpec.read(data, "sweep")
    assert said in str(raised.value)
