"""Two models' predictions set against each other, file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from kdnas.evaluation.scoring.metrics import score
from kdnas.evaluation.scoring.paired import (
    Kept,
    compare,
    compare_together,
    interval_over_examples,
)
from kdnas.evaluation.tasks.task import Task, own_task

SENTENCES = own_task("s", "classification", metrics=("matthews",))
F1 = own_task("f", "classification", labels=("no", "yes"), metrics=("f1",))
NUMBERS = own_task("n", "regression")
TAGS = own_task("t", "tagging")


class Shelf:
    """Writes predictions as an evaluation does, with the score that the metrics give."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0

    def put(
        self,
        task: Task,
        sets: Mapping[str, tuple[Sequence[Any], Sequence[Any]]],
        scored: Sequence[str] | None = None,
    ) -> Kept:
        """Keep what was said about each set, and right; ``scored`` are those that count."""
        lines, values = [], {}
        for name, (said, right) in sets.items():
            values[name] = score(task, said, right)[task.main_metric]
            for number, (prediction, reference) in enumerate(zip(said, right, strict=True)):
                line = {"set": name, "id": str(number), "score": float(prediction == reference)}
                lines.append(line | {"prediction": prediction, "gold": reference})
        path = self._folder / f"{self._written}.jsonl"
        self._written += 1
        path.write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)), "utf-8")
        counting = tuple(scored or sets)
        main = fmean(values[name] for name in counting)
        return Kept(path, main, task.main_metric, counting)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def noisy(right: Sequence[str], share: float, seed: int) -> list[str]:
    """Labels of which a share is drawn anew."""
    chance = np.random.default_rng(seed)
    labels = sorted(set(right))
    return [str(chance.choice(labels)) if chance.random() < share else label for label in right]


RIGHT = [str(label) for label in np.random.default_rng(9).choice(["no", "yes"], 300)]


@pytest.mark.parametrize("task", [SENTENCES, F1], ids=["matthews", "f1"])
def test_classes_are_compared_by_the_tasks_own_metric(shelf: Shelf, task: Task) -> None:
    good, poor = (noisy(RIGHT, share, 1) for share in (0.1, 0.7))
    first, second = ({("x", 0): shelf.put(task, {"dev": (s, RIGHT)})} for s in (good, poor))
    found = compare(first, second)["x"]
    values = [score(task, said, RIGHT)[task.main_metric] for said in (good, poor)]
    assert found.metric == task.main_metric
    assert found.difference == pytest.approx(values[0] - values[1])
    assert 0 < found.low < found.difference < found.high
    assert found.examples == 300


def test_correlations_of_several_seeds_are_averaged(shelf: Shelf) -> None:
    chance = np.random.default_rng(4)
    right = [float(x) for x in chance.normal(size=200)]

    def run(noise: float) -> Kept:
        said = [x + noise * float(chance.normal()) for x in right]
        return shelf.put(NUMBERS, {"dev": (said, right)})

    models = [{("STS-B", seed): run(noise) for seed in (0, 1)} for noise in (0.5, 2.0)]
    found = compare(*models)["STS-B"]
    mains = [fmean(kept.main for kept in files.values()) for files in models]
    assert found.metric == "pearson"
    assert found.difference == pytest.approx(mains[0] - mains[1])
    together = compare_together(*models, ["STS-B"])
    assert together is not None
    assert together.difference == pytest.approx((found.low, found.high))
    assert together.share is not None
    assert together.share[0] > 1


def test_tags_are_compared_by_spans(shelf: Shelf) -> None:
    right = [["B-PER", "I-PER", "O"], ["O", "B-LOC", "O"]] * 20
    near = [["B-PER", "O", "O"], ["O", "B-LOC", "O"]] * 20
    first, second = ({("NER", 0): shelf.put(TAGS, {"test": (s, right)})} for s in (right, near))
    found = compare(first, second)["NER"]
    assert (found.metric, found.difference) == ("f1", pytest.approx(0.5))


