"""What an objective leaves open is done once, before training, and written into the request."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForMaskedLM

from api.inputs.preparation import check_objective, prepare_objective
from kdnas.architecture import Architecture
from kdnas.errors import CancelledError, TeacherError
from kdnas.latency.device_lock import measuring_lock
from kdnas.models.lm_head import has_lm_head
from kdnas.models.student import build_student
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab
from kdnas.testing.tiny_teacher import make_tiny_teacher

ARCHITECTURE = Architecture(2, 2, 24, 48, "gelu")
TRAINING = TrainingSpec(steps=4, batch_size=8, learning_rate=2e-3, held_out=24)
MASKED_LM = ({"name": "od"}, {"name": "distilbert"}, {"name": "hs+od"})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def prepare(
    lab: TinyLab,
    objective: Any,
    teacher: TeacherHandle | None = None,
    origin: TeacherHandle | None = None,
) -> tuple[Any, TeacherHandle, list[tuple[str, int, int]]]:
    told: list[tuple[str, int, int]] = []
    found, with_head = prepare_objective(
        objective_spec(objective),
        ARCHITECTURE,
        teacher or lab.teacher,
        lab.corpus,
        lab.store,
        StudentSpec(),
        TRAINING,
        "cpu",
        "float32",
        1,
        lambda what, done, total: told.append((what, done, total)),
        origin,
    )
    return found, with_head, told


@pytest.mark.parametrize("objective", MASKED_LM)
def test_a_teacher_without_a_head_is_refused_unless_one_is_to_be_fitted(
    lab: TinyLab, objective: dict[str, Any]
) -> None:
    with pytest.raises(TeacherError, match=r"no masked-LM head.*add `objective.fit_lm_head`"):
        check_objective(objective_spec(objective), lab.teacher)
    check_objective(objective_spec(objective | {"fit_lm_head": 3}), lab.teacher)


@pytest.mark.parametrize("objective", ["hs", "minilmv2", "direct-minilm"])
def test_what_is_left_to_no_one_stays_as_it_is(lab: TinyLab, objective: str) -> None:
    check_objective(objective_spec(objective), lab.teacher)
    found, teacher, told = prepare(lab, objective)
    assert found == objective_spec(objective)
    assert teacher is lab.teacher
    assert not told


def test_a_head_is_fitted_once_and_named_in_the_request(lab: TinyLab) -> None:
    asked = {"name": "od", "fit_lm_head": 3}
    found, teacher, told = prepare(lab, asked)
    what = "fitting the teacher's masked-LM head"
    assert told[-1] == (what, 3, 3)
    assert has_lm_head(teacher)
    assert teacher.fitted_head.name == found.lm_head
    again, _, told = prepare(lab, {"name": "distilbert", "fit_lm_head": 3})
    assert again.lm_head == found.lm_head
    assert (what, 1, 3) not in told
    stored, reopened, _ = prepare(lab, found)
    assert stored == found
    assert reopened.fitted_head.name == found.lm_head


def test_the_head_of_the_checkpoint_wins(lab: TinyLab, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path)
    AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    own = prepare_teacher(str(folder), lab.store)
    found, teacher, told = prepare(lab, {"name": "od", "fit_lm_head": 3}, own)
    assert not told
    assert teacher.fitted_head is None
    assert found.lm_head is None


def test_teacher_layers_are_tried_and_the_table_is_kept(lab: TinyLab) -> None:
    asked = {"name": "minilmv2", "relation_heads": 12, "teacher_layer": "search", "trial_steps": 4}
    found, _, told = prepare(lab, asked)
    trials = found.trials
    assert [trial.teacher_layer for trial in trials] == [3, 4]
    best = min(trials, key=lambda trial: trial.probe)
    assert found.teacher_layer == best.teacher_layer
    assert told[-1][0] == "trying teacher layers"
    assert told[-1][1] == told[-1][2]
    # A request that was stored is not tried anew, and the trials do not make another context.
    assert prepare(lab, found)[2] == []
    plain = objective_spec(
        {"name": "minilmv2", "relation_heads": 12, "teacher_layer": best.teacher_layer}
    )
    assert found.context() == plain.context()


def test_trials_go_on_from_a_student_that_was_trained_before(
    lab: TinyLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut for it then, for which there may be too little text."""
    asked = {"name": "minilmv2", "relation_heads": 12, "teacher_layer": "search", "trial_steps": 4}
    folder = Path(shutil.copytree(lab.teacher.folder, tmp_path / "trained"))
    build_student(lab.teacher.config, ARCHITECTURE).save_pretrained(folder)
    origin = prepare_teacher(str(folder), lab.store)
    cut, _, _ = prepare(lab, asked)
    monkeypatch.setattr("kdnas.distill.setup.start_from_teacher", None)
    found, _, _ = prepare(lab, asked, origin=origin)
    assert [trial.relative for trial in found.trials] != [trial.relative for trial in cut.trials]


@pytest.mark.parametrize("name", ["hs", "hs+od"])
def test_losses_from_before_there_was_a_weight_are_of_the_same_context(name: str) -> None:
    plain, heavy = (objective_spec({"name": name, "last_weight": w}) for w in (1, 3))
    assert "last_weight" not in plain.context()
    assert heavy.context() == {**plain.context(), "last_weight": 3.0}


def test_a_wait_for_a_measurement_is_told_and_may_be_broken_off(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path))
    objective = objective_spec({"name": "minilmv2", "teacher_layer": "search", "trial_steps": 2})
    told: list[str] = []

    def tell(what: str, done: int, total: int) -> None:
        told.append(what)
        if len(told) == 2:
            raise CancelledError("it was cancelled")

    rest = (lab.corpus, lab.store, StudentSpec(), TRAINING, "cpu", "float32", 1, tell)
    with measuring_lock(wait_seconds=0), pytest.raises(CancelledError):
        prepare_objective(objective, ARCHITECTURE, lab.teacher, *rest)
    assert told[0].startswith("waiting for a latency measurement on this machine to end: ")
