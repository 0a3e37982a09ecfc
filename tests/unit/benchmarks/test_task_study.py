"""The study of distillation for one task goes on where it was, and tries a grid before its runs."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.tiny_task_lab import TinyTaskLab

GRID = {"grid": {"batch_sizes": [8, 16], "learning_rates": [2e-3], "betas": [0.3]}}


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("task_study")


def part(study: ModuleType, name: str, seeds: int, options: dict[str, Any] | None = None) -> Any:
    return study.Part(
        name, "SST-2", "first-layers:2", ("none", "vanilla-kd"), seeds, 1, 1, None, options or {}
    )


def names(study: ModuleType, results: Any, *parts: Any) -> list[str]:
    return [piece.name for piece in study.left(results, parts)]


def test_seeds_are_done_one_after_the_other(study: ModuleType, tmp_path: Path) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    one, two = part(study, "a", 2), part(study, "b", 1)
    assert names(study, results, one, two) == [
        *("a-none-0", "a-vanilla-kd-0", "b-none-0", "b-vanilla-kd-0"),
        *("a-none-1", "a-vanilla-kd-1"),
    ]
    results.add({"part": "a", "method": "none", "seed": 0})
    assert names(study, results, one) == ["a-vanilla-kd-0", "a-none-1", "a-vanilla-kd-1"]


def test_runs_wait_for_the_trials_of_their_grid(study: ModuleType, tmp_path: Path) -> None:
    results, asked = study.JsonLines(tmp_path / "runs.jsonl"), part(study, "g", 2, GRID)

    def tried(method: str, point: TaskPoint, score: float) -> None:
        trial = TaskTrial(point, "finished", score, (score,)).to_json()
        results.add({"part": "g", "method": method, "tries": True, "trial": trial})

    first, second = asked.points("none")
    assert (first, second) == (TaskPoint(8, 2e-3, None), TaskPoint(16, 2e-3, None))
    assert all(piece.tries for piece in study.left(results, (asked,)))
    tried("none", first, 0.5)
    found = [piece for piece in study.left(results, (asked,)) if piece.method == "none"]
    assert [(piece.tries, piece.point) for piece in found] == [(True, second)]
    tried("none", second, 0.7)
    found = [piece for piece in study.left(results, (asked,)) if piece.method == "none"]
    assert [(piece.tries, piece.seed, piece.point) for piece in found] == [
        (False, 0, second),
        (False, 1, second),
    ]
    trial = study.Piece(asked, "none", 0, second, True)
    assert found[0].name == trial.name  # goes on with what that has left
    assert found[1].name == "g-none-1"


def test_a_grid_that_diverged_everywhere_has_no_runs(study: ModuleType, tmp_path: Path) -> None:
    results, asked = study.JsonLines(tmp_path / "runs.jsonl"), part(study, "g", 2, GRID)
    for point in asked.points("none"):
        trial = TaskTrial(point, "diverged", None)
        results.add({"part": "g", "method": "none", "tries": True, "trial": trial.to_json()})
        study.tidy(results, study.Piece(asked, "none", 0, point, True), tmp_path)
    assert {piece.method for piece in study.left(results, (asked,))} == {"vanilla-kd"}
    for point in asked.points("vanilla-kd"):
        trial = TaskTrial(point, "finished", 0.5, (0.5,)).to_json()
        results.add({"part": "g", "method": "vanilla-kd", "tries": True, "trial": trial})
    results.add({"part": "g", "method": "vanilla-kd", "seed": 0})
    kept, left_out = study.whole(results, (asked,))
    assert (len(kept), left_out) == (5, [])  # whole without it


def test_what_was_begun_elsewhere_is_left_out(study: ModuleType, tmp_path: Path) -> None:
    results, plain = study.JsonLines(tmp_path / "runs.jsonl"), part(study, "a", 2)
    grid = part(study, "g", 1, GRID)
    for seed, methods in ((0, ("none", "vanilla-kd")), (1, ("none",))):
        for method in methods:
            results.add({"part": "a", "method": method, "seed": seed})
    for method, count in (("none", 2), ("vanilla-kd", 1)):
        for point in grid.points(method)[:count]:
            trial = TaskTrial(point, "finished", 0.5, (0.5,)).to_json()
            results.add({"part": "g", "method": method, "tries": True, "trial": trial})
    kept, left_out = study.whole(results, (plain, grid))
    assert [(row["part"], row["method"], row.get("seed")) for row in left_out] == [
        ("a", "none", 1),
        ("g", "vanilla-kd", None),
    ]
    assert [(row["part"], row["method"], row.get("seed")) for row in kept] == [
        *(("a", "none", 0), ("a", "vanilla-kd", 0)),
        *(("g", "none", None), ("g", "none", None)),
    ]


def test_it_does_all_and_nothing_twice(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = TinyTaskLab.make(tmp_path / "lab", layers=4)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))
    parts = (part(study, "plain", 1), part(study, "grid", 1, GRID))
    left_open = dict.fromkeys(("batch_size", "learning_rate", "beta"))

    def spec(self: Any, _: Path) -> Any:
        of_grid = {**GRID, **left_open} if self.options else {}
        return lab.classification(methods=self.methods, seeds=self.seeds, max_steps=2, **of_grid)

    monkeypatch.setattr(study.Part, "spec", spec)
    file = tmp_path / "runs.jsonl"
    study.run(lab.glue.parent, file, parts, minutes=0.0)
    assert not file.exists()
    study.run(lab.glue.parent, file, parts, minutes=10.0)
    rows = study.JsonLines(file).rows
    done = [(row["part"], row["method"], "tries" in row) for row in rows]
    assert sorted(done) == sorted(
        [
            *[("plain", method, False) for method in parts[0].methods],
            *[("grid", method, tries) for method in parts[1].methods for tries in (0, 1, 1)],
        ]
    )
    for method in parts[1].methods:
        trials = study.trials_of(study.JsonLines(file), parts[1], method)
        (run,) = [
            r for r in rows if (r["part"], r["method"], "seed" in r) == ("grid", method, True)
        ]
        best = max(trial.held_out for trial in trials.values())
        assert run["held_out"] == best
        assert run["chosen"]["batch_size"] in (8, 16)
    for row in rows:
        if "tries" not in row:
            (said,) = row["predictions"].values()
            assert set(said) <= {"positive", "negative"}
    before = file.read_bytes()
    study.run(lab.glue.parent, file, parts, minutes=10.0)
    assert file.read_bytes() == before
