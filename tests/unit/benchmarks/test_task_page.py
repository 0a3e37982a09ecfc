"""The page of the study of distillation for one task, on runs that are made up."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure

from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.study_runs import RIGHT, made_up_difference, made_up_row, made_up_runs


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("task_page")


@pytest.fixture
def comparison(page: ModuleType) -> ModuleType:
    return import_module("task_comparison")


def test_attention_of_methods_has_one_scale(
    page: ModuleType, comparison: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    page.draw_samples(made_up_runs(comparison, "RTE"), Path())
    _, *attention = (axes.images[0] for axes in figures[0].axes if axes.images)
    largest = max(image.get_array().max() for image in attention)
    assert [image.get_clim() for image in attention] == [(0, largest)] * 2


def test_the_summary_counts_what_is_decided(page: ModuleType, comparison: ModuleType) -> None:
    claim = comparison.Claim("a", "b", "Table 1", ("RTE", "CoLA"), {"RTE": 1.0, "CoLA": 1.0})
    unprinted, even = (
        comparison.Claim("a", "b", "Table 1", ("RTE",), printed) for printed in ({}, {"RTE": 0.0})
    )
    looked = [
        page.Looked(which, where, tuple(made_up_difference(comparison, centre, 3) for _ in where))
        for which, where, centre in (
            (claim, ("RTE",), 4.0),
            (claim, ("CoLA",), -4.0),
            (claim, ("RTE",), 0.5),
            (unprinted, ("RTE",), 4.0),
            (even, ("RTE",), 4.0),
            (claim, ("RTE", "CoLA"), 4.0),
        )
    ]
    assert page.summary(looked).startswith(
        "Of 3 differences that the paper prints and that have more than one seed here, 1 are as "
        "there (`a` − `b` (RTE)), 1 the other way (`a` − `b` (CoLA)), and 1 not decided."
    )
    *_, last = page.claim_table(looked)
    assert last.startswith("| `a` − `b` | Table 1 | **mean of these** | +1.0 | +4.0 (")
    assert last.endswith(" | 3 | holds |")
    of_one_seed = [page.Looked(claim, ("RTE",), (made_up_difference(comparison, 4.0, 1),))]
    assert page.summary(of_one_seed).startswith("No two seeds")


def test_the_page_says_what_there_is(
    page: ModuleType, comparison: ModuleType, tmp_path: Path
) -> None:
    point, other = TaskPoint(8, 2e-5, 0.2), TaskPoint(16, 2e-5, 0.2)
    grid = {"grid": {"batch_sizes": [8, 16], "learning_rates": [2e-5], "betas": [0.2]}}
    parts = {
        "RTE": made_up_runs(comparison, "RTE"),
        "RTE-grid": made_up_runs(comparison, "RTE-grid", **grid),
    }
    tried = {
        "RTE": {},
        "RTE-grid": {
            "vanilla-kd": {
                point: TaskTrial(point, "finished", 0.625, (0.5, 0.625)),
                other: TaskTrial(other, "diverged", None),
            },
            "universal-kd-il": {point: TaskTrial(point, "finished", 0.75, (0.75,))},
        },
    }
    rows = [made_up_row(name, m, seed) for name in parts for m in RIGHT for seed in range(3)]
    text = page.page(parts, rows, tried, tmp_path / "page")
    lines = text.splitlines()
    assert f"{len(rows)} of " in text
    assert any(
        line.startswith("| `universal-kd-il` − `vanilla-kd` | Table 2 | RTE | +2.6 | +")
        and line.endswith("| holds |")
        for line in lines
    )
    assert "| 8 | 2e-05 | **62.5** |" in lines
    assert "| 16 | 2e-05 | diverged |" in lines
    assert "| 8 | 2e-05 | 75.0 |" in lines  # one of its trials is missing: none is taken
    assert "Trials of `universal-kd-il` with seed 0, 1 of 2:" in lines
    assert "| `none` | 3 | +0.0 (+0.0 to +0.0) |" in lines  # the same runs beside each other
    assert (tmp_path / "page-attention.png").stat().st_size > 1000
    assert "](page-attention.png)" in text
