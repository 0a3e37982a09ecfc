"""What is learned beside a student is fitted to its start, and starts are read without training."""

from __future__ import annotations

import math
import shutil
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from kdnas.architecture import Architecture
from kdnas.corpus.batches import pad_batch
from kdnas.corpus.tokenized import build_corpus
from kdnas.distill.group import MiniKD
from kdnas.distill.held_out import HeldOut
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import plan_stages
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.errors import TeacherError, TrainingError
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.objectives.registry import build_stages
from kdnas.records import Losses, MiniKDRequest, MiniKDResult
from kdnas.search_space import AXES
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import CorpusSpec, StudentSpec
from kdnas.specs.search import ProxySpec
from kdnas.testing.tiny_lab import PROXY, TinyLab

STUDENTS = tuple(
    Architecture.parse(name) for name in ("2,4,48,96,gelu", "1,2,24,96,relu", "4,3,36,64,silu")
)
FITTED: tuple[Any, ...] = (
    "hs",
    {"name": "direct-minilm", "relation_heads": 4},
    {"name": "direct-minilm", "relation_heads": 4, "orthogonal": True},
)


@pytest.fixture(scope="module")
def short_lab(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """The same teacher with less text than a start takes."""
    folder = tmp_path_factory.mktemp("short")
    lines = [" ".join("abcdefghijklmnopqrst"[i : i + 3]) for i in range(16)]
    (folder / "few.txt").write_text("\n".join(lines) + "\n", "utf-8")
    spec = CorpusSpec(source=(str(folder / "few.txt"),), held_out_fraction=0.2)
    return replace(lab, corpus=build_corpus(spec, lab.teacher.folder, lab.store))


def start_losses(
    lab: TinyLab,
    objective: Any,
    init: str,
    architecture: Architecture,
    fit: bool,
    origin: TeacherHandle | None = None,
) -> tuple[Losses, dict[str, torch.Tensor]]:
    """Held-out losses before the first step, and what was learned beside the student."""
    start, text = StudentSpec.model_validate(init), CalibrationText(lab.corpus, lab.store)
    setup = Setup(lab.teacher, text, "cpu", "float32", start, origin)
    spec = ProxySpec.model_validate(PROXY)
    plan = plan_stages(build_stages(objective_spec(objective)), 10)[0]
    student = setup.student(architecture, plan, spec)
    with closing(setup.trainer(student, architecture, plan, spec)) as trainer:
        if fit:
            setup.fit(trainer)
        with setup.teacher_pass([trainer]) as teacher:
            (losses,) = HeldOut(setup, lab.corpus, spec).losses(teacher, [trainer])
        return losses, {k: v.clone() for k, v in trainer.head.state_dict().items()}


@pytest.mark.parametrize("init", ["teacher", "warm"])
@pytest.mark.parametrize("objective", FITTED, ids=["hs", "direct-minilm", "orthogonal"])
def test_the_fit_beats_random_projections(lab: TinyLab, objective: Any, init: str) -> None:
    architecture = Architecture.parse("2,4,24,96,gelu")
    random, _ = start_losses(lab, objective, init, architecture, fit=False)
    fitted, _ = start_losses(lab, objective, init, architecture, fit=True)
    assert fitted.relative < random.relative


@pytest.mark.parametrize("objective", FITTED, ids=["hs", "direct-minilm", "orthogonal"])
def test_a_random_start_stays_random(lab: TinyLab, objective: Any) -> None:
    architecture = Architecture.parse("2,4,24,96,gelu")
    left, fitted = (
        start_losses(lab, objective, "random", architecture, fit=fit) for fit in (False, True)
    )
    assert left[0] == fitted[0]


def test_how_students_start_counts_for_nothing_where_one_was_trained_before(lab: TinyLab) -> None:
    """With the teacher itself for such a student: once W is fitted, nothing is missed."""
    own = Architecture(*(getattr(lab.teacher.shape, axis) for axis in AXES))
    for init in ("teacher", "random"):
        losses, _ = start_losses(lab, "hs", init, own, fit=True, origin=lab.teacher)
        assert losses.relative < 1e-5


@pytest.mark.parametrize("objective", FITTED, ids=["hs", "direct-minilm", "orthogonal"])
def test_too_little_text_leaves_projections_as_they_were(
    short_lab: TinyLab, objective: Any
) -> None:
    architecture = Architecture.parse("2,4,24,96,gelu")
    before, after = (
        start_losses(short_lab, objective, "warm", architecture, fit=fit) for fit in (False, True)
    )
    assert all(torch.equal(value, after[1][name]) for name, value in before[1].items())
    assert math.isfinite(after[0].relative)


@pytest.fixture(scope="module")
def broken_lab(lab: TinyLab, tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    """The same text with a teacher whose second layer says the same of every token."""
    folder = shutil.copytree(lab.teacher.folder, tmp_path_factory.mktemp("broken") / "teacher")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.weight"].zero_()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return replace(lab, teacher=prepare_teacher(str(folder), lab.store))


@pytest.mark.parametrize("init", ["teacher", "warm", "copy", "random"])
@pytest.mark.parametrize("objective", ["hs", {"name": "minilmv2", "relation_heads": 4}])
def test_a_broken_teacher_is_found_even_where_nothing_is_fitted(
    broken_lab: TinyLab, objective: Any, init: str
) -> None:
    with pytest.raises(TeacherError, match="states of layer 2 are the same for every token"):
        start_losses(broken_lab, objective, init, STUDENTS[0], fit=True)


@pytest.mark.parametrize("objective", ["hs", {"name": "minilmv2", "relation_heads": 4}])
def test_a_broken_teacher_is_found_with_too_little_text_as_well(
    broken_lab: TinyLab, short_lab: TinyLab, objective: Any
) -> None:
    lab = replace(broken_lab, corpus=short_lab.corpus)
    with pytest.raises(TeacherError, match="states of layer 2 are the same for every token"):
        start_losses(lab, objective, "warm", STUDENTS[0], fit=True)


def test_a_search_on_too_little_text_runs_from_a_warm_start(short_lab: TinyLab) -> None:
    context = short_lab.context(init="warm", fraction=1.0, batch_size=4, held_out=8)
    engine = MiniKD(context, short_lab.teacher, short_lab.corpus, short_lab.store, "cpu")
    engine.prepare()
    for _, losses in engine.read(STUDENTS):
        assert math.isfinite(losses.relative)


@pytest.mark.parametrize("objective", ["hs", {"name": "direct-minilm", "relation_heads": 4}])
@pytest.mark.parametrize("init", ["teacher", "warm"])
def test_starts_read_without_training_are_those_of_the_training(
    lab: TinyLab, objective: Any, init: str
) -> None:
    students = [a for a in STUDENTS if a.hidden % 4 == 0]

    def engine() -> MiniKD:
        context = lab.context(init=init, objective=objective, steps=1)
        return MiniKD(context, lab.teacher, lab.corpus, lab.store, "cpu")

    read = dict(engine().read(students))
    assert list(read) == students
    requests = [MiniKDRequest(str(a), a) for a in students]
    trained = [item for item in engine().train(requests) if isinstance(item, MiniKDResult)]
    assert {r.architecture: r.loss_start for r in trained} == {
        a: losses.relative for a, losses in read.items()
    }
    # Any order and number of students, and a start can be read twice.
    again = dict(engine().read([students[1], students[0], students[1]]))
    assert again == {a: read[a] for a in (students[1], students[0])}


def test_what_is_read_aside_stays_in_no_trainers_tap(lab: TinyLab) -> None:
    """Or it would be held until the next step, and a compiled student be compiled once more."""
    start = StudentSpec.model_validate("warm")
    setup = Setup(lab.teacher, CalibrationText(lab.corpus, lab.store), "cpu", "float32", start)
    spec = ProxySpec.model_validate(PROXY)
    plan = plan_stages(build_stages(objective_spec("hs")), 10)[0]
    student = setup.student(STUDENTS[0], plan, spec)
    with closing(setup.trainer(student, STUDENTS[0], plan, spec)) as trainer:
        setup.fit(trainer)
        assert not trainer._tap.take(setup.batch(pad_batch(lab.corpus, np.arange(2)))).hidden


def test_a_start_that_cannot_be_read_is_named(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MiniKD(lab.context(init="warm"), lab.teacher, lab.corpus, lab.store, "cpu")
    whole = engine._setup.trainer

    def broken(student: nn.Module, *rest: Any) -> StudentTrainer:
        student.get_parameter("encoder.layer.0.output.dense.weight").data.fill_(math.nan)
        return whole(student, *rest)

    monkeypatch.setattr(engine._setup, "trainer", broken)
    monkeypatch.setattr(engine._setup, "fit", lambda trainer: None)
    with pytest.raises(TrainingError, match=f"{STUDENTS[0]} cannot be read: .*before the first"):
        next(engine.read(STUDENTS[:1]))


def test_reading_starts_is_lazy(lab: TinyLab) -> None:
    engine = MiniKD(lab.context(init="teacher"), lab.teacher, lab.corpus, lab.store, "cpu")
    wrong = Architecture.parse("9,4,48,96,gelu")  # deeper than its teacher, which hs refuses
    found = engine.read([STUDENTS[0], wrong])
    assert next(found)[0] == STUDENTS[0]
