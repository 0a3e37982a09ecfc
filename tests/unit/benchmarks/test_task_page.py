"""The page of the study of distillation for one task, on runs that are made up."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib.figure import Figure

from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.study_runs import RIGHT, TRUTH, made_up_difference, made_up_row, made_up_runs


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


def test_what_seeds_lack_is_said(page: ModuleType, comparison: ModuleType) -> None:
    whole = made_up_runs(comparison, "RTE")
    runs = made_up_runs(comparison, "RTE")
    del runs.by_method["vanilla-kd"][1], runs.by_method["vanilla-kd"][2]
    del runs.by_method["none"][2]
    (row,) = [line for line in page.method_table(runs) if line.startswith("| `universal-kd-il` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4].endswith("), one seed, examples alone")
    assert cells[5].endswith("), 2 seeds")
    other = {"RTE": whole, "RTE-start": made_up_runs(comparison, "RTE-start", teacher="two")}
    assert page.beside_lines(other, "RTE-start", "RTE", "To others") == [
        "To others: no seed has been taught by the same teacher in both.",
        "",
    ]


def test_a_run_that_diverged_is_named_and_in_no_mean(
    page: ModuleType, comparison: ModuleType
) -> None:
    part = comparison.Part("RTE", "RTE", "first-layers:3", tuple(RIGHT), 3, 8, 4, None, {})
    rows = [made_up_row("RTE", method, seed) for method in RIGHT for seed in range(3)]
    lost = rows.pop()
    kept = {key: lost[key] for key in ("part", "method", "seed", "metric", "teacher", "machine")}
    runs = comparison.Runs(part, [*rows, {**kept, "error": "the loss is nan"}], TRUTH)
    assert runs.seeds(lost["method"]) == [0, 1]
    assert page.diverged_lines(runs)[0] == (
        f"Diverged, and so in no mean: `{lost['method']}` with seed 2."
    )
    assert page.diverged_lines(made_up_runs(comparison, "RTE")) == []


def test_pictures_are_of_a_seed_that_both_methods_have(
    page: ModuleType, comparison: ModuleType, tmp_path: Path
) -> None:
    runs = made_up_runs(comparison, "RTE")
    del runs.by_method["alp-kd"][0]
    assert page.draw_samples(runs, tmp_path / "one.png") == 1
    runs.by_method["universal-kd-il"].clear()
    assert page.draw_samples(runs, tmp_path / "none.png") is None
    assert not (tmp_path / "none.png").exists()


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
        "Of 3 differences other than 0 that the paper prints of the pairs below, and that have "
        "more than one seed here, 1 are as there (`a` − `b` (RTE)), 1 the other way (`a` − `b` "
        "(CoLA)), and 1 not decided."
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
    taken = page.grid_lines(parts["RTE-grid"].part, tried["RTE-grid"], parts["RTE-grid"].chosen)[0]
    assert taken.startswith("Trials of `vanilla-kd` with seed 0, 2 of 2; taken: ")
    (chosen,) = [
        r for r in rows if (r["part"], r["method"], r["seed"]) == ("RTE-grid", "vanilla-kd", 0)
    ]
    assert taken.endswith(f", which has {100 * chosen['main']:.1f} on the development part:")
    assert "| 16 | 2e-05 | diverged |" in lines
    assert "| 8 | 2e-05 | 75.0 |" in lines  # one of its trials is missing: none is taken
    assert "Trials of `universal-kd-il` with seed 0, 1 of 2:" in lines
    # What the grid has chosen by is beside nothing, and two runs alike are said to be so.
    assert f"| `none` | 2 | {page.THE_SAME} |" in lines
    assert any(line.startswith("Runs of seed 0 are the trials that were taken") for line in lines)
    grid = lines[lines.index("## RTE-grid") :]
    assert any(line.startswith("| `vanilla-kd` | 2 |") for line in grid)
    assert (tmp_path / "page-attention.png").stat().st_size > 1000
    assert "](page-attention.png)" in text
