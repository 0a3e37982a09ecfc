"""The engine's contract: on a CPU a student's losses do not depend on its company."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any
from unittest.mock import ANY

import pytest
import torch
from torch import nn

from kdnas.architecture import Architecture
from kdnas.distill.group import MiniKD
from kdnas.distill.numerics import Device
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.batch import Batch
from kdnas.models.families import FAMILIES
from kdnas.models.taps import Activations
from kdnas.objectives.registry import objective_problem
from kdnas.records import MiniKDRequest, MiniKDResult, Rung
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.objectives import OBJECTIVES
from kdnas.specs.parts import TrainingSpec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

STUDENTS = ("2,4,48,96,gelu", "1,2,24,96,relu", "4,3,36,64,silu", "3,4,96,48,gelu")
SETTINGS: list[dict[str, Any]] = [
    {"dtype": dtype, "dropout": dropout}
    for dtype in ("float32", "bfloat16")
    for dropout in (0.0, 0.1)
]

IN_ANOTHER_PROCESS = """
import json, sys
from dataclasses import asdict, replace
from pathlib import Path
import torch
from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.distill.group import MiniKD
from kdnas.models.teacher import open_teacher
from kdnas.records import MiniKDContext, MiniKDRequest
from kdnas.store import Store

torch.set_num_threads(1)
work = json.loads(sys.stdin.read())
store = Store(work["store"], Path(work["store"]))
found = {}
for number, data in enumerate(work["contexts"]):
    context = MiniKDContext(**data)
    corpus = TokenizedCorpus.open(store.fetch("corpus", context.corpus))
    engine = MiniKD(context, open_teacher(context.teacher, store), corpus, store, "cpu")
    requests = [MiniKDRequest(name, Architecture.parse(name)) for name in work["students"]]
    for item in engine.train(requests):
        if not isinstance(item, int):
            curve = [asdict(point) for point in item.curve]
            found[f"{number} {item.candidate_id}"] = [item.loss_start, asdict(item.losses), curve]
