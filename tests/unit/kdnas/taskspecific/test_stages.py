"""How a run is cut into its stages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kdnas.taskspecific.stages import Hyperparameters, Stage, stages_of

HYPER = Hyperparameters(epochs=3, finetune_epochs=2, batch_size=8, learning_rate=1e-3, beta=0.5)


def test_each_stage_has_its_epochs() -> None:
    assert stages_of(HYPER, 5) == (Stage(1, 15, 5), Stage(2, 10, 5))


@pytest.mark.parametrize(("limit", "steps"), [(1, (1, 1)), (12, (12, 10)), (100, (15, 10))])
def test_a_limit_cuts_either_stage(limit: int, steps: tuple[int, int]) -> None:
    found = stages_of(replace(HYPER, max_steps=limit), 5)
    assert tuple(stage.steps for stage in found) == steps


@pytest.mark.parametrize(
    ("epochs", "steps", "begun"), [(0.5, 3, 1), (1.0, 5, 1), (1.1, 6, 2), (0.001, 1, 1)]
)
def test_a_part_of_an_epoch_is_rounded_up_to_a_step(epochs: float, steps: int, begun: int) -> None:
    first, _ = stages_of(replace(HYPER, epochs=epochs), 5)
    assert (first.steps, first.epochs) == (steps, begun)


def test_epochs_end_with_their_last_step_and_with_the_stage() -> None:
    stage = Stage(1, 7, 3)
    assert [step for step in range(1, 8) if stage.ends_epoch(step)] == [3, 6, 7]
    assert [stage.epoch_of(step) for step in range(7)] == [1, 1, 1, 2, 2, 2, 3]
    assert stage.epochs == 3


def test_shares_of_epochs_climb_to_one() -> None:
    """What ``annealing-kd`` goes by: from 1/E on, and 1 in the last epoch, however it is cut."""
    for stage in (Stage(1, 15, 5), Stage(1, 12, 5), Stage(1, 2, 5)):
        shares = [stage.epoch_of(step) / stage.epochs for step in range(stage.steps)]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (1 / stage.epochs, 1.0)


def test_they_are_read_back_from_json_that_has_more_in_it() -> None:
    stored = json.loads(json.dumps({**HYPER.to_json(), "device": "cpu"}))
    assert Hyperparameters.from_json(stored) == HYPER
