"""Published hyper-parameters, and what a request changes of them."""

from __future__ import annotations

from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.evaluation.settings import FinetuneSettings, published_settings, settings_for
from kdnas.evaluation.tasks import TASKS, find_task, own_task
from kdnas.specs.evaluation import EvaluationSpec


@pytest.mark.parametrize(
    ("task", "learning_rate", "epochs"),
    [
        ("SST-2", 2e-5, 3),
        ("CoLA", 2e-5, 10),
        ("SQuAD 1.1", 3e-5, 6),
        ("SQuAD 2.0", 3e-5, 6),
        ("CoNLL-2003", 5e-5, 3),
        ("XNLI", 2e-5, 5),
        ("TyDiQA-GoldP", 1e-5, 10),
    ],
)
def test_settings_are_those_of_the_paper(task: str, learning_rate: float, epochs: float) -> None:
    settings = published_settings(find_task(task))
    assert (settings.learning_rate, settings.epochs, settings.batch_size) == (
        learning_rate,
        epochs,
        32,
    )


def test_every_task_has_settings() -> None:
    for task in TASKS.values():
        assert published_settings(task).epochs > 0
    assert published_settings(own_task("mine", "tagging")) == published_settings(find_task("NER"))


def spec(**values: Any) -> EvaluationSpec:
    return EvaluationSpec.read({"model": "minilm", "suite": "glue", **values}, "test")


def test_a_request_changes_what_it_names() -> None:
    wanted = spec(learning_rate=1e-4, max_steps=7, early_stopping=2)
    settings = settings_for(find_task("CoLA"), wanted, "bfloat16")
    assert settings == FinetuneSettings(1e-4, 10, max_steps=7, early_stopping=2, dtype="bfloat16")
    assert FinetuneSettings(**settings.to_json()) == settings


def test_windows_must_move_on() -> None:
    with pytest.raises(SpecError, match=r"stride \(100\) is above half of max_length \(150\)"):
        settings_for(find_task("SQuAD 1.1"), spec(max_length=150, stride=100), "float32")


def test_a_number_of_seeds_is_short_for_the_first_ones() -> None:
    assert spec().seeds == spec(seeds=3).seeds == (0, 1, 2)
    assert spec(seeds=[5, 2]).seeds == (5, 2)
    assert EvaluationSpec.read(spec(seeds=2).to_json(), "again") == spec(seeds=2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seeds": 0}, "from 1 to 1000 seeds"),
        ({"seeds": [1, 1]}, "must differ"),
        ({"seeds": []}, "at least one seed"),
        ({"seeds": [-1]}, "lie between"),
        ({"max_step": 3}, "max_steps"),
        ({"learning_rate": 0}, "learning_rate"),
    ],
)
def test_a_wrong_request_is_explained(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**values)
