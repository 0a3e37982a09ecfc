"""Objectives at work: real students, a real teacher, a few steps."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kdnas.architecture import Architecture
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import Distilled, FullDistillation, load_distilled
from kdnas.distill.group import MiniKD
from kdnas.records import MiniKDRequest, MiniKDResult
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

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
# hs teaches no student deeper than its teacher, distilbert none that differs in more than depth.
SHALLOW = (*STUDENTS[:2], "4,3,36,64,silu")
COPIES = ("2,4,48,96,gelu", "1,4,48,96,gelu", "4,4,48,96,gelu")
TAUGHT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    **{name: (objective, STUDENTS) for name, objective in OBJECTIVES.items()},
    "od": ({"name": "od"}, STUDENTS),
    "hs+od": ({"name": "hs+od"}, SHALLOW),
    "distilbert": ({"name": "distilbert"}, COPIES),
}


@pytest.fixture(scope="module")
def lab(lab: TinyLab) -> TinyLab:
    return lab.with_lm_head()


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
@pytest.mark.parametrize(("objective", "students"), TAUGHT.values(), ids=TAUGHT)
def test_losses_are_finite_and_equal_to_the_bit_in_any_company(
    lab: TinyLab, objective: dict[str, Any], students: tuple[str, ...], dtype: str
) -> None:
    settings = {"objective": objective, "dtype": dtype, "steps": 4, "dropout": 0.1}
    group = train(lab, *students, **settings)
    for name in students:
        alone = train(lab, name, **settings)[name]
        assert alone.losses is not None
        assert alone.loss_start is not None
        assert all(map(math.isfinite, (alone.loss_start, *astuple(alone.losses))))
        assert bits(alone) == bits(group[name])
    assert len({result.losses for result in group.values()}) == len(students)


def bits(result: MiniKDResult) -> object:
    """All that must be equal; floats compare by their value, which is their bits."""
    return result.loss_start, result.losses, result.curve, result.steps


@pytest.fixture(scope="module")
def factorised(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("electra"), "electra").with_lm_head()


@pytest.mark.parametrize(
    ("objective", "init"),
    [("distilbert", "teacher"), ("hs", "copy"), ("hs+od", "copy"), ("hs+od", "teacher")],
)
def test_a_factorised_embedding_is_learned_with(
    factorised: TinyLab, objective: str, init: str
) -> None:
    """Students that differ from such a teacher in depth alone have one as well."""
    assert factorised.teacher.shape.embedding_size == 24
    for result in train(factorised, *COPIES, objective=objective, init=init, steps=3).values():
        assert result.loss_start is not None
        assert result.losses is not None
        assert all(map(math.isfinite, (result.loss_start, *astuple(result.losses))))


def distil(
    lab: TinyLab, objective: dict[str, Any], student: str, place: Path, *stops: int
) -> Distilled:
    """Distil a student, stopping and going on after these numbers of steps."""
    spec = lab.distillation(student, objective, checkpoint_every=5, steps=8)
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


@pytest.mark.parametrize(("objective", "students"), TAUGHT.values(), ids=TAUGHT)
def test_a_full_distillation_that_stopped_goes_on_to_the_bit(
    lab: TinyLab, objective: dict[str, Any], students: tuple[str, ...], tmp_path: Path
) -> None:
    """At step 6 it stops between the two stages of ``hs+od``, and so the head is fitted anew."""
    whole = distil(lab, objective, students[1], tmp_path / "whole")
    pieces = distil(lab, objective, students[1], tmp_path / "pieces", 3, 3, 1)
    assert whole.finished
    assert pieces.finished
    assert (whole.curve, whole.held_out) == (pieces.curve, pieces.held_out)
    assert equal(whole.student, pieces.student)
    assert (whole.lm_head is None) == (pieces.lm_head is None)
    if whole.lm_head is not None and pieces.lm_head is not None:
        assert equal(whole.lm_head, pieces.lm_head)


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(mine, yours) for mine, yours in pairs)
