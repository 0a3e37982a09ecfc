"""Fine-tuning tiny models on tasks of a few words."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kdnas.errors import TaskDataError, TrainingError
from kdnas.evaluation.finetuning import training
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.answers import score_spans
from kdnas.evaluation.scoring.tally import tally
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import own_task
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

NAMES = ("anna", "boris", "carla")
WORDS = ("likes", "sees", "the", "river", "stone", "good", "bad", *NAMES)
SETTINGS = FinetuneSettings(2e-3, 10, batch_size=16, max_steps=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TeacherHandle:
    folder = tmp_path_factory.mktemp("model")
    return prepare_teacher(str(make_tiny_teacher(folder, words=WORDS)))


def sentences(count: int, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice(WORDS) for _ in range(draw.randint(3, 9))] for _ in range(count)]


def sentiment(train: int = 200, dev: int = 60) -> TaskData:
    """Whether ``good`` stands in the sentence."""

    def examples(count: int, seed: int) -> list[TextExample]:
        return [
            TextExample(
                str(i), " ".join(words), None, "positive" if "good" in words else "negative"
            )
            for i, words in enumerate(sentences(count, seed))
        ]

    parts = {"dev": examples(dev, 1)}
    labels = ("negative", "positive")
    return TaskData(find_task("SST-2"), examples(train, 0), parts, labels, True, ("made up",))


def which_names() -> TaskData:
    """Which names stand in the sentence, if any."""

    def examples(count: int, seed: int) -> list[TextExample]:
        return [
            TextExample(str(i), " ".join(words), None, tuple(sorted({*words} & {*NAMES})))
            for i, words in enumerate(sentences(count, seed))
        ]

    task = own_task("names", "multilabel")
    return TaskData(task, examples(200, 0), {"dev": examples(60, 1)}, NAMES, False, ("made up",))


def similarity() -> TaskData:
    """How many names the second text has."""

    def examples(count: int, seed: int) -> list[TextExample]:
        drawn = sentences(count, seed)
        return [
            TextExample(
                str(i), "likes", " ".join(words), float(sum(word in NAMES for word in words))
            )
            for i, words in enumerate(drawn)
        ]

    parts = {"dev": examples(60, 1)}
    return TaskData(find_task("STS-B"), examples(300, 0), parts, None, True, ("made up",))


def names() -> TaskData:
    """Names are persons; words that the vocabulary lacks fall apart into pieces."""

    def examples(count: int, seed: int) -> list[TaggedExample]:
        found = []
        for i, words in enumerate(sentences(count, seed)):
            tokens = tuple(word if word != "stone" else "pebbles" for word in words)
            tags = tuple("B-PER" if word in NAMES else "O" for word in tokens)
            found.append(TaggedExample(str(i), tokens, tags))
        return found

    parts = {"test": examples(40, 1)}
    labels = ("O", "B-PER", "I-PER")
    return TaskData(find_task("WNUT-17"), examples(200, 0), parts, labels, True, ("made up",))


def run(
    model: TeacherHandle,
    data: TaskData,
    folder: Path,
    settings: FinetuneSettings = SETTINGS,
    on_progress: Callable[[FinetuneProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TaskResult | None:
    return finetune(
        model,
        data,
        settings,
        0,
        folder / "checkpoints",
        device="cpu",
        threads=1,
        on_progress=on_progress,
        should_stop=should_stop,
    )


@pytest.mark.parametrize(
    ("make", "metric", "at_least"),
    [
        (sentiment, "accuracy", 0.95),
        (which_names, "f1_micro", 0.7),
        (similarity, "pearson", 0.7),
        (names, "f1", 0.95),
    ],
)
def test_a_task_is_learned(
    make: Callable[[], TaskData], metric: str, at_least: float, model: TeacherHandle, tmp_path: Path
) -> None:
    data = make()
    told: list[FinetuneProgress] = []
    result = run(model, data, tmp_path, on_progress=told.append)
    assert result is not None
    (part,) = data.evaluations
    assert result.metrics[part][metric] > at_least
    assert result.main == result.metrics[part][data.task.main_metric]
    assert (result.steps, result.train_examples) == (60, len(data.train))
    assert [p.id for p in result.predictions[part]] == [e.id for e in data.evaluations[part]]
    assert result.main_metric() == (data.task.main_metric, (part,))
    said, right = zip(*((p.prediction, p.gold) for p in result.predictions[part]), strict=True)
    made = tally(data.task.main_metric, said, right, sets=data.task.kind == "multilabel")
    assert made.value == pytest.approx(result.main)
    assert "training was cut to 60 steps" in result.notes
    assert (told[59].phase, told[59].done, told[59].total) == ("training", 60, 60)
    assert (told[-1].phase, told[-1].done) == (part, len(data.evaluations[part]))
    assert TaskResult.from_json(result.to_json()) == replace(result, predictions={})


def with_old_names(model: TeacherHandle, folder: Path) -> TeacherHandle:
    """The same, its layer norms called as the first BERTs have them, and bert-base-uncased."""
    shutil.copytree(model.folder, folder)
    weights = load_file(folder / "model.safetensors")
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in weights.items()
    }
    assert old.keys() != weights.keys()
    save_file(old, folder / "model.safetensors", {"format": "pt"})
    return prepare_teacher(str(folder))


def test_who_stops_it_and_takes_that_back_gets_no_half_trained_model(
    model: TeacherHandle, tmp_path: Path
) -> None:
    """It ends as it was asked to, and goes on from its checkpoint when it is begun again."""
    asked = iter(range(1000))
    assert run(model, similarity(), tmp_path, should_stop=lambda: next(asked) == 5) is None
    assert next(asked) < 10
    ended = run(model, similarity(), tmp_path)
    assert ended is not None
    assert ended.steps == 60


@pytest.mark.parametrize(
    ("early_stopping", "old"), [(None, False), (5, False), (None, True), (5, True)]
)
def test_an_interrupted_run_ends_like_one_in_a_piece(
    early_stopping: int | None,
    old: bool,
    model: TeacherHandle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training, "SAVE_SECONDS", 0.1)
    if old:
        model = with_old_names(model, tmp_path / "old")
    data, settings = similarity(), replace(SETTINGS, early_stopping=early_stopping)
    whole = run(model, data, tmp_path / "whole", settings)
    asked = iter(range(1000))
    assert run(model, data, tmp_path, settings, should_stop=lambda: next(asked) > 25) is None
    newest = max((tmp_path / "checkpoints").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    broken = tmp_path / "checkpoints" / "checkpoint-50"  # as a kill leaves it
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"cut off")
    steps: list[int] = []
    resumed = run(
        model,
        data,
        tmp_path,
        settings,
        on_progress=lambda p: steps.append(p.done) if p.phase == "training" else None,
    )
    assert whole is not None
    assert resumed is not None
    assert steps[0] == int(newest.name.split("-")[1]) + 1
    assert resumed.predictions == whole.predictions
    assert resumed.metrics == whole.metrics
    again = run(model, data, tmp_path, settings)  # a kill came after training
    assert again is not None
    assert (again.predictions, again.steps) == (whole.predictions, 60)


def test_the_best_epoch_is_kept_whatever_its_norms_are_called(
    model: TeacherHandle, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, early_stopping=1, max_steps=None)
    known, old = (
        run(one, sentiment(), tmp_path / one.folder.name / "run", settings)
        for one in (model, with_old_names(model, tmp_path / "old"))
    )
    assert known is not None
    assert old is not None
    assert old.predictions == known.predictions


def test_early_stopping_keeps_the_best_epoch(model: TeacherHandle, tmp_path: Path) -> None:
    settings = replace(SETTINGS, early_stopping=1, max_steps=None)
    result = run(model, sentiment(), tmp_path, settings)
    assert result is not None
    assert result.train_examples == 180
    assert result.steps < 120  # of ten epochs of 12 steps
    assert result.steps % 12 == 0
    assert result.main > 0.95
    assert "the epoch was chosen on a held-out tenth of the training part" in result.notes


def test_no_epoch_is_chosen_by_what_is_scored(model: TeacherHandle, tmp_path: Path) -> None:
    settings = replace(SETTINGS, early_stopping=1, max_steps=None, epochs=3)
    told: list[tuple[str, int]] = []
    data = sentiment(60, 10)
    data = replace(data, tuning=sentiment(60, 25).evaluations["dev"])
    result = run(
        model, data, tmp_path, settings, on_progress=lambda p: told.append((p.phase, p.total))
    )
    assert result is not None
    assert result.train_examples == 60
    phases = [phase for phase, _ in told]
    assert phases.index("dev") > max(i for i, phase in enumerate(phases) if phase != "dev")
    assert ("tuning", 25) in told
    assert "the epoch was chosen on the development part" in result.notes


def test_the_process_keeps_its_random_states(model: TeacherHandle, tmp_path: Path) -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    wanted = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    run(model, sentiment(20, 8), tmp_path, replace(SETTINGS, max_steps=2))
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == wanted


@pytest.mark.parametrize("model_type", ["roberta", "electra", "distilbert", "modernbert"])
def test_every_family_learns_from_pairs(model_type: str, tmp_path: Path) -> None:
    teacher = prepare_teacher(str(make_tiny_teacher(tmp_path / "model", model_type, words=WORDS)))
    result = run(teacher, similarity(), tmp_path, replace(SETTINGS, max_steps=2))
    assert result is not None
    assert result.steps == 2


def test_divergence_is_said(model: TeacherHandle, tmp_path: Path) -> None:
    settings = replace(SETTINGS, learning_rate=1e9, warmup_fraction=0, max_grad_norm=1e30)
    with pytest.raises(TrainingError, match="smaller `learning_rate`"):
        run(model, similarity(), tmp_path, settings)


def test_an_empty_part_is_refused(model: TeacherHandle, tmp_path: Path) -> None:
    data = replace(sentiment(), train=())
    with pytest.raises(TaskDataError, match="'train' of SST-2 has no examples"):
        run(model, data, tmp_path)


def questions(impossible: bool) -> TaskData:
    """Who does something: the name that stands behind the verb, if there is one."""

    def examples(count: int, seed: int) -> list[SpanExample]:
        found = []
        draw = random.Random(seed)
        for i in range(count):
            words = [draw.choice(("the", "river", "stone", "bad")) for _ in range(40)]
            here = not impossible or draw.random() < 0.5
            place, name = draw.randrange(40), draw.choice(NAMES)
            if here:
                words[place] = name
            context = " ".join(words)
            answers, starts = ((name,), (context.index(name),)) if here else ((), ())
            found.append(SpanExample(str(i), "good?", context, answers, starts, not here))
        return found

    task = find_task("SQuAD 2.0" if impossible else "SQuAD 1.1")
    return TaskData(task, examples(200, 0), {"dev": examples(40, 1)}, None, True, ("made up",))


@pytest.mark.parametrize("impossible", [False, True])
def test_questions_are_answered_from_windows(
    impossible: bool, model: TeacherHandle, tmp_path: Path
) -> None:
    data = questions(impossible)
    settings = replace(SETTINGS, max_length=32, stride=8, max_steps=90)  # some three windows each
    told: list[FinetuneProgress] = []
    result = run(model, data, tmp_path, settings, on_progress=told.append)
    assert result is not None
    assert result.main == result.metrics["dev"]["f1"]
    assert result.main > 0.9
    assert result.main == pytest.approx(np.mean([p.score for p in result.predictions["dev"]]))
    assert ("best_f1" in result.metrics["dev"]) == impossible
    said, asked = result.predictions["dev"], data.evaluations["dev"]
    assert all((p.denial is not None) == impossible for p in said)
    # Whoever reads the predictions finds the scores in them: answers are those after the threshold.
    scores = score_spans(data.task, {p.id: str(p.prediction) for p in said}, asked)  # type: ignore[arg-type]
    assert scores.items() <= result.metrics["dev"].items()
    assert any(p.best_span and not p.prediction for p in said) == impossible
    line = said[0].to_json()
    assert line.keys() >= {"id", "question", "context", "prediction", "gold", "score"}
    assert ("best_span" in line) == impossible
    assert told[-1] == FinetuneProgress("dev", 40, 40)


def test_a_model_fine_tuned_in_bfloat16_can_be_quantised(
    model: TeacherHandle, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, max_steps=1, dtype="bfloat16")
    result = finetune(model, sentiment(4, 4), settings, 0, tmp_path, device="cpu", int8=True)
    assert result is not None
    assert any(note.startswith("weights in int8") for note in result.notes)
