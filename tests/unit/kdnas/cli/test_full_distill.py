"""How a full distillation tells of its held-out readings."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

import kdnas.cli.full_distill
from kdnas.cli.full_distill import full_distill, reading_line, run_and_report, worth
from kdnas.cli.options.places import request_of
from kdnas.db.engine import Database
from kdnas.distill.full import Distilled, FullProgress, HeldOutPoint
from kdnas.errors import KdnasError, SpecError, StoreError, TrainingError
from kdnas.records import Losses
from kdnas.settings import Settings
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.objectives import MultiStageSpec

LOSSES = Losses(0.5, 0.25, 0.625, 0.75)


def line(step: int, loss: float, speed: float) -> str:
    point = HeldOutPoint(step, LOSSES)
    return reading_line(FullProgress(step, 400, loss, speed, "hs", (), point), point)


def test_a_reading_comes_with_the_training_loss_and_the_speed() -> None:
    told = "step 40 loss 0.5000 held-out relative 0.6250 output 0.7500 1234 tokens/s"
    assert " ".join(line(40, 0.5, 1234.5).split()) == told


def test_before_the_first_step_there_is_neither() -> None:
    told = "step 0 held-out relative 0.6250 output 0.7500"
    assert " ".join(line(0, math.nan, 0.0).split()) == told


@pytest.mark.parametrize(
    ("step", "total", "told"),
    [
        (30, 40, "relative loss 0.6250 at step 30, the best one read"),
        (0, 0, "relative loss 0.6250 as it starts, undistilled"),
        (
            0,
            40,
            "relative loss 0.6250 as it starts, which no later reading was better than: "
            "distillation won nothing, a lower --learning-rate or more --steps may",
        ),
    ],
)
def test_the_end_says_whose_the_loss_is(step: int, total: int, told: str) -> None:
    best = HeldOutPoint(step, LOSSES)
    assert worth(Distilled(nn.Linear(1, 1), None, best, (best,), (), total, total)) == told


@pytest.mark.parametrize(
    ("error", "helps"), [(StoreError("the disk is full"), True), (TrainingError("diverged"), False)]
)
@pytest.mark.databases("sqlite")
def test_going_on_is_advised_where_it_can_help(
    error: KdnasError,
    helps: bool,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(kdnas.cli.full_distill, "distil_on_screen", fail)
    record: Any = SimpleNamespace(name="mine")
    with pytest.raises(type(error)):
        run_and_report(record, database, Settings.from_environment({}), as_json=False)
    assert ("go on with: kdnas full-distill --resume mine" in capsys.readouterr().err) == helps


def test_two_starts_at_once_are_refused() -> None:
    with pytest.raises(SpecError, match=r"--init-from \./earlier .* --init warm .* leave one"):
        full_distill(arch="1,2,24,24,relu", init="warm", init_from="./earlier")


def test_the_objectives_options_have_their_places_in_the_spec() -> None:
    asked = {"objective": "hs+od", "mapping": "last", "last_weight": 3.0}
    asked |= {"temperature": 2.0, "fit_lm_head": 100}
    options = inspect.signature(full_distill).parameters.values()
    given = {option.name: asked.get(option.name, option.default) for option in options}
    spec = objective_spec(request_of(full_distill, given)["objective"])
    assert isinstance(spec, MultiStageSpec)
    assert (spec.mapping, spec.last_weight) == ("last", 3.0)
    assert (spec.temperature, spec.fit_lm_head) == (2.0, 100)
