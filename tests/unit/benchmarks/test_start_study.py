"""The study of starts goes on where it was cut off, and counts steps from runs of their own."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas import ENGINE_VERSION

PROGRAMS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.delitem(sys.modules, "start_study", raising=False)
    import start_study

    return start_study


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


def test_what_is_in_the_file_is_not_trained_again(study: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    first, second, *_ = study.CHOOSING
    study.Results(file).add(row(first, "warm", 60, 0.4))
    results = study.Results(file)
    setting = study.Setting("texts", "warm", 1e-3, 0.1, 60, 0)
    assert results.missing(setting, (first, second), "mark") == [second]
    other = study.Setting("texts", "warm", 2e-3, 0.1, 60, 0)
    assert results.missing(other, (first, second), "mark") == [first, second]


def test_results_of_another_engine_are_not_mixed_in(study: ModuleType, tmp_path: Path) -> None:
    results = study.Results(tmp_path / "runs.jsonl")
    results.add(row(study.CHOOSING[0], "warm", 60, 0.4, engine_version="0"))
    with pytest.raises(SystemExit, match="results of engine 0"):
        results.missing(study.Setting("texts", "warm", 1e-3, 0.1, 60, 0), study.CHOOSING, "mark")


def test_results_on_other_text_of_that_name_are_not_mixed_in(
    study: ModuleType, tmp_path: Path
) -> None:
    results = study.Results(tmp_path / "runs.jsonl")
    results.add(row(study.CHOOSING[0], "warm", 60, 0.4))
    setting = study.Setting("texts", "teacher", 1e-3, 0.1, 60, 0)
    with pytest.raises(SystemExit, match=r"texts \(mark\), and this machine's is another text"):
        results.missing(setting, study.CHOOSING, "other")


def test_runs_of_an_engine_that_did_the_same_are_named(study: ModuleType, tmp_path: Path) -> None:
    results = study.Results(tmp_path / "runs.jsonl")
    results.add(row(study.REPORTED[0], "warm", 960, 0.4, trained_with_engine="4"))
    assert "Trained 1 with engine 4, before" in study.report(results)[0]


def test_rates_are_chosen_on_architectures_that_are_not_reported(
    study: ModuleType, tmp_path: Path
) -> None:
    assert not set(study.CHOOSING) & set(study.REPORTED)
    results = study.Results(tmp_path / "runs.jsonl")
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
    results = study.Results(tmp_path / "runs.jsonl")
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
    results = study.Results(tmp_path / "runs.jsonl")
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
    results = study.Results(tmp_path / "runs.jsonl")
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
