from __future__ import annotations

import pytest

from kdnas.errors import SpecError
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample
from kdnas.evaluation.tasks.registry import SUITES, TASKS, Task, find_task, own_task


def test_every_suite_has_its_tasks() -> None:
    assert SUITES["glue"] == (
        *("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI"),
    )
    suites = "glue", "xnli", "squad", "squad2", "xquad", "tydiqa", "mlqa", "ner", "sts"
    assert tuple(SUITES) == suites
    assert sorted(name.lower() for names in SUITES.values() for name in names) == sorted(TASKS)
    assert len(TASKS["xnli"].hub.evaluations) == 15  # type: ignore[union-attr]


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_task_is_whole(task: Task) -> None:
    assert task.main_metric in task.metrics
    assert (task.labels is not None) == (task.kind == "classification")
    assert task.train_from is None or TASKS[task.train_from].kind == task.kind
    assert find_task(task.name.upper()) is task
    if task.hub is not None and task.hub.train is None:
        assert task.train_from is not None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("sst2", "SST-2"),
        ("squad", "SQuAD 1.1"),
        ("SQuAD2.0", "SQuAD 2.0"),
        ("tydiqa", "TyDiQA-GoldP"),
    ],
)
def test_names_are_found_whatever_their_punctuation(name: str, found: str) -> None:
    assert find_task(name).name == found


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        SpecError, match=r"unknown task 'SST-3', did you mean 'SST-2'\? Known: .*RTE"
    ):
        find_task("SST-3")


def test_own_tasks_refuse_what_they_cannot_be() -> None:
    assert own_task("tickets", "classification", metrics=("matthews",)).main_metric == "matthews"
    with pytest.raises(SpecError, match="kind 'span'"):
        own_task("tickets", "span")
    with pytest.raises(SpecError, match="of a classification 'acuracy', did you mean 'accuracy'"):
        own_task("tickets", "classification", metrics=("acuracy",))


def test_examples_refuse_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="2 tokens have 1 tags in 7"):
        TaggedExample("7", ("a", "b"), ("O",))
    with pytest.raises(ValueError, match="1 answers have 0 starts in 7"):
        SpanExample("7", "who?", "he", ("he",), (), False)
