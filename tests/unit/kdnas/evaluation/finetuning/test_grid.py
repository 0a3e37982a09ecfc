"""Points, trials and the choice of a grid."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import TrainingError
from kdnas.evaluation.finetuning.grid import GridPoint, Trial, best_trial, grid_key, grid_points
from kdnas.evaluation.settings import FinetuneSettings, Grid

RATES, EPOCHS = (1e-5, 2e-5, 3e-5, 5e-5), (3.0, 5.0, 10.0)
SETTINGS = FinetuneSettings(2e-5, 3, grid=Grid(RATES, EPOCHS))


def trial(rate: float, epochs: float, *scores: float, ending: str = "finished") -> Trial:
    return Trial(GridPoint(rate, epochs), ending, scores)  # type: ignore[arg-type]


def test_a_grid_is_the_product_of_its_lists() -> None:
    points = grid_points(SETTINGS, 100)
    assert points == tuple(GridPoint(*pair) for pair in product(RATES, EPOCHS))


@given(st.integers(1, 5000), st.integers(1, 2000))
def test_what_a_cut_makes_alike_is_tried_once(examples: int, max_steps: int) -> None:
    points = grid_points(replace(SETTINGS, max_steps=max_steps), examples)
    steps = {
        (rate, epochs): min(max_steps, -(-examples // 32) * epochs)
        for rate, epochs in product(RATES, EPOCHS)
    }
    tried = [(p.learning_rate, steps[p.learning_rate, p.epochs]) for p in points]
    assert len(tried) == len(set(tried))
    assert set(tried) == {(rate, length) for (rate, _), length in steps.items()}


@given(st.permutations(range(4)))
def test_the_best_is_the_best_at_the_end(order: list[int]) -> None:
    trials = [
        trial(1e-5, 3, 0.9, 0.9, 0.7),
        trial(2e-5, 3, 0.5, 0.6, 0.8),
        trial(3e-5, 3, 0.99, ending="pruned"),
        trial(5e-5, 3, -1.0, ending="diverged"),
    ]
    assert best_trial(trials[i] for i in order) == trials[1]


def test_of_equals_it_is_the_one_that_was_better_on_the_way_then_the_shortest() -> None:
    slow, quick = trial(1e-5, 3, 0.1, 0.2, 0.8), trial(2e-5, 10, 0.1, 0.5, 0.8)
    assert best_trial([slow, quick]) == quick
    assert best_trial([quick, trial(2e-5, 5, 0.1, 0.5, 0.8)]).point.epochs == 5


def test_a_grid_that_diverged_says_so() -> None:
    with pytest.raises(TrainingError, match=r"smaller rates as `grid\.learning_rates`"):
        best_trial([trial(0.9, 3, -1.0, ending="diverged")])


def test_trials_are_kept_as_json() -> None:
    for one in (trial(1e-5, 2.5, 0.1, 0.2, 0.3), trial(2e-5, 3, 0.5, ending="pruned")):
        assert Trial.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_grid_is_named_by_what_decides_it() -> None:
    key = grid_key("model", "SST-2", "data", SETTINGS)
    assert key == grid_key("model", "SST-2", "data", replace(SETTINGS, early_stopping=2))
    others = {
        key,
        grid_key("other", "SST-2", "data", SETTINGS),
        grid_key("model", "SST-2", "other", SETTINGS),
        grid_key("model", "SST-2", "data", replace(SETTINGS, max_steps=5)),
        grid_key("model", "SST-2", "data", replace(SETTINGS, grid=Grid(RATES, (3.0,)))),
        grid_key("model", "SST-2", "data", SETTINGS, "3 layers"),
    }
    assert len(others) == 6
