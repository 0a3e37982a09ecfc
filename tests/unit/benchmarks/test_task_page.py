"""The page of the study of distillation for one task, on runs that are made up."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import t as student_t

from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.demo_tasks import task_facts, task_run

TRUTH = tuple(random.Random(0).choice(("yes", "no")) for _ in range(200))
RIGHT = {"none": 0.5, "vanilla-kd": 0.6, "universal-kd-il": 0.9, "alp-kd": 0.6}
"""Share of answers that are right."""


@pytest.fixture
def page(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("task_page")


def said(method: str, seed: int) -> list[str]:
    draw = random.Random(f"{method} {seed}")
    other = {"yes": "no", "no": "yes"}
    return [label if draw.random() < RIGHT[method] else other[label] for label in TRUTH]


def row(part: str, method: str, seed: int, teacher: str = "one") -> dict[str, Any]:
    facts, answers = task_facts(), said(method, seed)
    right = sum(a == b for a, b in zip(answers, TRUTH, strict=True)) / len(TRUTH)
    return {
        "part": part,
        **task_run("universal-kd-il" if method == "alp-kd" else method, seed).to_json(),
        "method": method,
        "main": right,
        "metric": "accuracy",
        "teacher": {"fingerprint": teacher, "main": 0.7, "held_out": 0.7},
        "layers": list(facts.layers),
        "student": dict(facts.student),
        "settings": {"dtype": "float32"},
        "predictions": {"dev": answers},
        "machine": "a machine",
    }


def part_of(page: ModuleType, name: str, methods: tuple[str, ...], **more: Any) -> Any:
    options = more.pop("options", {})
    return page.Part(name, "RTE", "first-layers:3", methods, 3, 8, 4, None, options)


def runs(page: ModuleType, name: str, seeds: int = 3, teacher: str = "one") -> Any:
    methods = tuple(RIGHT)
    rows = [row(name, method, seed, teacher) for method in methods for seed in range(seeds)]
    return page.Runs(part_of(page, name, methods), rows, TRUTH)


def test_attention_of_methods_has_one_scale(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    page.draw_samples(runs(page, "RTE"), Path())
    _, *attention = (axes.images[0] for axes in figures[0].axes if axes.images)
    largest = max(image.get_array().max() for image in attention)
    assert [image.get_clim() for image in attention] == [(0, largest)] * 2


def test_differences_are_of_the_same_seeds_and_teacher(page: ModuleType) -> None:
    one = runs(page, "RTE")
    found = page.difference(one, "universal-kd-il", one, "vanilla-kd")
    assert found is not None
    mean, low, high = found.points
    scores = {m: [one.by_method[m][s]["main"] for s in range(3)] for m in RIGHT}
    ahead = zip(scores["universal-kd-il"], scores["vanilla-kd"], strict=True)
    assert mean == pytest.approx(100 * sum(a - b for a, b in ahead) / 3)
    assert low < mean < high
    assert len(found.seeds) == 3
    assert page.difference(one, "none", runs(page, "other", seeds=2), "none").seeds == (0, 0)
    assert page.difference(one, "none", runs(page, "other", teacher="two"), "none") is None


def found(page: ModuleType, centre: float, seeds: int, spread: float = 0.01) -> Any:
    """A difference in points as if it had been seen, of seeds a point apart."""
    draws = np.random.default_rng(0).normal(centre, spread, 2000) / 100
    return page.Difference(draws, tuple((centre + s - (seeds - 1) / 2) / 100 for s in range(seeds)))


def test_claims_are_looked_at_by_task_and_over_all(page: ModuleType) -> None:
    parts = {name: runs(page, name) for name in ("RTE", "CoLA", "STS-B")}
    looked = {
        one.where: one
        for one in page.looked_at(parts)
        if (one.claim.better, one.claim.worse) == ("universal-kd-il", "vanilla-kd")
    }
    single = page.difference(parts["RTE"], "universal-kd-il", parts["RTE"], "vanilla-kd").points
    assert looked["RTE",].points == single
    assert (looked["RTE",].printed, looked["RTE",].verdict) == (2.6, "holds")
    whole = looked["RTE", "CoLA", "STS-B"]
    mean, low, high = whole.points  # of three that are the same
    assert mean == pytest.approx(single[0])
    assert single[1] < low < mean < high < single[2]
    assert whole.printed == pytest.approx((2.6 + 5.0 + 0.4) / 3)
    assert whole.fewest == 3
    del parts["CoLA"]
    assert all(len(one.where) == 1 for one in page.looked_at(parts))


def test_a_claim_holds_on_the_side_of_nothing_where_the_paper_has_it(page: ModuleType) -> None:
    def verdict(printed: float, centre: float, seeds: int = 3) -> str:
        claim = page.Claim("a", "b", "Table 1", ("RTE",), {"RTE": printed})
        return str(page.Looked(claim, ("RTE",), (found(page, centre, seeds),)).verdict)

    assert verdict(1.0, 4.0) == verdict(-1.0, -4.0) == verdict(0.0, 4.0) == "holds"
    assert verdict(1.0, -4.0) == verdict(-1.0, 4.0) == "the reverse"
    assert verdict(1.0, 1.0) == "not decided"
    assert verdict(1.0, 4.0, seeds=1) == "one seed"


def test_a_mean_of_parts_is_as_sure_as_examples_and_seeds_allow(page: ModuleType) -> None:
    claim = page.Claim("a", "b", "Table 1", ("RTE", "CoLA"), {})
    one, other = found(page, 1.0, 3), found(page, 3.0, 3)
    mean, low, high = page.Looked(claim, ("RTE", "CoLA"), (one, other)).points
    assert mean == pytest.approx(2.0)
    half = student_t.ppf(0.975, 4) * (2 * (1 / 3) / 4) ** 0.5  # of two parts with s² = 1, n = 3
    assert (high - low) / 2 == pytest.approx(half, rel=0.01)


def test_the_summary_counts_what_is_decided(page: ModuleType) -> None:
    claim = page.Claim("a", "b", "Table 1", ("RTE",), {})
    looked = [
        page.Looked(claim, where, tuple(found(page, centre, 3) for _ in where))
        for where, centre in (
            (("RTE",), 4.0),
            (("CoLA",), -4.0),
            (("STS-B",), 0.5),
            (("RTE", "CoLA"), 4.0),
        )
    ]
    assert page.summary(looked).startswith(
        "Of 3 differences by task 1 are as the paper has them (`a` and `b` (RTE)), 1 the other way "
        "(`a` and `b` (CoLA)), and 1 not decided."
    )
    *_, last = page.claim_table(looked)
    assert last.startswith("| `a` above `b` | Table 1 | **mean of these** |  | +4.0 (")
    assert last.endswith(" | 3 | holds |")
    of_one_seed = [page.Looked(claim, ("RTE",), (found(page, 4.0, 1),))]
    assert page.summary(of_one_seed).startswith("No two seeds")


def test_the_page_says_what_there_is(page: ModuleType, tmp_path: Path) -> None:
    point, other = TaskPoint(8, 2e-5, 0.2), TaskPoint(16, 2e-5, 0.2)
    grid = {"grid": {"batch_sizes": [8, 16], "learning_rates": [2e-5], "betas": [0.2]}}
    parts = {"RTE": runs(page, "RTE"), "RTE-grid": runs(page, "RTE-grid")}
    parts["RTE-grid"].part = part_of(page, "RTE-grid", tuple(RIGHT), options=grid)
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
    rows = [row(name, m, seed) for name in parts for m in RIGHT for seed in range(3)]
    text = page.page(parts, rows, tried, tmp_path / "page")
    lines = text.splitlines()
    assert f"{len(rows)} of " in text
    assert any(
        line.startswith("| `universal-kd-il` above `vanilla-kd` | Table 2 | RTE | +2.6 | +")
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
