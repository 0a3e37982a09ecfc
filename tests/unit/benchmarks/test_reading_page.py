"""The page of readings says how many states there are, what they show, and what is missing."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas.architecture import Architecture
from kdnas.search_space import SearchSpace
from kdnas.tabular.table import Key, StateRow, Table, TableRow

SPACE = SearchSpace(
    layers=(1, 2, 3, 4, 6), heads=(2, 4), hidden=(16, 32), intermediate=(32, 64),
    activation=("gelu",),
)  # fmt: skip
CARD = {
    "axes": {axis: list(values) for axis, values in SPACE.axes.items()},
    "teacher": "minilm",
    "corpus": ["pydocs"],
    "context": {
        "corpus": "mark",
        "dtype": "float32",
        "objective": {"name": "hs", "last_weight": 3.0},
        "proxy": {"batch_size": 16, "learning_rate": 1e-3, "held_out": 256},
    },
}


@pytest.fixture
def study(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    reading_measures = load("reading_measures")
    reading_page = load("reading_page")
    monkeypatch.setattr(reading_measures, "RESAMPLES", 30)
    return reading_page


def states(count: int) -> list[Architecture]:
    return list(SPACE.states[:count])


def loss(step: int, place: int) -> float:
    """After 30 steps neighbours have changed places; before the first, all are the wrong way."""
    if step == 0:
        return 0.9 - place / 100
    return 0.1 + (place ^ 1 if step == 30 else place) / 100


def some_table(
    count: int,
    schedules: tuple[tuple[int, ...], ...] = ((0, 30, 60),),
    seeds: tuple[int, ...] = (0,),
) -> Table:
    """States whose latency rises against the order of the space."""
    rows = [
        TableRow(Key(state, seed, steps[-1], step), loss(step, place) + seed)
        for place, state in enumerate(states(count))
        for steps in schedules
        for step in steps
        for seed in seeds
    ]
    known = {state: StateRow(100.0 - n, 2.0 + n) for n, state in enumerate(states(count))}
    return Table(tuple(rows), known, 40.0, CARD)


def full(study: ModuleType, count: int, *seeds: int) -> list[Any]:
    about = {"steps": 1000, "batch_size": 16, "learning_rate": 2e-3, "held_out": 512}
    return [
        study.FullRun(state, seed, 0.1 + n / 100 + seed / 1000, about)
        for n, state in enumerate(states(count))
        for seed in seeds
    ]


def by_words(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["words"]: row for row in rows}


def test_every_reading_and_rule_is_set_beside_the_last_reading(study: ModuleType) -> None:
    text, numbers = study.page(some_table(40), [], 48, None)
    rows = by_words(numbers["sections"]["60"])
    assert list(rows) == [
        "before the first step",
        "after 30 of 60 steps",
        "by parameters (rule of thumb)",
        "by layers × hidden (rule of thumb)",
        "by layers × hidden × ⁶√(intermediate × heads) (rule of thumb)",
    ]
    assert rows["before the first step"]["whole"]["spearman"].value == pytest.approx(-1)
    near = rows["after 30 of 60 steps"]
    # Σd² = 40 of 40 neighbours that have changed places.
    assert near["whole"]["spearman"].value == pytest.approx(1 - 6 * 40 / (40 * (40**2 - 1)))
    assert near["alike"]["spearman"].value == pytest.approx(1 - 6 * 8 / (8 * 63))
    assert near["alike"]["groups"] == 5
    assert near["whole"]["best"] == 4
    assert near["whole"]["kept"] == {"10": 1.0, "25": 1.0, "50": 1.0}
    # Of a group of eight its best one alone, which its neighbour has overtaken.
    assert near["alike"]["kept"] == {"10": 0.0, "25": 1.0, "50": 1.0}
    # More parameters are worse here.
    assert rows["by parameters (rule of thumb)"]["whole"]["kendall"].value == pytest.approx(-1)
    assert "- **The end of 60 steps, 40 states.**" in text
    assert "- Of 200 states 40 have been read on the way to the end of 60 steps so far." in text
    assert "- Nothing is read of trainings of 960 steps." in text
    assert "- Of 48 full distillations none is finished." in text
    assert "Readings are of one seed" in text
    assert "## Beside the full distillation" not in text
    json.dumps(numbers)


def test_of_two_schedules_that_of_the_most_states_says_how_many_are_missing(
    study: ModuleType,
) -> None:
    many, few = some_table(30), some_table(10, ((0, 480, 960),))
    table = Table((*many.rows, *few.rows), many.states, 40.0, CARD)
    text, _ = study.page(table, [], 0, None)
    assert "- Of 200 states 30 have been read on the way to the end of 60 steps so far." in text
    assert "to the end of 960 steps so far" not in text
    assert "Nothing is read of trainings of 960 steps" not in text


def test_a_shorter_training_is_told_from_a_reading_on_the_way(study: ModuleType) -> None:
    table = some_table(16, ((0, 60), (0, 30, 60, 960)))
    text, numbers = study.page(table, [], 0, None)
    assert list(numbers["sections"]) == ["960", "60"]
    assert list(by_words(numbers["sections"]["960"]))[:4] == [
        "before the first step",
        "after 30 of 960 steps",
        "after 60 of 60 steps",
        "after 60 of 960 steps",
    ]
    assert "of trainings of 960 steps" not in text
    assert "full distillations" not in text.split("## What is not there yet")[1].split("##")[0]


def test_a_reading_is_of_one_seed_and_the_end_of_all(study: ModuleType) -> None:
    table = some_table(8, seeds=(1, 3))
    assert study.readings(table, 60, 60)[states(1)[0]] == pytest.approx(1.1)
    assert study.readings(table, 60, 60, of_all_seeds=True)[states(1)[0]] == pytest.approx(2.1)
    assert "Readings are of one seed" not in study.page(table, [], 0, None)[0]


def test_full_distillations_are_set_beside_all_readings(study: ModuleType) -> None:
    runs = [*full(study, 16, 1), *full(study, 12, 2)]
    text, numbers = study.page(some_table(40), runs, 48, None)
    rows = by_words(numbers["sections"]["full"])
    assert rows["after 60 of 60 steps"]["states"] == 16
    assert rows["after 60 of 60 steps"]["whole"]["spearman"].value == pytest.approx(1)
    assert rows["after 60 of 60 steps"]["alike"]["groups"] == 2
    assert numbers["between_seeds"]["states"] == 12
    assert "Two seeds of it rank 12 states alike with ρ 1.000 (1.000 to 1.000)" in text
    assert "1000 steps of 16 sequences, peak rate 0.002" in text
    assert "- Of 48 full distillations 28 are finished." in text


@pytest.mark.parametrize("count", [1, 7])
def test_too_few_states_have_no_figures(study: ModuleType, count: int) -> None:
    text, numbers = study.page(some_table(count), full(study, 1, 1), 48, None)
    assert all(row["whole"] is None for row in numbers["sections"]["60"])
    assert "There are too few states so far to say anything." in text
    assert f"Too few states for figures over all states: {count}." in text
    assert "- Of 48 full distillations one is finished." in text


def test_where_only_starts_were_read_it_says_so(study: ModuleType) -> None:
    text, numbers = study.page(some_table(20, ((0, 60),)), [], 48, None)
    rows = by_words(numbers["sections"]["60"])
    assert rows["before the first step"]["whole"]["spearman"].value == pytest.approx(-1)
    assert "None of 200 states has been read on the way to the end of a training" in text


def test_a_table_of_ends_alone_has_no_section(study: ModuleType) -> None:
    text, numbers = study.page(some_table(20, ((60,),)), [], 48, None)
    assert numbers["sections"] == {}
    assert "There are too few states so far to say anything." in text


@pytest.mark.parametrize("count", [1, 40])
def test_the_picture_is_drawn_of_what_there_is(
    study: ModuleType, tmp_path: Path, count: int
) -> None:
    text, numbers = study.page(some_table(count), [], 0, tmp_path / "readings")
    assert "![rank correlations and shares kept](readings.png)" in text
    study.draw(numbers, tmp_path / "readings.png")
    assert (tmp_path / "readings.png").read_bytes().startswith(b"\x89PNG")
