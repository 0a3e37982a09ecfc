"""Objectives at work: real students, a real teacher, a few steps."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, load_distilled
from kdnas.distill.group import MiniKD
from kdnas.records import MiniKDRequest, MiniKDResult
from kdnas.testing.tiny_lab import TinyLab

STUDENTS = ("2,4,48,96,gelu", "1,2,24,96,relu", "6,3,36,64,silu")  # one is deeper than the teacher
OBJECTIVES: dict[str, dict[str, Any]] = {
    "minilmv2": {"name": "minilmv2", "relation_heads": 4},
    "minilmv2 of other relations": {
        "name": "minilmv2",
        "relations": {"qk": 1.0, "vq": 0.5},
        "relation_heads": 2,
        "teacher_layer": 4,
    },
    "direct-minilm": {"name": "direct-minilm"},
    "direct-minilm, orthogonal": {"name": "direct-minilm", "orthogonal": True},
}


def train(lab: TinyLab, *students: str, **context: Any) -> dict[str, MiniKDResult]:
    engine = MiniKD(lab.context(**context), lab.teacher, lab.corpus, lab.store, "cpu")
    requests = [MiniKDRequest(name, Architecture.parse(name)) for name in students]
    return {r.candidate_id: r for r in engine.train(requests) if isinstance(r, MiniKDResult)}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_training_lowers_the_held_out_losses(lab: TinyLab, objective: dict[str, Any]) -> None:
    # A start from the teacher leaves forty steps too little to learn.
    short, long = (
        train(lab, *STUDENTS, objective=objective, steps=steps, learning_rate=rate, init="warm")
        for steps, rate in ((1, 1e-9), (40, 4e-3))
    )
    for name in STUDENTS:
        before, after = short[name].losses, long[name].losses
        assert before is not None
        assert after is not None
        for loss in ("mean", "relative", "output"):
            assert after.named(loss) < 0.9 * before.named(loss)
        assert long[name].curve[-1].loss < long[name].curve[0].loss


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_losses_are_finite_and_equal_to_the_bit_in_any_company(
    lab: TinyLab, objective: dict[str, Any], dtype: str
) -> None:
    settings = {"objective": objective, "dtype": dtype, "steps": 4, "dropout": 0.1}
    group = train(lab, *STUDENTS, **settings)
    for name in STUDENTS:
        alone = train(lab, name, **settings)[name]
        assert alone.losses is not None
        assert all(map(math.isfinite, astuple(alone.losses)))
        assert (alone.losses, alone.curve) == (group[name].losses, group[name].curve)
    assert len({result.losses for result in group.values()}) == len(STUDENTS)


def distil(lab: TinyLab, objective: dict[str, Any], place: Path, *stops: int) -> Distilled:
    """Distil a student, stopping and going on after these numbers of steps."""
    spec = lab.distillation(STUDENTS[1], objective, checkpoint_every=5, steps=8)
    checkpoints = Checkpoints(str(place))
    for stop in (*stops, 0):
        asked = count(1)
        run = FullDistillation(
            spec, lab.teacher, lab.corpus, lab.store, checkpoints, "cpu", "float32"
        )
        run.run(should_stop=lambda asked=asked, stop=stop: next(asked) == stop)
    found = load_distilled(spec, lab.teacher, checkpoints)
    assert found is not None
    return found


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_full_distillation_that_stopped_goes_on_to_the_bit(
    lab: TinyLab, objective: dict[str, Any], tmp_path: Path
) -> None:
    whole = distil(lab, objective, tmp_path / "whole")
    halved = distil(lab, objective, tmp_path / "halved", 3)
    assert whole.finished
    assert halved.finished
    assert (whole.curve, whole.held_out) == (halved.curve, halved.held_out)
    pairs = zip(whole.student.parameters(), halved.student.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
