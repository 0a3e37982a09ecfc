"""Students of a task as they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from kdnas.errors import SpecError, TeacherError
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.finetuning.text import mean_number
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.teacher import load_teacher_model
from kdnas.taskspecific.networks import SequenceNetwork, TransformerNetwork
from kdnas.testing.tiny_task_lab import TinyTaskLab, write_own
from kdnas.testing.tiny_tasks import WORDS
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.task import students as task_students
from workers.task.request import CheckedTask, check_task
from workers.task.students import network_of


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyTaskLab:
    return TinyTaskLab.make(tmp_path_factory.mktemp("lab"))


def checked(lab: TinyTaskLab, student: str, **changes: Any) -> CheckedTask:
    spec = lab.classification(student=student, methods=["vanilla-kd"], **changes)
    return check_task(spec, lab.store())


def built(found: CheckedTask, seed: int = 0, dropout: float = 0.0) -> TaskModel:
    return found.student.build(dropout, seed)


@pytest.mark.parametrize(
    ("student", "layers", "start"),
    [
        ("first-layers:3", (1, 2, 3), "layers 1, 2, 3 of"),
        ("layers:2,5,6", (2, 5, 6), "layers 2, 5, 6 of"),
        ("first-layers:1", (1,), "layer 1 of"),
    ],
)
def test_layers_of_the_teacher_are_taken_with_its_embeddings(
    student: str, layers: tuple[int, ...], start: str, lab: TinyTaskLab
) -> None:
    found = checked(lab, student)
    assert found.student.start.startswith(start)
    model: Any = built(found).model
    teacher: Any = load_teacher_model(found.teacher)
    own = model.bert.encoder.layer
    assert len(own) == len(layers) == model.config.num_hidden_layers
    for mine, number in zip(own, layers, strict=True):
        theirs = teacher.encoder.layer[number - 1].state_dict()
        assert all(torch.equal(value, theirs[key]) for key, value in mine.state_dict().items())
    embeddings = teacher.embeddings.state_dict()
    for key, value in model.bert.embeddings.state_dict().items():
        assert torch.equal(value, embeddings[key])


def test_the_seed_decides_the_head_alone(lab: TinyTaskLab) -> None:
    found, before = checked(lab, "first-layers:2"), torch.get_rng_state()
    one, same, other = (built(found, seed).model.state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    differing = {key for key in one if not torch.equal(one[key], other[key])}
    assert differing == {"classifier.weight"}


def test_dropout_is_the_students_own(lab: TinyTaskLab) -> None:
    model: Any = built(checked(lab, "first-layers:2"), dropout=0.3).model
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.3
    rates = {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {0.3}


@pytest.mark.parametrize("layers", ["1,3", "2,4"])
def test_layers_are_the_same_when_they_are_loaded_again(
    layers: str, lab: TinyTaskLab, tmp_path: Path
) -> None:
    """Of a teacher whose first layer is built otherwise than the others."""
    folder = make_tiny_teacher(tmp_path / "modern", "modernbert", layers=4, words=WORDS)
    made = built(checked(lab, f"layers:{layers}", teacher={"ref": str(folder)}))
    model: Any = made.model.eval()
    model.save_pretrained(tmp_path / "student")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "student").eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    with torch.inference_mode():
        said, saved = (one(input_ids=ids).logits for one in (model, again))
    torch.testing.assert_close(saved, said, rtol=0, atol=1e-5)
    own, theirs = model.state_dict(), again.state_dict()
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[key], theirs[key]) for key in own)


@pytest.mark.parametrize("kind", ["bilstm", "gated-cnn"])
def test_sequence_students_stand_on_the_teachers_words(kind: str, lab: TinyTaskLab) -> None:
    found = checked(lab, kind)
    made = built(found, dropout=0.2)
    assert isinstance(made.model, SequenceClassifier)
    teacher: Any = load_teacher_model(found.teacher)
    words = teacher.embeddings.word_embeddings.weight
    torch.testing.assert_close(made.model.embeddings.weight, words / words.std())
    assert not made.model.embeddings.weight.requires_grad
    assert (made.model.config.hidden, made.model.config.labels) == (768, found.data.labels)
    assert made.model.config.dropout == 0.2
    assert found.student.kind == kind
    assert not found.student.shape.transformer
    assert isinstance(network_of(made), SequenceNetwork)
    assert network_of(made).shape == found.student.shape


def test_a_folder_is_taken_as_it_is(lab: TinyTaskLab, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / "own", layers=2, hidden=16, heads=2, words=WORDS, seed=4)
    found = checked(lab, str(folder))
    made = built(found)
    assert found.student.start == f"folder {folder}"
    assert (found.student.shape.layers, found.student.shape.width) == (2, 16)
    network = network_of(made)
    assert isinstance(network, TransformerNetwork)
    assert network.shape == found.student.shape
    theirs: Any = load_teacher_model(found.student.origin)
    for mine, own in zip(made.model.bert.encoder.layer, theirs.encoder.layer, strict=True):
        assert all(map(torch.equal, mine.state_dict().values(), own.state_dict().values()))


def test_a_folder_with_a_broken_tokenizer_is_refused(lab: TinyTaskLab, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / "own", layers=2, words=WORDS)
    (folder / "tokenizer.json").write_text('{"version": "1.0"', "utf-8")
    with pytest.raises(TeacherError, match=r"tokenizer of model .* does not load"):
        checked(lab, str(folder))


def test_of_a_regression_students_begin_at_the_mean(lab: TinyTaskLab) -> None:
    for student in ("first-layers:2", "bilstm"):
        spec = lab.regression(student=student, methods=["vanilla-kd"])
        found = check_task(spec, lab.store())
        model: Any = built(found).model
        head = model.head if student == "bilstm" else model.classifier
        assert head.bias.tolist() == [pytest.approx(mean_number(found.tuning))]
        assert head.weight.shape[0] == 1


def test_an_architecture_starts_as_in_a_search_and_is_started_once(
    lab: TinyTaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(lab, "2,2,16,32,gelu")
    assert (found.student.shape.layers, found.student.shape.width) == (2, 16)
    assert found.student.start.startswith("cut from")
    one = built(found).model.state_dict()

    def refuse(*_: Any) -> None:
        raise AssertionError("was started once more")

    monkeypatch.setattr(task_students, "_cut", refuse)
    same = built(checked(lab, "2,2,16,32,gelu")).model.state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)


def test_an_architecture_is_cut_with_the_threads_that_were_asked_for(
    lab: TinyTaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def cut(*_: Any) -> None:
        seen.append(torch.get_num_threads())
        raise SpecError("seen")

    monkeypatch.setattr(task_students, "_cut", cut)
    for threads in (1, 2):
        with pytest.raises(SpecError, match="seen"):
            checked(lab, "3,2,16,32,gelu", threads=threads)
    assert seen == [1, 2]


def test_too_few_texts_start_no_architecture(lab: TinyTaskLab, tmp_path: Path) -> None:
    file = write_own(tmp_path / "mine.jsonl", ["yes", "no"] * 4)
    spec = lab.regression(
        student="2,2,16,32,gelu",
        methods=["vanilla-kd"],
        data_dir=str(file),
        own={"kind": "classification"},
    )
    with pytest.raises(SpecError, match="too few to start student 2,2,16,32,gelu"):
        check_task(spec, lab.store())