def test_each_language_counts_alike_and_unscored_sets_not_at_all(shelf: Shelf) -> None:
    few, many = RIGHT[:20], RIGHT[:200]
    flipped = ["no" if label == "yes" else "yes" for label in few]
    task = own_task("x", "classification")
    sets = {"de": (few, few), "fr": (many, many)}
    other = {"de": (flipped, few), "fr": (many, many)}
    found = compare({("x", 0): shelf.put(task, sets)}, {("x", 0): shelf.put(task, other)})["x"]
    assert (found.metric, found.difference, found.examples) == ("accuracy", 0.5, 220)
    matched = [shelf.put(task, given, ["fr"]) for given in (sets, other)]
    found = compare({("x", 0): matched[0]}, {("x", 0): matched[1]})["x"]
    assert (found.difference, found.examples) == (0, 200)


def test_other_examples_are_not_compared(shelf: Shelf) -> None:
    files = [{("x", 0): shelf.put(F1, {"dev": (RIGHT[:n], RIGHT[:n])})} for n in (30, 31)]
    assert compare(*files) == {}
    assert compare_together(*files, ["x"]) is None
    assert compare_together(files[0], files[0], ["x", "y"]) is None
    assert compare(files[0], {("x", 1): files[1]["x", 0]}) == {}


def test_what_does_not_add_up_to_the_score_is_compared_by_example_alone(shelf: Shelf) -> None:
    said = noisy(RIGHT, 0.5, 2)
    kept = [shelf.put(SENTENCES, {"dev": (one, RIGHT)}) for one in (RIGHT, said)]
    for changed in (
        replace(kept[1], main=kept[1].main + 0.01),
        replace(kept[1], metric=None, sets=()),
        replace(kept[1], metric="f1"),
        replace(kept[1], sets=("test",)),
    ):
        files = [{("x", 0): kept[0]}, {("x", 0): changed}]
        found = compare(*files)["x"]
        assert found.metric is None
        right = [s == r for s, r in zip(said, RIGHT, strict=True)]
        assert found.difference == pytest.approx(1 - fmean(right))
        assert compare_together(*files, ["x"]) is None


def test_the_interval_of_one_model_is_that_of_its_examples(shelf: Shelf) -> None:
    right = ["no", "yes"] * 150
    said = noisy(right, 0.4, 1)
    accuracy = own_task("a", "classification", metrics=("accuracy",))
    kept = shelf.put(accuracy, {"dev": (said, right)})
    ends = interval_over_examples({("a", 0): kept}, "a")
    assert ends is not None
    deviation = (kept.main * (1 - kept.main) / len(right)) ** 0.5
    assert ends[0] == pytest.approx(kept.main - 1.96 * deviation, abs=0.01)
    assert ends[1] == pytest.approx(kept.main + 1.96 * deviation, abs=0.01)
    assert interval_over_examples({("a", 0): kept}, "b") is None
    unknown = replace(kept, metric=None)
    assert interval_over_examples({("a", 0): unknown}, "a") is None


def test_rankings_are_compared_query_by_query(tmp_path: Path) -> None:
    models = []
    for model, scores in enumerate(([1.0, 0.5, 1.0] * 30, [0.5, 0.5, 1.0] * 30)):
        path = tmp_path / f"{model}.jsonl"
        lines = [
            {"set": "test", "id": f"q{n}", "query": "x", "score": value}
            | {"prediction": ["a", "b"], "gold": ["a"]}
            for n, value in enumerate(scores)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        models.append({("faq", 0): Kept(path, fmean(scores), "ndcg_at_10", ("test",))})
    found = compare(*models)["faq"]
    assert (found.metric, found.examples) == ("ndcg_at_10", 90)
    assert found.difference == pytest.approx(1 / 6)
    assert 0 < found.low < found.high
