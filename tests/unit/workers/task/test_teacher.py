"""The teacher of a task: tuned once, found afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from filelock import FileLock
from transformers import AutoModelForSequenceClassification

from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.finetuning.saving import read_saved_task
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.models.teacher import TeacherHandle
from kdnas.store import MADE_OF
from kdnas.testing.tiny_task_lab import LABELS, TinyTaskLab
from workers.task import teacher as task_teacher
from workers.task.request import CheckedTask, check_task
from workers.task.teacher import (
    KIND,
    has_head,
    in_order_of_head,
    settings_of,
    tuned_teacher,
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyTaskLab:
    return TinyTaskLab.make(tmp_path_factory.mktemp("lab"), layers=2)


class Finetunings:
    """Counts fine-tunings, and looks at what they are given."""

    def __init__(self) -> None:
        self.data: list[Any] = []

    def __call__(self, origin: Any, data: Any, *rest: Any, **options: Any) -> Any:
        self.data.append(data)
        return finetune(origin, data, *rest, **options)


@pytest.fixture
def finetunings(monkeypatch: pytest.MonkeyPatch) -> Finetunings:
    counted = Finetunings()
    monkeypatch.setattr(task_teacher, "finetune", counted)
    return counted


def tuned(
    lab: TinyTaskLab,
    home: Path,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FinetuneProgress], None] = lambda _: None,
    **changes: Any,
) -> TeacherHandle | None:
    checked: CheckedTask = check_task(lab.classification(**changes), lab.store(home))
    settings = settings_of(checked.spec.teacher, checked.data, 16, "float32")
    return tuned_teacher(
        checked.teacher,
        checked.data,
        settings,
        seed,
        lab.store(home),
        home / "task-teachers",
        device="cpu",
        threads=1,
        on_progress=on_progress,
        should_stop=should_stop,
    )


def test_it_is_tuned_once_and_found_afterwards(
    lab: TinyTaskLab, finetunings: Finetunings, tmp_path: Path
) -> None:
    first = tuned(lab, tmp_path)
    assert first is not None
    assert has_head(first)
    origin = check_task(lab.classification(), lab.store(tmp_path)).teacher.fingerprint
    manifest = lab.store(tmp_path).manifest(KIND, first.folder.name)
    assert manifest.metadata[MADE_OF] == [origin]
    assert first.ref.endswith("fine-tuned on SST-2")
    again = tuned(lab, tmp_path)
    assert again is not None
    assert again.fingerprint == first.fingerprint
    assert len(finetunings.data) == 1
    assert not any(path.is_dir() for path in (tmp_path / "task-teachers").iterdir())
    saved = read_saved_task(first.folder)
    assert saved is not None
    assert saved.task == "SST-2"
    model: Any = AutoModelForSequenceClassification.from_pretrained(first.folder)
    assert tuple(model.config.id2label.values()) == LABELS


def test_other_settings_seeds_or_data_are_another_teacher(
    lab: TinyTaskLab, finetunings: Finetunings, tmp_path: Path
) -> None:
    names = {tuned(lab, tmp_path).fingerprint}  # type: ignore[union-attr]
    names.add(tuned(lab, tmp_path, seed=1).fingerprint)  # type: ignore[union-attr]
    other = tuned(lab, tmp_path, teacher={"batch_size": 32})
    names.add(other.fingerprint)  # type: ignore[union-attr]
    assert len(names) == len(finetunings.data) == 3


def test_two_at_once_tune_it_once(
    lab: TinyTaskLab, finetunings: Finetunings, tmp_path: Path
) -> None:
    """The second waits for the first; which of them is the first does not matter."""
    begun, names = threading.Event(), []

    def one() -> None:
        begun.wait(30)
        found = tuned(lab, tmp_path)
        names.append(None if found is None else found.fingerprint)

    tuned(lab, tmp_path / "warm", should_stop=lambda: True)  # loads what is heavy
    finetunings.data.clear()
    both = [threading.Thread(target=one) for _ in range(2)]
    for thread in both:
        thread.start()
    begun.set()
    for thread in both:
        thread.join(120)
    assert len(names) == 2
    assert names[0] == names[1] is not None
    assert len(finetunings.data) == 1


def test_who_waits_for_another_says_so_and_may_be_stopped(
    lab: TinyTaskLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_teacher, "WAIT_SECONDS", 0.02)
    assert tuned(lab, tmp_path, should_stop=lambda: True) is None  # leaves the lock's file
    (lock,) = (tmp_path / "task-teachers").glob(".*.lock")
    told: list[FinetuneProgress] = []
    with FileLock(lock):
        assert tuned(lab, tmp_path, 0, lambda: len(told) == 3, told.append) is None
    assert {(one.phase, one.waits) for one in told} == {("another process is at it", True)}
    assert tuned(lab, tmp_path) is not None


def test_epochs_are_chosen_by_what_it_has_not_seen(
    lab: TinyTaskLab, finetunings: Finetunings, tmp_path: Path
) -> None:
    """The tenth that students' epochs are chosen by is kept from it, and dev is."""
    checked = check_task(lab.classification(), lab.store(tmp_path))
    tuned(lab, tmp_path)
    (given,) = finetunings.data
    held_out = for_tuning(checked.data).evaluations["tuning"]
    dev = checked.data.evaluations["dev"]
    learned = {(example.id, example.text) for example in given.train}
    assert len(given.train) + len(held_out) == len(checked.data.train)
    assert not learned & {(example.id, example.text) for example in held_out}
    assert dev not in given.evaluations.values()


def test_stopped_it_goes_on_where_it_was(
    lab: TinyTaskLab, finetunings: Finetunings, tmp_path: Path
) -> None:
    undisturbed = tuned(lab, tmp_path / "undisturbed")
    asked = iter([False, True])
    assert tuned(lab, tmp_path / "stopped", should_stop=lambda: next(asked, True)) is None
    assert list((tmp_path / "stopped" / "task-teachers").rglob("checkpoint-*"))
    resumed = tuned(lab, tmp_path / "stopped")
    assert resumed is not None
    assert undisturbed is not None
    assert resumed.fingerprint == undisturbed.fingerprint


def test_it_is_tuned_as_published_unless_it_is_said_otherwise(lab: TinyTaskLab) -> None:
    checked = check_task(lab.classification(), lab.store())
    told = settings_of(checked.spec.teacher, checked.data, 16, "float32")
    assert (told.learning_rate, told.epochs, told.batch_size) == (2e-3, 1, 16)
    usual = dict.fromkeys(("learning_rate", "epochs", "batch_size"))
    spec = lab.classification(teacher=usual)
    published = settings_of(spec.teacher, checked.data, 64, "bfloat16")
    assert (published.learning_rate, published.epochs, published.batch_size) == (2e-5, 3, 32)
    assert (published.max_length, published.dtype) == (64, "bfloat16")


def test_labels_that_differ_in_case_alone_are_two(lab: TinyTaskLab) -> None:
    data = check_task(lab.classification(), lab.store()).data
    own = replace(data, labels=("a", "A"))
    config = SimpleNamespace(architectures=None, num_labels=2, id2label={0: "A", 1: "a"})
    handle = cast(TeacherHandle, SimpleNamespace(ref="own", config=config))
    assert in_order_of_head(handle, own, None).labels == ("A", "a")
