"""The study of starts goes on where it was cut off, and counts steps from runs of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kdnas import ENGINE_VERSION


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("start_study")


def row(architecture: str, start: str, steps: int, relative: float, **more: Any) -> dict[str, Any]:
    return {
        "corpus": "texts",
        "start": start,
        "rate": 1e-3,
        "warmup": 0.1,
        "steps": steps,
        "seed": 0,
        "architecture": architecture,
        "loss_start": 0.5,
        "relative": relative,
        "corpus_fingerprint": "mark",
        "dtype": "float32",
        "engine_version": ENGINE_VERSION,
        **more,
    }


class Trainer:
    """Stands for the laboratory: says what it is asked to train."""

    name = "texts"

    def __init__(self, fingerprint: str = "mark") -> None:
        self.corpus = SimpleNamespace(fingerprint=fingerprint)
        self.asked: list[tuple[str, int, str]] = []

    def train(
        self, proxy: Any, architectures: list[str], *, objective: dict[str, Any], start: str
    ) -> Iterator[Any]:
        assert objective == {"name": "hs"}
        for name in architectures:
            self.asked.append((name, proxy.steps, start))
            found = row(name, start, proxy.steps, 0.4)
            yield {k: v for k, v in found.items() if k not in ("corpus", "start", "rate", "seed")}


def test_what_is_in_the_file_is_not_trained_again(study: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    first, second, *_ = study.CHOOSING
    study.JsonLines(file).add(row(first, "warm", 60, 0.4))
    laboratory, results = Trainer(), study.JsonLines(file)
    plan = [
        (study.Setting("texts", "warm", rate, 0.1, 60, 0), (first, second)) for rate in (1e-3, 2e-3)
    ]
    study.run(laboratory, results, plan)
    expected = [(second, 60, "warm"), (first, 60, "warm"), (second, 60, "warm")]
    assert laboratory.asked == expected
    again = study.JsonLines(file)
    assert again.rows == results.rows
    assert len(again.rows) == 4
    study.run(laboratory, again, plan)
    assert laboratory.asked == expected


@pytest.mark.parametrize(
    ("found", "fingerprint", "words"),
    [
        ({"engine_version": "0"}, "mark", "has results of engine 0, and this is"),
        ({}, "other", r"texts \(mark\), and this machine's is another text \(other\)"),
    ],
    ids=["engine", "text"],
)
def test_results_that_cannot_be_compared_are_not_mixed_in(
    study: ModuleType, tmp_path: Path, found: dict[str, Any], fingerprint: str, words: str
) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    results.add(row(study.CHOOSING[0], "warm", 60, 0.4, **found))
    setting = study.Setting("texts", "teacher", 1e-3, 0.1, 60, 0)
    laboratory = Trainer(fingerprint)
    with pytest.raises(SystemExit, match=words):
        study.run(laboratory, results, [(setting, study.CHOOSING)])
    assert laboratory.asked == []


def test_runs_of_an_engine_that_did_the_same_are_named(study: ModuleType, tmp_path: Path) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    results.add(
        row(
            study.REPORTED[0], "warm", 960, 0.4, engine_version="4", holds_for_engine=ENGINE_VERSION
        )
    )
    assert "Among them are 1 of engine 4, for which nothing changed" in study.report(results)[0]
    results.refuse_others("texts", "mark")


def test_rates_are_chosen_on_architectures_that_are_not_reported(
    study: ModuleType, tmp_path: Path
) -> None:
    assert not set(study.CHOOSING) & set(study.REPORTED)
    results = study.JsonLines(tmp_path / "runs.jsonl")
    for rate, loss in ((1e-3, 0.4), (2e-3, 0.3), (4e-3, None)):
        results.add(row(study.CHOOSING[0], "teacher", 240, loss, rate=rate))
    results.add(row(study.REPORTED[0], "teacher", 240, 0.1, rate=5e-4))
    rates = study.best_rates(results)
    assert rates == {("teacher", 240): (2e-3, 0.1)}
    assert study.nearest(rates, "teacher", 960) == (2e-3, 0.1)
    with pytest.raises(SystemExit, match="no rate was swept for the start warm"):
        study.nearest(rates, "warm", 60)


def test_the_fewest_steps_are_those_of_a_run_of_their_own(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    student = study.REPORTED[2]
    monkeypatch.setattr(study, "REPORTED", (student,))
    results.add(row(student, "warm", 960, 0.3))
    for steps, loss in ((60, 0.4), (240, 0.29), (960, 0.2)):
        results.add(row(student, "teacher", steps, loss))
    found = study.fewest_steps(results, "texts", student, 0)
    assert (found["fewest_steps"], found["ratio"]) == (240, 4.0)
    text, numbers = study.report(results)
    assert numbers["summary"]["median_ratio"] == 4.0
    assert numbers["summary"]["largest_disadvantage_at_960"] == pytest.approx(-0.1)
    assert "of 1 of 2 comparisons is 4.0, the bar is 4: **met so far**" in text
    assert "No student was trained with two seeds yet" in text
    assert "Unfinished" not in text


def test_a_set_that_lacks_students_is_not_counted(study: ModuleType, tmp_path: Path) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    for seed, students in ((0, study.REPORTED), (1, study.REPORTED[1:])):
        for student in students:
            results.add(row(student, "warm", 960, 0.3, seed=seed))
            results.add(row(student, "teacher", 480, 0.2, seed=seed))
            results.add(row(student, "teacher", 960, 0.1, seed=seed))
    text, numbers = study.report(results)
    assert (numbers["summary"]["compared"], numbers["summary"]["wanted"]) == (8, 16)
    assert "the median of 8 of 16 comparisons is 2.0" in text


def test_a_loss_that_is_never_reached_is_said_to_be_so(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = study.JsonLines(tmp_path / "runs.jsonl")
    student = study.REPORTED[2]
    monkeypatch.setattr(study, "REPORTED", (student,))
    results.add(row(student, "warm", 960, 0.3))
    assert "Unfinished" in study.report(results)[0]
    results.add(row(student, "teacher", 960, 0.35))
    assert study.fewest_steps(results, "texts", student, 0)["fewest_steps"] is None
    text, numbers = study.report(results)
    assert "not reached" in text
    assert "**missed so far**" in text
    results.add(row(student, "warm", 960, 0.31, seed=1))
    results.add(row(student, "teacher", 960, 0.35, seed=1))
    # Seeds of `warm` are .01 apart (variance .00005), those of the other start not at all.
    text, numbers = study.report(results)
    assert numbers["summary"]["seed_deviation_at_960"] == pytest.approx(0.005)
    assert numbers["summary"]["largest_disadvantage_at_960"] == pytest.approx(0.05)
    assert "ahead in 0 of 2 comparisons of the others; where it falls behind most" in text
    assert "further behind than that: **missed**." in text
