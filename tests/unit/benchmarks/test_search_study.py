"""The study of searches asks each question once, and prints what is missed as missed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("search_study")


def standing(
    name: str,
    trainings: float | None,
    regret: float,
    p: float | None,
    times: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "trainings": [trainings, trainings, None],
        "times_reference": times,
        "p_trainings": p,
        "regrets": [[regret, regret, regret]] * 2,
        "p_regrets": None if p is None else [p, p],
    }


def result(*standings: dict[str, Any]) -> dict[str, Any]:
    return {
        "goal": "front",
        "budgets": [20, 60],
        "num_states": 10,
        "num_allowed": 9,
        "seeds": 2,
        "knows_noise": False,
        "standings": list(standings),
    }


def test_each_question_is_asked_with_and_without_starts(study: ModuleType) -> None:
    asked = list(study.cells(["a", "b"]))
    assert len(asked) == len({cell.name for cell in asked}) == 2 * 2 * len(study.GOALS)
    assert asked[0].name == "a-front-blind"
    assert not any(cell.starts for cell in asked[:6])
    assert all(cell.starts for cell in asked[6:])


def test_a_bar_that_is_missed_is_said_to_be(study: ModuleType) -> None:
    cell = study.Cell("a", "front", False)
    found = result(
        standing("gp", 20, 0.01, None),
        standing("controller", 40, 0.01, 0.5, [2, 1.52, 2.5]),
        standing("random", 60, 0.02, 0.01, [3, 2, None]),
        standing("tpe", 30, 0.001, 0.01, [1.5, 1.5, 1.5]),
        standing("largest-first", None, 0.9, 0.01, [None] * 3),
        standing("size-only", None, 0.9, 0.01, [None, 4, None]),
        standing("fastest-first", 10, 0.9, 0.01, [0.5, 0.4, 0.6]),
    )
    row = next(line for line in study.bars({cell: found}) if line.startswith("| `a-front-blind`"))
    cells = [part.strip() for part in row.strip("|").split("|")]
    assert cells == [
        "`a-front-blind`", "20 (20 to never)", "3.0 (2.0 to never) **missed**", "1.5",
        "0.5 (0.4 to 0.6) **missed**", "it never", "it never (4.0 to never)",
        *["not played"] * 2, "2.00 (1.52 to 2.50) **missed**", "`tpe` at 60 **missed**",
    ]  # fmt: skip


def test_a_bar_that_a_budget_is_too_small_for_is_said_to_be_open(study: ModuleType) -> None:
    found = result(
        standing("gp", 20, 0.01, None),
        standing("controller", 20, 0.01, 0.5, [1, 1, 1]),
        standing("random", None, 0.02, 0.01, [None, 2.5, None]),  # not after 60: 3 times at least
        standing("tpe", None, 0.02, 0.01, [None] * 3),
    )
    *_, row, _ = study.bars({study.Cell("a", "front", False): found})
    cells = [part.strip() for part in row.strip("|").split("|")]
    assert cells[2:4] == ["it never (2.5 to never): more than 3.0, **not shown**", "it never"]


def test_who_never_solves_a_question_meets_no_bar(study: ModuleType) -> None:
    found = result(
        standing("gp", None, 0.5, None),
        standing("controller", 40, 0.01, 0.5, [0, 0, 0]),
        standing("random", None, 0.5, 0.5, [1, 1, 1]),
        standing("tpe", 30, 0.01, 0.01, [0, 0, 0]),
    )
    *_, row, _ = study.bars({study.Cell("a", "front", False): found})
    cells = [part.strip() for part in row.strip("|").split("|")]
    assert cells[1:4] == ["never", "neither solved", "`never` **missed**"]
    assert cells[-2] == "0.00"


def test_nobody_is_better_only_where_that_was_looked_at(study: ModuleType) -> None:
    rows = [standing("gp", 20, 0.01, None), standing("controller", 20, 0.02, 0.01)]
    short = result(*rows)
    assert study._better(short) == "nobody at 60"
    whole = {**short, "budgets": [20, 60, 100, 300]}
    assert study._better(whole) == "nobody"


@pytest.mark.parametrize(
    ("goal", "unit"), [("front", "hypervolume"), ("limit", "loss"), ("reward", "reward")]
)
def test_a_regret_has_the_unit_of_its_goal(study: ModuleType, goal: str, unit: str) -> None:
    head, *_ = study.table({**result(standing("gp", 20, 0.01, None)), "goal": goal})
    assert head.endswith(f"(thousandths of {unit}) |")


def test_the_page_has_every_strategy_and_a_picture(study: ModuleType, tmp_path: Path) -> None:
    cell = study.Cell("a", "limit", True)
    found = result(
        standing("gp", 20, 0.0104, None), standing("controller", None, 0.5, 0.01, [None] * 3)
    )
    page = study.page({cell: found}, tmp_path / "search")
    assert "| `gp` | 20 (20 to never) | 10.4 | 10.4 |" in page
    assert "| `controller` | never* | 500.0* | 500.0* |" in page
    assert "![regret]" not in page
    drawn = study.page({study.Cell("a", "front", True): found}, tmp_path / "search")
    assert "![regret](search-a-front.png)" in drawn
    assert "goal `limit` (max_latency_ratio 0.4), starts known" in page
    assert "## Real searches" not in page
    figures = {"hypervolume after 60": [3.5, 4.0], "final loss ≤ 0.1": [0.25, None]}
    real = {"strategies": {"gp": figures, "random": figures}}
    (tmp_path / "real_searches.json").write_text(json.dumps(real))
    page = study.page({cell: found}, tmp_path / "search")
    assert "| `gp` | 3.7500 (3.5000 to 4.0000) |" in page
    assert "(real_searches.png)" in page
