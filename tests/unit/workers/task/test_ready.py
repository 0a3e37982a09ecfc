"""A task made ready: its teacher tuned or given, and what is found out on the way."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kdnas.errors import TrainingError
from kdnas.evaluation.data.splitting import HELD_OUT_TENTH
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_task_lab import (
    LABELS,
    TinyTaskLab,
    texts_of,
    transformers_says,
    write_own,
)
from kdnas.testing.tiny_tasks import WORDS
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.task import facts as facts_module
from workers.task import ready as ready_module
from workers.task import teacher as task_teacher
from workers.task.facts import Heard, of_another_scale, of_mute_layers
from workers.task.ready import ReadyTask, prepare_for_task


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyTaskLab:
    return TinyTaskLab.make(tmp_path_factory.mktemp("lab"), layers=4)


def prepared(lab: TinyTaskLab, spec: Any, home: Path | None = None) -> ReadyTask:
    ready = prepare_for_task(spec, lab.settings(home))
    assert ready is not None
    return ready


@pytest.fixture(scope="module")
def classes(lab: TinyTaskLab) -> ReadyTask:
    return prepared(lab, lab.classification())


@pytest.fixture(scope="module")
def numbers(lab: TinyTaskLab) -> ReadyTask:
    return prepared(lab, lab.regression())


def test_facts_say_what_is_taught_and_by_whom(classes: ReadyTask, numbers: ReadyTask) -> None:
    for ready in (classes, numbers):
        facts = ready.facts
        assert [row["layer"] for row in facts.layers] == [1, 2, 3, 4]
        assert facts.teacher["tuned"]
        assert facts.student["start"].startswith("layers 1, 2 of")
        assert facts.examples["train"] + facts.examples["held-out"] == len(ready.checked.data.train)
        assert all(math.isfinite(row["main"]) for row in facts.layers)
    assert classes.facts.labels == LABELS
    assert numbers.facts.labels == ()


@pytest.mark.parametrize("knowing", [(), (2,), (1, 3, 4), (1, 2, 3, 4)])
def test_layers_that_know_nothing_are_warned_of(
    classes: ReadyTask, numbers: ReadyTask, knowing: tuple[int, ...]
) -> None:
    for ready in (classes, numbers):
        right = ready.held_out.tokens.labels
        perfect = torch.eye(2)[right] if ready is classes else right[:, None]
        layers = torch.zeros(len(right), 4, perfect.shape[1])
        for layer in knowing:
            layers[:, layer - 1] = perfect
        heard = Heard(ready.held_out, replace(ready.seen, layers=layers))
        found = of_mute_layers(ready.checked, ready.judged, heard)
        mute = [str(layer) for layer in range(1, 5) if layer not in knowing]
        word = "layer" if len(mute) == 1 else "layers"
        assert [text.partition(" of the teacher's 4 ")[0] for text in found] == (
            [f"{word} {', '.join(mute)}"] if mute else []
        )
        assert all("what universal-kd-il take" in text for text in found)
        alone = ready.checked.spec.model_copy(update={"methods": ("vanilla-kd",)})
        assert of_mute_layers(replace(ready.checked, spec=alone), ready.judged, heard) == []


def test_of_many_classes_the_most_frequent_are_tried(
    classes: ReadyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "MOST_ANSWERS", 1)
    right = classes.held_out.tokens.labels
    frequent = int(right.bincount().argmax())
    for answer, is_mute in ((frequent, True), (1 - frequent, True), (None, False)):
        said = torch.eye(2)[right if answer is None else torch.full_like(right, answer)]
        layers = said[:, None].expand(-1, 4, -1)
        heard = Heard(classes.held_out, replace(classes.seen, layers=layers))
        assert bool(of_mute_layers(classes.checked, classes.judged, heard)) == is_mute


def test_numbers_of_another_scale_are_warned_of(classes: ReadyTask, numbers: ReadyTask) -> None:
    right = numbers.train.tokens.labels

    def warned(ready: ReadyTask, said: torch.Tensor, learned: bool = True) -> list[str]:
        checked = replace(ready.checked, has_learned=learned)
        return of_another_scale(checked, Heard(ready.train, replace(ready.learned, logits=said)))

    assert warned(numbers, right[:, None]) == []
    assert warned(numbers, 0.5 * right[:, None] + 0.5) == []
    (text,) = warned(numbers, right[:, None] / 10)
    assert "says numbers of another scale than those of goods (mean " in text
    assert len(warned(numbers, right[:, None] + 100)) == 1
    assert "have it fine-tuned by" in text
    (text,) = warned(numbers, right.mean() + 0 * right[:, None], learned=False)  # tuned too little
    assert text.endswith("; give it more `teacher.epochs` or a higher `teacher.learning_rate`")
    tokens = replace(numbers.train.tokens, labels=100 * right)
    large = replace(numbers, train=replace(numbers.train, tokens=tokens))
    (text,) = warned(large, right.mean() + 0 * right[:, None], learned=False)
    assert "; divide the numbers by their deviation, and give it more `teacher.epochs`" in text
    assert warned(classes, classes.learned.logits * 100) == []


def test_facts_say_by_what_epochs_are_chosen(lab: TinyTaskLab, tmp_path: Path) -> None:
    assert prepared(lab, lab.regression()).facts.chosen_on == HELD_OUT_TENTH
    for part in ("train", "dev", "test"):
        write_own(tmp_path / f"{part}.jsonl", [0.0, 1.0, 2.0] * 10)
    ready = prepared(lab, lab.regression(data_dir=str(tmp_path)))
    assert ready.facts.chosen_on == "the development part"
    assert ready.facts.examples["train"] == 30


def test_a_given_teacher_is_not_tuned(
    lab: TinyTaskLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("was tuned")

    monkeypatch.setattr(ready_module, "tuned_teacher", refuse)
    given = lab.learned("given")
    ready = prepared(lab, lab.classification(teacher=given), tmp_path)
    assert not ready.facts.teacher["tuned"]
    assert ready.facts.teacher["ref"] == str(given)
    said = transformers_says(given, texts_of(ready.checked.data))
    right = [
        one == example.label
        for one, example in zip(said, texts_of(ready.checked.data), strict=True)
    ]
    assert ready.facts.teacher["metrics"] == {"dev": {"accuracy": sum(right) / len(right)}}


def test_a_teacher_that_diverges_is_told_of_by_its_own_settings(
    lab: TinyTaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverge(*_: Any, **__: Any) -> None:
        raise TrainingError("fine-tuning diverged; take a smaller `learning_rate`")

    monkeypatch.setattr(ready_module, "tuned_teacher", diverge)
    said = r"^teacher '.*': fine-tuning diverged; take a smaller `teacher\.learning_rate`$"
    with pytest.raises(TrainingError, match=said):
        prepare_for_task(lab.classification(), lab.settings(None))


def test_a_tuned_teacher_is_found_in_the_store(
    lab: TinyTaskLab, classes: ReadyTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("was tuned once more")

    monkeypatch.setattr(task_teacher, "finetune", refuse)
    again = prepared(lab, lab.classification(methods=["dih"]))
    assert again.model.fingerprint == classes.model.fingerprint
    assert again.facts.teacher == classes.facts.teacher
    assert again.facts.layers == classes.facts.layers


def test_a_pinned_teacher_is_called_as_the_request_has_it(lab: TinyTaskLab, tmp_path: Path) -> None:
    """The store may know it by the name of whoever brought it there first."""
    prepare_teacher(str(shutil.copytree(lab.encoder, tmp_path / "same")), lab.store(tmp_path))
    first = prepared(lab, lab.classification(), tmp_path)
    again = prepared(lab, first.spec, tmp_path)
    assert first.spec.teacher.fingerprint
    assert again.facts == first.facts
    assert str(lab.encoder) in again.facts.student["start"]


def test_facts_name_the_student_by_what_is_in_it(lab: TinyTaskLab, tmp_path: Path) -> None:
    own = tmp_path / "own"
    found = []
    for seed in (1, 1, 2):
        make_tiny_teacher(own, layers=2, hidden=24, heads=2, words=WORDS, seed=seed)
        ready = prepared(lab, lab.classification(student=str(own), methods=["takd"]))
        found.append(ready.facts.student["fingerprint"])
        assert ready.facts.student["assistant"] == {
            "name": "first-layers:3",
            "fingerprint": ready.checked.teacher.fingerprint,
        }
        shutil.rmtree(own)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("method", ["vanilla-kd", "alp-kd"])
def test_states_are_kept_for_who_reads_them(method: str, lab: TinyTaskLab) -> None:
    ready = prepared(lab, lab.classification(methods=[method]))
    for kept in (ready.learned, ready.seen):
        assert (kept.states is not None) == (method == "alp-kd")


def test_pseudo_classifiers_learn_from_what_is_asked_for(lab: TinyTaskLab) -> None:
    raw = lab.classification(methods=["dih"], grid={}, batch_size=None, learning_rate=None)
    states = {"warmup_states": "standardised"}
    other = raw.model_copy(update={"teacher": raw.teacher.model_copy(update=states)})
    as_they_are, standardised = prepared(lab, raw), prepared(lab, other)
    first, second = as_they_are.classifiers.weight, standardised.classifiers.weight
    assert first.shape == second.shape
    assert not torch.allclose(first, second)
    keys = [one.facts.grids["dih"]["key"] for one in (as_they_are, standardised)]
    assert keys[0] != keys[1]


def test_pseudo_classifiers_stop_when_they_are_asked_to(lab: TinyTaskLab, tmp_path: Path) -> None:
    told: list[str] = []
    spec = lab.classification(teacher=lab.learned("warmed"))
    settings = lab.settings(tmp_path)
    stops = prepare_for_task(
        spec, settings, lambda p: told.append(p.phase), lambda: told[-1:] == ["pseudo-classifiers"]
    )
    assert stops is None
    assert told.count("pseudo-classifiers") == 1
    assert list(settings.task_teachers.iterdir()) == []


def test_stopped_while_it_is_prepared_it_has_made_nothing(lab: TinyTaskLab, tmp_path: Path) -> None:
    settings = lab.settings(tmp_path)
    for teacher in (lab.encoder, lab.learned("stopped")):
        spec = lab.classification(teacher=teacher)
        assert prepare_for_task(spec, settings, should_stop=lambda: True) is None
    assert not (tmp_path / "store" / "task-teacher").exists()
