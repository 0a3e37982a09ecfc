"""Published hyper-parameters, and what a request changes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.evaluation.settings import FinetuneSettings, Grid, published_settings, settings_for
from kdnas.evaluation.tasks.registry import TASKS, find_task, own_task
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
    assert FinetuneSettings.from_json(settings.to_json()) == settings


def test_a_grid_is_the_published_one_unless_it_is_narrowed() -> None:
    settings = settings_for(find_task("RTE"), spec(grid={}), "float32")
    assert settings.grid == Grid((1e-5, 2e-5, 3e-5, 5e-5), (3, 5, 10))
    assert FinetuneSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    narrow = settings_for(find_task("RTE"), spec(grid={"epochs": [1.5]}), "float32")
    assert narrow.grid == Grid((1e-5, 2e-5, 3e-5, 5e-5), (1.5,))
    assert "grid" not in settings_for(find_task("RTE"), spec(), "float32").to_json()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"grid": {}, "epochs": 3}, "a grid chooses learning rate and epochs"),
        ({"grid": {"epochs": [3, 3]}}, r"values of a grid must differ, not \[3"),
        (
            {"grid": {"learning_rates": [2.0]}},
            "learning_rates.0: give a number above 0 and below 1",
        ),
        ({"grid": {"epochs": list(range(1, 30))}}, "at most 100 points, not 116"),
        ({"own": {}}, "not of suite 'glue'; take suite 'own'"),
        ({"suite": "own"}, "needs data_dir"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(**values)


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
        ({"seeds": [-1]}, "seeds.0: give a whole number from 0"),
        ({"max_step": 3}, "max_steps"),
        ({"learning_rate": 0}, "learning_rate"),
    ],
)
def test_a_wrong_request_is_explained(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec(**values)
