"""``kdnas.load`` opens what kdnas makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kdnas
from kdnas.errors import RequestError, TaskDataError, TeacherError
from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.saving import read_saved_task, save_task_model
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import SpanExample, TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.sequence.config import KINDS, SequenceConfig
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.testing.tiny_sequence import make_tiny_sequence
from kdnas.testing.tiny_teacher import make_tiny_teacher

WORDS = ("good", "bad", "film", "the", "was")
TEXTS = ["the film was good", "bad", "", "the film was bad was good was bad"]
SETTINGS = FinetuneSettings(1e-3, 1, max_length=16, stride=4)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> TeacherHandle:
    folder = tmp_path_factory.mktemp("teacher")
    return prepare_teacher(str(make_tiny_teacher(folder, words=WORDS, layers=1)))


def data_of(name: str, labels: tuple[str, ...] | None, pair: str | None = None) -> TaskData:
    train = [TextExample("0", "a", pair, 1.0)]
    return TaskData(find_task(name), train, {}, labels, True, ("made up",))


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_no_transformer(
    kind: str, teacher: TeacherHandle, tmp_path: Path
) -> None:
    """As distillation for a task saves it: with the teacher's tokenizer and what it was made of."""
    config = SequenceConfig.for_teacher(kind, teacher, ("no", "yes"), hidden=16)
    words = torch.randn(teacher.shape.vocab_size, 48, generator=torch.Generator().manual_seed(0))
    model = SequenceClassifier.from_teacher(config, words, 0)
    made = TaskModel(model, None, SequenceClassifier.inputs, config.max_length)  # type: ignore[arg-type]
    folder = tmp_path / "student"
    save_task_model(folder, made, teacher, data_of("SST-2", ("no", "yes")), SETTINGS, 1)
    saved = read_saved_task(folder)
    assert saved is not None
    assert (saved.task, saved.model, saved.max_length) == ("SST-2", teacher.ref, 16)
    loaded = kdnas.load(folder)
    assert (loaded.kind, loaded.labels, loaded.max_length) == ("classification", ("no", "yes"), 16)
    assert not loaded.model.training
    encoded = loaded.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        expected = model.eval()(encoded["input_ids"]).logits.softmax(-1)[0]
    answer, *others = loaded(TEXTS)
    assert answer.value == ("no", "yes")[int(expected.argmax())]
    assert answer.probability == pytest.approx(float(expected.max()), abs=1e-6)
    assert [other.example.id for other in others] == ["1", "2", "3"]
    (same,) = loaded(TEXTS[0])
    assert (same.value, same.probability) == (answer.value, pytest.approx(answer.probability))
    with pytest.raises(RequestError, match="there are 4 texts and 1 pairs; give one pair a text"):
        loaded(TEXTS, ["a"])
    with pytest.raises(RequestError, match="has a second text, but the model learned from single"):
        loaded("a", "b")
    with pytest.raises(TaskDataError, match="text 1 has 7 in the place of a text"):
        loaded(["a", 7])  # type: ignore[list-item]


def test_a_regression_of_pairs(tmp_path: Path) -> None:
    make_tiny_sequence(tmp_path, "gated-cnn", (), words=WORDS)
    loaded = kdnas.load(str(tmp_path))
    assert (loaded.kind, loaded.labels) == ("regression", None)
    first, second = loaded(["the film", "bad"], ["the film", "good"])
    assert isinstance(first.value, float)
    assert first.value != second.value
    assert first.probability is None


def test_fine_tuned_models(teacher: TeacherHandle, tmp_path: Path) -> None:
    impossible = SpanExample("1", "q", "c", (), (), impossible=True)
    for name, labels in (("SST-2", ("no", "yes")), ("WNUT-17", ("O", "B-x")), ("SQuAD 2.0", None)):
        task = find_task(name)
        train = [impossible] if task.kind == "span" else []
        data = TaskData(task, train, {}, labels, True, ("made up",))
        model = load_task_model(teacher, task, labels, 0.1, 1)
        save_task_model(tmp_path / name.replace(" ", "-"), model, teacher, data, SETTINGS, 1)
    with pytest.raises(RequestError, match="has models of several tasks; name one"):
        kdnas.load(tmp_path)
    (answer,) = kdnas.load(tmp_path, task="sst2")("good")
    assert answer.value in ("no", "yes")
    tagger = kdnas.load(tmp_path / "WNUT-17")
    assert (tagger.kind, tagger.labels) == ("tagging", ("O", "B-x"))
    (tags,) = tagger("the film.")
    assert len(tags.value) == 3  # type: ignore[arg-type]
    asks = kdnas.load(tmp_path / "SQuAD-2.0")
    assert str(asks("bad", "the film was good")[0].value) in "the film was good"
    with pytest.raises(
        TaskDataError, match=r"text 0 has a question without a context; give it with pairs=\[…\]"
    ):
        asks("bad")


def test_second_texts_are_asked_for_in_the_words_of_python(
    teacher: TeacherHandle, tmp_path: Path
) -> None:
    task = find_task("SST-2")
    model = load_task_model(teacher, task, ("no", "yes"), 0.1, 1)
    data = TaskData(task, [], {}, ("no", "yes"), True, ("made up",))
    save_task_model(tmp_path / "model", model, teacher, data, SETTINGS, 1)
    about = json.loads((tmp_path / "model" / "task.json").read_text("utf-8"))
    (tmp_path / "model" / "task.json").write_text(json.dumps(about | {"paired": True}), "utf-8")
    loaded = kdnas.load(tmp_path / "model")
    with pytest.raises(RequestError, match=r"learned from pairs; give it with pairs=\[…\]$"):
        loaded("the film")
    assert len(loaded("the film", pairs=["good"])) == 1


def test_an_encoder_without_a_head(teacher: TeacherHandle) -> None:
    loaded = kdnas.load(teacher.folder)
    assert (loaded.kind, loaded.labels, loaded.max_length) == ("encoder", None, 64)
    encoded = loaded.tokenizer("the film", return_tensors="pt")
    assert loaded.model(**encoded).last_hidden_state.shape == (1, 4, 48)
    assert not any(p.requires_grad for p in loaded.model.parameters())
    with pytest.raises(RequestError, match="is an encoder without a head and answers nothing"):
        loaded("the film")


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match="does not exist"):
        kdnas.load(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.onnx").touch()
    with pytest.raises(TeacherError, match=r"holds a graph, and no weights; run it with onnx"):
        kdnas.load(tmp_path)


def test_kdnas_itself_loads_nothing_heavy() -> None:
    code = "import sys, kdnas; kdnas.load; print(*({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
