"""A trial of a grid on a tiny model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kdnas.errors import TrainingError
from kdnas.evaluation.finetuning.grid import GridPoint
from kdnas.evaluation.finetuning.trial import run_trial
from kdnas.evaluation.settings import FinetuneSettings, Grid
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

WORDS = ("good", "bad", "film", "the", "was", "plot")
SETTINGS = FinetuneSettings(1.0, 1, batch_size=16, grid=Grid((2e-3,), (6,)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TeacherHandle:
    folder = tmp_path_factory.mktemp("model")
    return prepare_teacher(str(make_tiny_teacher(folder, words=WORDS)))


def sentiment(train: int) -> TaskData:
    """Whether ``good`` stands in the sentence; what is scored in the end says the opposite."""
    draw = random.Random(0)

    def example(number: int, labels: tuple[str, str]) -> TextExample:
        words = [draw.choice(WORDS) for _ in range(6)]
        return TextExample(str(number), " ".join(words), None, labels["good" in words])

    examples = [example(n, ("negative", "positive")) for n in range(train)]
    scored = [example(n, ("positive", "negative")) for n in range(20)]
    labels = ("negative", "positive")
    return TaskData(find_task("SST-2"), examples, {"dev": scored}, labels, True, ("made up",))


def test_a_trial_is_scored_on_the_way_by_what_is_held_out(model: TeacherHandle) -> None:
    data, point, told = sentiment(200), GridPoint(2e-3, 6), dict[int, float]()
    run_trial(model, data, SETTINGS, point, told.__setitem__, device="cpu", threads=1)
    assert list(told) == [1, 2, 4]
    assert told[4] > 0.9  # the scored part would give next to nothing
    again: dict[int, float] = {}
    run_trial(model, data, SETTINGS, point, again.__setitem__, device="cpu", threads=1)
    assert again == told


def test_a_trial_of_one_step_is_scored_at_its_end(model: TeacherHandle) -> None:
    told: dict[int, float] = {}
    settings = replace(SETTINGS, max_steps=1)
    run_trial(
        model,
        sentiment(40),
        settings,
        GridPoint(1e-3, 3),
        told.__setitem__,
        device="cpu",
        threads=1,
    )
    assert list(told) == [4]


def test_whoever_listens_may_end_it(model: TeacherHandle, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def listen(quarter: int, score: float) -> None:
        raise EnoughError(quarter)

    with pytest.raises(EnoughError, match="1"):
        run_trial(
            model, sentiment(60), SETTINGS, GridPoint(1e-3, 3), listen, device="cpu", threads=1
        )


def test_divergence_is_said(model: TeacherHandle) -> None:
    settings = replace(SETTINGS, warmup_fraction=0, max_grad_norm=1e30)
    with pytest.raises(TrainingError, match="diverged"):
        run_trial(model, sentiment(60), settings, GridPoint(1e9, 5), lambda *_: None, device="cpu")