print(json.dumps(found))
"""


def requests(names: Sequence[str]) -> list[MiniKDRequest]:
    return [MiniKDRequest(name, Architecture.parse(name)) for name in names]


def train(engine: MiniKD, names: Sequence[str]) -> dict[str, MiniKDResult]:
    return {
        item.candidate_id: item
        for item in engine.train(requests(names))
        if isinstance(item, MiniKDResult)
    }


def bits(result: MiniKDResult) -> object:
    """All that must be equal; floats compare by their value, which is their bits."""
    assert result.losses is not None
    return result.loss_start, result.losses, result.curve, result.steps


def engine_of(lab: TinyLab, **settings: Any) -> MiniKD:
    return MiniKD(lab.context(**settings), lab.teacher, lab.corpus, lab.store, "cpu")


@pytest.mark.parametrize("settings", SETTINGS)
def test_losses_are_equal_to_the_bit_in_any_company(lab: TinyLab, settings: dict[str, Any]) -> None:
    engine = engine_of(lab, **settings)
    alone = {}
    for name in STUDENTS:
        alone |= train(engine, [name])
    torch.manual_seed(99)  # nor does anybody's random state matter
    for group in (STUDENTS, STUDENTS[::-1], STUDENTS[2:] + STUDENTS[:1], STUDENTS[1:3]):
        for name, result in train(engine, group).items():
            assert bits(result) == bits(alone[name])
    assert len({result.losses for result in alone.values()}) == len(STUDENTS)


def test_losses_are_equal_to_the_bit_in_another_process(lab: TinyLab) -> None:
    contexts = [lab.context(**settings) for settings in (SETTINGS[1], SETTINGS[2])]
    work = {
        "store": lab.store.url,
        "students": STUDENTS[1::-1],
        "contexts": [asdict(context) for context in contexts],
    }
    there = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=True,
    )
    here = {}
    for number, context in enumerate(contexts):
        engine = MiniKD(context, lab.teacher, lab.corpus, lab.store, "cpu")
        for name, result in train(engine, STUDENTS[:2]).items():
            assert result.losses is not None
            curve = [asdict(point) for point in result.curve]
            here[f"{number} {name}"] = [result.loss_start, asdict(result.losses), curve]
    assert json.loads(there.stdout) == here


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("init", ["teacher", "warm", "random"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_on_a_gpu_losses_are_nearly_those_of_a_cpu(
    lab: TinyLab, objective: str, init: str, dtype: str
) -> None:
    own = lab.with_lm_head()
    spec = objective_spec(objective)
    context = own.context(dtype, init, objective)
    devices: tuple[Device, ...] = ("cpu", "cuda")
    names = [
        name
        for name in STUDENTS
        if objective_problem(spec, Architecture.parse(name), own.teacher.shape) is None
    ]
    assert names
    here, there = (
        train(MiniKD(context, own.teacher, own.corpus, own.store, device), names)
        for device in devices
    )
    for name in names:
        one, other = here[name], there[name]
        assert one.losses is not None
        assert other.losses is not None, other.error
        near = 2e-2 if dtype == "bfloat16" else 1e-3
        assert other.loss_start == pytest.approx(one.loss_start, rel=1e-4)
        assert other.losses.relative == pytest.approx(one.losses.relative, rel=near)
        assert other.losses.training == pytest.approx(one.losses.training, rel=near)


def test_readings_on_the_way_change_nothing(lab: TinyLab) -> None:
    """Of a training of 10 steps, alone and beside one that is read otherwise."""
    engine, names = engine_of(lab, dropout=0.1), STUDENTS[:2]
    plain = train(engine, names)
    asked = [
        MiniKDRequest(names[0], Architecture.parse(names[0]), (0, 3, 7, 10)),
        MiniKDRequest(names[1], Architecture.parse(names[1]), (5,)),
    ]
    read = {r.candidate_id: r for r in engine.train(asked) if isinstance(r, MiniKDResult)}
    assert {name: bits(result) for name, result in read.items()} == {
        name: bits(result) for name, result in plain.items()
    }
    steps = {name: [r.step for r in result.readings] for name, result in read.items()}
    assert steps == {names[0]: [0, 3, 7, 10], names[1]: [0, 5, 10]}
    for result in read.values():
        first, *others = result.readings
        assert first.losses.relative == result.loss_start
        assert math.isnan(first.losses.training)
        assert others[-1].losses == result.losses
        relative = [reading.losses.relative for reading in result.readings]
        assert len(set(relative)) == len(relative)
    assert [r.step for r in plain[names[0]].readings] == [0, 10]


def test_a_student_may_end_before_its_schedule_does(lab: TinyLab) -> None:
    """It is where the others were at that step, in the schedule of all ten."""
    engine = engine_of(lab)
    ends = dict(zip(STUDENTS, (0, 4, None, 99), strict=True))
    asked = [MiniKDRequest(n, Architecture.parse(n), (4,), end) for n, end in ends.items()]
    items = list(engine.train(asked))
    found = {item.candidate_id: item for item in items if isinstance(item, MiniKDResult)}
    assert [found[name].steps for name in STUDENTS] == [0, 4, 10, 10]
    assert [item for item in items if isinstance(item, int)] == list(range(1, 11))
    whole = train(engine, STUDENTS)
    for name in STUDENTS[2:]:
        assert bits(found[name]) == bits(whole[name])
    assert [r.step for r in found[STUDENTS[0]].readings] == [0]
    requests_of_four = [MiniKDRequest("four", Architecture.parse(STUDENTS[1]), (4,))]
    (four,) = [r for r in engine.train(requests_of_four) if isinstance(r, MiniKDResult)]
    assert found[STUDENTS[1]].losses == four.readings[1].losses
    assert [*engine.train([MiniKDRequest("x", Architecture.parse(STUDENTS[0]), (), 0)])] == [
        replace(found[STUDENTS[0]], candidate_id="x", train_seconds=ANY)
    ]


@pytest.mark.parametrize("objective", ["hs", "hs+od"])
def test_who_is_stopped_at_a_rung_changes_nothing_for_its_companions(
    lab: TinyLab, objective: str
) -> None:
    """Its loss is that of a whole training at that step, and its memory is free at once."""
    lab = lab.with_lm_head() if objective == "hs+od" else lab
    engine = engine_of(lab, dropout=0.1, objective=objective)
    asked = [MiniKDRequest(n, Architecture.parse(n), (3, 7)) for n in STUDENTS]
    whole = {r.candidate_id: r for r in engine.train(asked) if isinstance(r, MiniKDResult)}
    at_three = {name: result.readings[1].losses.output for name, result in whole.items()}
    limits = [Rung(3, value, "output") for value in at_three.values()]
    low = [replace(rung, most=rung.most - 1e-9) for rung in limits]
    rungs = [(low[0],), (limits[1],), (limits[2], replace(low[2], step=7, most=0.0)), (low[3],)]
    some = [replace(r, rungs=own) for r, own in zip(asked, rungs, strict=True)]
    living, found = {}, {}
    for item in engine.train(some):
        if isinstance(item, MiniKDResult):
            found[item.candidate_id] = item
        else:
            gc.collect()
            living[item] = sum(isinstance(o, torch.optim.AdamW) for o in gc.get_objects())
    assert living == {step: 4 if step <= 3 else 2 if step <= 7 else 1 for step in range(1, 11)}
    assert [found[name].stopped for name in STUDENTS] == [True, False, True, True]
    assert [found[name].steps for name in STUDENTS] == [3, 10, 7, 3]
    for name, steps in zip(STUDENTS, (3, 10, 7, 3), strict=True):
        assert found[name].readings == tuple(r for r in whole[name].readings if r.step <= steps)
        assert found[name].curve == tuple(p for p in whole[name].curve if p.step <= steps)
        assert (found[name].losses, found[name].error) == (
            whole[name].losses if steps == 10 else None,
            None,
        )


def test_when_all_are_stopped_the_teacher_rests(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, runs = engine_of(lab), 0
    once = TeacherPass.__call__

    def counted(self: TeacherPass, batch: Batch, *, exact: bool = False) -> Activations:
        nonlocal runs
        runs += not exact
        return once(self, batch, exact=exact)

    monkeypatch.setattr(TeacherPass, "__call__", counted)
    asked = [replace(r, rungs=(Rung(2, 0.0),)) for r in requests(STUDENTS[:2])]
    asked.append(MiniKDRequest("last", Architecture.parse(STUDENTS[2]), last_step=4))
    items = list(engine.train(asked))
    assert [item for item in items if isinstance(item, int)] == [1, 2, 3, 4]
    assert runs == 4
    shares = [item.train_seconds for item in items if isinstance(item, MiniKDResult)]
    assert shares[0] == shares[1] < shares[2]


def test_who_starts_too_badly_is_not_trained(lab: TinyLab) -> None:
    engine = engine_of(lab)
    whole = train(engine, STUDENTS[:2])
    first, second = requests(STUDENTS[:2])
    asked = [replace(first, rungs=(Rung(0, 0.0),)), replace(second, rungs=(Rung(0, 9.0),))]
    found = {r.candidate_id: r for r in engine.train(asked) if isinstance(r, MiniKDResult)}
    bad, good = found[STUDENTS[0]], found[STUDENTS[1]]
    assert (bad.stopped, bad.steps, bad.losses, bad.error) == (True, 0, None, None)
    assert [r.step for r in bad.readings] == [0]
    assert bad.loss_start == whole[STUDENTS[0]].loss_start
    assert bits(good) == bits(whole[STUDENTS[1]])


def test_a_rung_at_the_end_stops_nobody(lab: TinyLab) -> None:
    engine = engine_of(lab)
    (asked,) = requests(STUDENTS[:1])
    (whole,) = train(engine, STUDENTS[:1]).values()
    late = replace(asked, rungs=(Rung(10, 0.0), Rung(99, 0.0)))
    (found,) = [r for r in engine.train([late]) if isinstance(r, MiniKDResult)]
    assert bits(found) == bits(whole)


def test_dropout_dtype_start_and_seed_do_matter(lab: TinyLab) -> None:
    settings = [{}, *SETTINGS[1:], {"init": "random"}, {"seed": 1}]
    losses = {train(engine_of(lab, **s), STUDENTS[:1])[STUDENTS[0]].losses for s in settings}
    assert len(losses) == len(settings)


def let_one_go_wild(engine: MiniKD, architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the student of this architecture at a learning rate of 10⁶."""
    calm = engine._setup.trainer

    def trainer(
        student: nn.Module, arch: Architecture, plan: StagePlan, spec: TrainingSpec
    ) -> StudentTrainer:
        if str(arch) == architecture:
            spec = spec.model_copy(update={"learning_rate": 1e6})
        return calm(student, arch, plan, spec)

    monkeypatch.setattr(engine._setup, "trainer", trainer)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_student_that_diverges_fails_alone(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    context = lab.context(dropout=0.1)
    calm = train(MiniKD(context, lab.teacher, lab.corpus, lab.store, "cpu"), STUDENTS[:2])
    group = requests(STUDENTS[:2])
    group.insert(position, MiniKDRequest("wild", Architecture.parse(STUDENTS[2])))
    engine = MiniKD(context, lab.teacher, lab.corpus, lab.store, "cpu")
    let_one_go_wild(engine, STUDENTS[2], monkeypatch)
    found = {r.candidate_id: r for r in engine.train(group) if isinstance(r, MiniKDResult)}
    wild = found.pop("wild")
    assert (wild.succeeded, wild.losses) == (False, None)
    assert wild.error
    assert wild.error.startswith("diverged: the training loss was")
    assert "learning_rate" in wild.error
    assert wild.steps < 10
    assert {name: bits(r) for name, r in found.items()} == {n: bits(r) for n, r in calm.items()}


def test_when_all_diverge_the_group_ends_early(lab: TinyLab) -> None:
    engine = engine_of(lab, learning_rate=1e6)
    items = list(engine.train(requests(STUDENTS)))
    assert [i for i in items if isinstance(i, int)] == list(range(1, len(items) - 3))
    assert len(items) - 4 < engine.steps
    assert all(r.error for r in items if isinstance(r, MiniKDResult))
    assert len(train(engine, STUDENTS)) == 4  # the engine goes on


def test_a_last_step_that_ruins_the_weights_is_noticed(lab: TinyLab) -> None:
    """The training loss was read before it, so only the held-out losses can tell."""
    result = train(engine_of(lab, learning_rate=1e30, steps=1), STUDENTS[:1])[STUDENTS[0]]
    assert (result.succeeded, result.losses) == (False, None)
    assert result.error
    assert "held-out loss was nan" in result.error


def test_progress_results_and_curve(lab: TinyLab) -> None:
    engine = engine_of(lab, steps=4)
    items = list(engine.train(requests(STUDENTS[:2])))
    assert items[:4] == [1, 2, 3, 4]
    results = [item for item in items[4:] if isinstance(item, MiniKDResult)]
    assert [r.candidate_id for r in results] == list(STUDENTS[:2])
    for result in results:
        assert result.steps == 4
        assert result.train_seconds > 0
        assert [p.step for p in result.curve] == [1, 2, 3, 4]
        assert result.losses is not None
        assert result.losses.training == result.curve[-1].loss


def test_a_group_that_is_left_in_the_middle_leaves_the_teacher_whole(lab: TinyLab) -> None:
    engine = engine_of(lab)
    expected = bits(train(engine, STUDENTS[:1])[STUDENTS[0]])
    left = engine.train(requests(STUDENTS[1:2]))
    next(left)
    left.close()
    assert bits(train(engine, STUDENTS[:1])[STUDENTS[0]]) == expected


@pytest.mark.parametrize(("init", "most"), [("teacher", 0.8), ("random", 0.1)])
def test_training_teaches(lab: TinyLab, init: str, most: float) -> None:
    """Also what begins as a piece of its teacher, half as wide and half as deep."""
    result = train(engine_of(lab, init=init, steps=120, learning_rate=1e-2), ["2,4,24,48,gelu"])
    losses, start = result["2,4,24,48,gelu"].losses, result["2,4,24,48,gelu"].loss_start
    assert losses is not None
    assert start is not None
    assert losses.relative < most * start
    assert losses.output < 0.8


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name != "bert"])
def test_the_contract_holds_in_every_family(
    model_type: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A two-layer teacher of each family; BERT is the lab's."""
    lab = make_tiny_lab(tmp_path_factory.mktemp(model_type), model_type, layers=2)
    engine = engine_of(lab, steps=3)
    names = ("2,4,24,48,gelu", "1,2,60,48,relu")
    together = train(engine, names)
    for name in names:
        assert bits(train(engine, [name])[name]) == bits(together[name])
        losses = together[name].losses
        assert losses is not None
        assert all(0 < loss < math.inf for loss in asdict(losses).values())
