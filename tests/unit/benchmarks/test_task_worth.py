"""The study of tasks goes on where it was cut off, and says by how much and how sure."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kdnas.evaluation.examples import TaskData, TextExample
from kdnas.evaluation.tasks import find_task

PROGRAMS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.delitem(sys.modules, "task_worth", raising=False)
    import task_worth

    monkeypatch.setattr(task_worth, "DRAWS", 200)
    return task_worth


def run(model: str, said: list[str], task: str = "SST-2", **more: Any) -> dict[str, Any]:
    return {"model": model, "task": task, "tuning_seed": 0, "predictions": said, **more}


def some_data(labels: list[str]) -> TaskData:
    task = find_task("SST-2")
    examples = tuple(TextExample(str(n), "text", None, label) for n, label in enumerate(labels))
    return TaskData(task, examples, {"dev": examples}, ("0", "1"), True, ("file",), ())


def test_what_is_in_the_file_is_not_scored_again(study: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    study.Runs(file).add(run("student", ["0"]))
    again = study.Runs(file)
    assert [row["tuning_seed"] for row in again.of("student", "SST-2")] == [0]
    assert again.of("student", "CoLA") == again.of("warm", "SST-2") == []


def test_only_what_chance_has_a_hand_in_is_made_more_than_once(study: ModuleType) -> None:
    seeds = {c.name: len(c.seeds) for c in study.CONTENDERS}
    assert seeds["student"] == seeds["warm-0"] == seeds["even"] == 3
    assert seeds["even-0"] == seeds["lowest-0"] == 1


def test_examples_are_drawn_alike_for_all_models(study: ModuleType) -> None:
    truth = ["0", "1"] * 50
    wrong = ["1" if n < 10 else label for n, label in enumerate(truth)]
    data, task = some_data(truth), find_task("SST-2")
    perfect = study.resampled(task, data, [run("student", truth)])
    assert (perfect == 1).all()
    one, other = (study.resampled(task, data, [run(name, wrong)]) for name in ("student", "even"))
    assert np.array_equal(one, other)
    assert one.mean() == pytest.approx(0.95, abs=0.01)


def test_an_interval_holds_what_runs_and_examples_leave_open(study: ModuleType) -> None:
    chance = np.random.default_rng(0)
    draws = 0.02 + 0.01 * chance.standard_normal(2000)
    low, high = study.interval(0.02, draws)
    assert (low, high) == pytest.approx((0.0, 4.0), abs=0.1)  # 1.96 deviations, in per cent
    # Three runs whose means vary by .01 as well: Student's quantile at few degrees of freedom.
    runs = [0.5, 0.5 + 3**0.5 / 100, 0.5 - 3**0.5 / 100]
    low, high = study.interval(0.02, draws, runs)
    assert high - 2 == pytest.approx(100 * 2.306 * 2**0.5 / 100, rel=0.03)  # 8 of them
    assert study.interval(0.5, np.full(10, 0.5), [0.5, 0.5]) == (50.0, 50.0)


def test_runs_of_another_model_are_not_mixed_in(study: ModuleType, tmp_path: Path) -> None:
    runs = study.Runs(tmp_path / "runs.jsonl")
    one = run("student", ["0"], made_with_seed=0, fingerprint="a", settings={"max_steps": 2})
    assert not runs.has(one)
    runs.add(one)
    assert runs.has(one)
    assert not runs.has({**one, "tuning_seed": 1})
    for change in ({"fingerprint": "b"}, {"settings": {"max_steps": 500}}):
        with pytest.raises(SystemExit, match=f"with another {next(iter(change))}; begin another"):
            runs.has({**one, **change})


@pytest.mark.parametrize(
    ("interval", "word"),
    [((0.1, 2.0), "met"), ((-0.1, 2.0), "within the noise"), ((-3, -1), "missed")],
)
def test_a_bar_is_met_where_the_interval_is_above_zero(
    study: ModuleType, interval: tuple[float, float], word: str
) -> None:
    numbers = {
        name: {
            task: {
                "runs": [0.8 if name == "even-0" else 0.7],
                "student_above": sum(interval) / 2,
                "student_above_interval": interval,
            }
            for task in ("SST-2", "STS-B")
        }
        for name in ("student", "warm-0", "even-0", "lowest-0")
    }
    found = study.verdicts(numbers)
    assert len(found) == 4
    assert all(line.endswith(f"**{word}**.") for line in found)
    del numbers["lowest-0"]
    assert study.verdicts(numbers) == ["- SST-2: unfinished.", "- STS-B: unfinished."]
