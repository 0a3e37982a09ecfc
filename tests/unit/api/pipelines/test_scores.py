"""Comparing scored models, against SciPy and NumPy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from api.pipelines.scores import ScoredModel, Scoring
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import Kept
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.registry import find_task


def model(
    name: str,
    scores: Mapping[str, Sequence[float]],
    files: Mapping[tuple[str, int], Kept] | None = None,
) -> ScoredModel:
    """A model with a score for each task and seed."""
    results = [
        TaskResult(
            task=task,
            suite="glue",
            seed=seed,
            settings=published_settings(find_task(task)),
            metrics={},
            main=score,
            seconds=1.0,
            steps=1,
            train_examples=1,
            official_split=True,
        )
        for task, values in scores.items()
        for seed, score in enumerate(values)
    ]
    return ScoredModel(name, tuple(results), files or {})


def test_seeds_alone_give_welchs_interval() -> None:
    first, second = [0.61, 0.66, 0.59], [0.52, 0.50, 0.56]
    scoring = Scoring("glue", [model("a", {"RTE": first}), model("b", {"RTE": second})])
    beside = scoring.beside("a", "b")
    assert beside is not None
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (beside.difference.low, beside.difference.high) == pytest.approx(
        (expected.low, expected.high)
    )
    assert beside.difference.over == "seeds"
    share = scoring.retained("a", "b")
    assert share is not None
    assert share.value == pytest.approx(fmean(first) / fmean(second))
    assert share.low is not None
    assert share.high is not None
    assert share.low < share.value < share.high
    assert share.low * share.high == pytest.approx(share.value**2)  # even on the log scale


def test_a_difference_is_of_the_seeds_that_both_have() -> None:
    """While the others are still to be done, or have failed."""
    scoring = Scoring(
        "glue", [model("a", {"RTE": [0.60, 0.62]}), model("b", {"RTE": [0.60, 0.62, 0.69]})]
    )
    difference, share = scoring.difference("a", "b"), scoring.retained("a", "b")
    assert difference is not None
    assert difference.value == pytest.approx(0.0)
    assert difference.low is not None
    assert difference.high is not None
    assert difference.low < 0 < difference.high
    assert share is not None
    assert share.value == pytest.approx(1.0)
    whole = scoring.score("b")
    assert whole is not None
    assert whole.mean == pytest.approx(fmean([0.60, 0.62, 0.69]))


def test_a_single_seed_that_both_have_is_too_little() -> None:
    first, second = [0.60, 0.62, 0.64], [0.55]
    models = [model("a", {"RTE": first}), model("b", {"RTE": second})]
    difference = Scoring("glue", models).difference("a", "b")
    assert difference is not None
    assert difference.value == pytest.approx(fmean(first) - second[0])


def test_one_seed_without_predictions_tells_nothing_of_the_noise() -> None:
    scoring = Scoring("glue", [model("a", {"RTE": [0.6]}), model("b", {"RTE": [0.5]})])
    beside = scoring.beside("a", "b")
    assert beside is not None
    assert beside.verdict == "not known"
    assert beside.difference.low is None


def write(folder: Path, name: str, scores: Sequence[float], main: float, metric: str) -> Kept:
    """Predictions as they were written before references were."""
    file = folder / name
    lines = [{"set": "dev", "id": str(i), "score": score} for i, score in enumerate(scores)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Kept(file, main, metric, ("dev",))


def predicted(folder: Path, name: str, scores: Mapping[str, Sequence[float]]) -> ScoredModel:
    """A model whose scores are the means over its examples."""
    files = {
        (t, 0): write(folder, f"{name}-{t}", values, fmean(values), "accuracy")
        for t, values in scores.items()
    }
    return model(name, {task: [fmean(values)] for task, values in scores.items()}, files)


def test_examples_give_the_interval_where_scores_are_their_means(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    right = {
        task: chance.random((2, n)) < [[0.7], [0.8]] for task, n in (("RTE", 80), ("WNLI", 30))
    }
    models = [
        predicted(tmp_path, name, {task: list(map(float, both[i])) for task, both in right.items()})
        for i, name in enumerate(("a", "b"))
    ]
    scoring = Scoring("glue", models)
    assert scoring.name == "mean of 2 tasks"  # papers leave WNLI out of their average
    share = scoring.retained("a", "b")
    assert share is not None
    assert share.over == "examples"
    draws = []
    for _ in range(4000):
        means = np.zeros(2)
        for both in right.values():
            means += both[:, chance.integers(0, both.shape[1], both.shape[1])].mean(1)
        draws.append(means[0] / means[1])
    assert (share.low, share.high) == pytest.approx(np.quantile(draws, (0.025, 0.975)), abs=0.01)
    beside = scoring.beside("a", "b")
    assert beside is not None
    assert set(beside.tests) == {"RTE", "WNLI"}


def test_a_score_that_the_predictions_do_not_add_up_to_is_left_to_the_seeds(tmp_path: Path) -> None:
    scores = {"a": [0.4, 0.45], "b": [0.3, 0.33]}
    models = []
    for name, mains in scores.items():
        files = {
            ("CoLA", seed): write(tmp_path, f"{name}{seed}", [1.0, 0.0, 1.0], main, "matthews")
            for seed, main in enumerate(mains)
        }
        models.append(model(name, {"CoLA": mains}, files))
    beside = Scoring("glue", models).beside("a", "b")
    assert beside is not None
    assert beside.difference.over == "seeds"
    assert beside.tests["CoLA"].metric is None


def test_models_are_compared_by_the_tasks_that_all_have() -> None:
    scoring = Scoring(
        "glue",
        [
            model("a", {"RTE": [0.6, 0.7], "SST-2": [0.9, 0.8], "CoLA": [0.4, 0.5]}),
            model("b", {"RTE": [0.5], "SST-2": [0.7]}),
            model("c", {}),
        ],
    )
    assert scoring.tasks == ("RTE", "SST-2")
    assert scoring.name == "GLUE (2 of 8)"
    cell = scoring.score("a")
    assert cell is not None
    assert (cell.mean, cell.seeds) == (pytest.approx(0.75), 2)
    assert scoring.score("c") is None
    assert scoring.retained("c", "a") is None
    assert scoring.beside("a", "c") is None


def test_nothing_is_scored_yet() -> None:
    scoring = Scoring("glue", [model("a", {})])
    assert scoring.tasks == ()
    assert scoring.score("a") is None
