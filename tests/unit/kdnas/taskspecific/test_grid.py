"""Points, trials and the choice of a method's grid, and for which methods β counts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kdnas.errors import TrainingError
from kdnas.specs.task_distillation import TaskGridSpec
from kdnas.taskspecific.grid import (
    TaskPoint,
    TaskTrial,
    best_task_trial,
    task_grid_key,
    task_points,
)
from kdnas.taskspecific.methods.base import NetworkShape, Setting
from kdnas.taskspecific.methods.registry import METHODS
from kdnas.taskspecific.output_space import Classes
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.stages import Hyperparameters

HYPER = Hyperparameters(20, 10, 16, 2e-5, 0.5)
GRID = TaskGridSpec()


def trial(
    score: float | None, *way: float, batch: int = 16, rate: float = 2e-5, beta: float | None = 0.5
) -> TaskTrial:
    ending = "diverged" if score is None else "finished"
    return TaskTrial(TaskPoint(batch, rate, beta), ending, score, way)  # type: ignore[arg-type]


def test_a_grid_is_the_product_of_its_lists() -> None:
    points = task_points(GRID, uses_beta=True)
    values = product((8, 16, 32), (2e-5, 5e-5), (0.2, 0.5, 0.7))
    assert points == tuple(TaskPoint(*value) for value in values)


def test_sizes_that_come_to_the_same_are_tried_once() -> None:
    points = task_points(GRID, uses_beta=False, examples=12)
    assert [point.batch_size for point in points] == [8, 8, 12, 12]
    assert task_points(GRID, uses_beta=True, examples=32) == task_points(GRID, uses_beta=True)


def test_where_beta_counts_for_nothing_it_is_not_varied() -> None:
    points = task_points(GRID, uses_beta=False)
    assert len(points) == 6
    assert {point.beta for point in points} == {None}
    assert points[0].applied_to(HYPER) == replace(HYPER, batch_size=8)


def test_a_point_takes_the_place_of_three_hyper_parameters() -> None:
    point = TaskPoint(32, 5e-5, 0.2)
    assert point.applied_to(HYPER) == replace(HYPER, batch_size=32, learning_rate=5e-5, beta=0.2)
    assert str(point) == "batch 32, rate 5e-05, β 0.2"
    assert str(TaskPoint(8, 1e-4, None)) == "batch 8, rate 0.0001"


def test_no_two_points_share_a_folder() -> None:
    rates = (2e-5, 2.0000001e-5, 1e-5)
    points = [TaskPoint(b, r, w) for b, r, w in product((8, 16), rates, (None, 0.2, 0.25))]
    assert len({point.as_file_name for point in points}) == len(points)
    assert all("/" not in point.as_file_name for point in points)


@given(st.permutations(range(4)))
def test_the_best_is_that_of_the_best_epoch(order: list[int]) -> None:
    trials = [
        trial(0.7, 0.7, 0.6, rate=1e-5),
        trial(0.8, 0.8, 0.5, rate=2e-5),
        trial(None, rate=5e-5),
        trial(0.6, 0.6, 0.6, rate=1e-4),
    ]
    assert best_task_trial("pkd", [trials[place] for place in order]) == trials[1]


@pytest.mark.parametrize(
    ("better", "other"),
    [
        (trial(0.8, 0.8, 0.7), trial(0.8, 0.8, 0.6, batch=32, rate=1e-5)),
        (trial(0.8, 0.3, 0.8), trial(0.8, 0.2, 0.8, batch=32)),
        (trial(0.8, 0.8, batch=32, rate=5e-5), trial(0.8, 0.8, batch=16, rate=2e-5)),
        (trial(0.8, 0.8, rate=2e-5, beta=0.7), trial(0.8, 0.8, rate=5e-5, beta=0.2)),
        (trial(0.8, 0.8, beta=0.2), trial(0.8, 0.8, beta=0.5)),
    ],
)
def test_of_equals_the_one_that_was_better_on_the_way_then_the_shortest(
    better: TaskTrial, other: TaskTrial
) -> None:
    assert best_task_trial("pkd", [better, other]) == better
    assert best_task_trial("pkd", [other, better]) == better


def test_a_grid_of_nothing_but_divergence_says_what_to_do() -> None:
    with pytest.raises(TrainingError) as told:
        best_task_trial("pkd", [trial(None), trial(None, rate=5e-5)])
    assert str(told.value) == (
        "all 2 trials of the grid of pkd diverged; give smaller rates as `grid.learning_rates`"
    )


def test_trials_are_kept_as_json() -> None:
    for one in (trial(0.8, 0.7, 0.8), trial(None), trial(0.5, 0.5, beta=None)):
        assert TaskTrial.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_grid_is_named_by_what_decides_it() -> None:
    points, decides = task_points(GRID, uses_beta=True), {"data": "data", "teacher": "teacher"}
    key = task_grid_key("pkd", points, HYPER, decides)
    tried = replace(HYPER, batch_size=8, learning_rate=1.0, beta=0.0)
    assert key == task_grid_key("pkd", points[::-1], tried, dict(reversed(decides.items())))
    others = {
        key,
        task_grid_key("mhkd", points, HYPER, decides),
        task_grid_key("pkd", points[1:], HYPER, decides),
        task_grid_key("pkd", points, replace(HYPER, epochs=2), decides),
        task_grid_key("pkd", points, HYPER, {**decides, "data": "other"}),
    }
    assert len(others) == 5


@pytest.mark.parametrize("name", METHODS)
def test_beta_counts_where_a_method_says_so(name: str) -> None:
    """The loss is the same for all β exactly where the grid leaves them out."""
    draw = torch.Generator().manual_seed(0)
    kind = METHODS[name]
    sequence = name == "universal-kd-ca"
    student = NetworkShape(3, 8, transformer=not sequence)

    def said(layers: int) -> NetworkOutputs:
        shapes = ((6, 2), (6, layers, 2), (6, layers, 8))
        return NetworkOutputs(*(torch.randn(shape, generator=draw) for shape in shapes))

    own, theirs, labels = said(3), said(6), torch.tensor([0, 1, 1, 0, 1, 0])
    losses = set()
    for beta in (0.2, 0.7):
        method = kind(Setting(Classes(2), student, NetworkShape(6, 8), beta))
        losses.add(round(float(method(own, theirs, labels, 0.5)), 6))
    assert len(losses) == (2 if kind.uses_beta else 1)
