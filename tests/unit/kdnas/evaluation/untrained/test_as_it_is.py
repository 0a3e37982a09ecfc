"""Fine-tuned models as they are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kdnas.errors import RequestError
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import (
    Example,
    SpanExample,
    TaggedExample,
    TaskData,
    TextExample,
)
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import Task, own_task
from kdnas.evaluation.untrained.as_it_is import AS_IT_IS_NOTE, score_as_it_is
from kdnas.evaluation.untrained.own_head import labels_of_head
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

NAMES = ("anna", "boris", "carla")
WORDS = ("sees", "the", "river", "good", "bad", *NAMES)
SETTINGS = FinetuneSettings(2e-3, 10, batch_size=8, max_length=32, stride=8, max_steps=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TeacherHandle:
    folder = tmp_path_factory.mktemp("model")
    return prepare_teacher(str(make_tiny_teacher(folder, words=WORDS, layers=1)))


def data_of(
    task: Task, make: Callable[[int, list[str]], Example], labels: tuple[str, ...] | None
) -> TaskData:
    draw = random.Random(0)
    examples = [make(n, [draw.choice(WORDS) for _ in range(12)]) for n in range(70)]
    return TaskData(task, examples[:40], {"dev": examples[40:]}, labels, True, ("made up",))


def text(n: int, words: list[str]) -> Example:
    return TextExample(str(n), " ".join(words), None, "yes" if "good" in words else "no")


def several(n: int, words: list[str]) -> Example:
    return TextExample(str(n), " ".join(words), None, tuple(sorted({*words} & {*NAMES})))


def number(n: int, words: list[str]) -> Example:
    return TextExample(str(n), " ".join(words), "the river", float(words.count("bad")))


def tagged(n: int, words: list[str]) -> Example:
    return TaggedExample(str(n), tuple(words), tuple("B-PER" if w in NAMES else "O" for w in words))


def question(n: int, words: list[str]) -> Example:
    context = " ".join(words * 4)
    here = "anna" in words
    return SpanExample(
        str(n), "good?", context, ("anna",) * here, (context.find("anna"),) * here, not here
    )


CASES = [
    data_of(own_task("mine", "classification"), text, ("no", "yes")),
    data_of(own_task("mine", "multilabel"), several, NAMES),
    data_of(own_task("mine", "regression"), number, None),
    data_of(find_task("NER"), tagged, ("O", "B-PER")),
    data_of(find_task("SQuAD 2.0"), question, None),
]


@pytest.mark.parametrize("data", CASES, ids=lambda data: data.task.kind)
def test_a_model_that_was_kept_scores_as_after_its_fine_tuning(
    data: TaskData, model: TeacherHandle, tmp_path: Path
) -> None:
    tuned = finetune(
        *(model, data, SETTINGS, 0, tmp_path / "checkpoints"),
        device="cpu",
        threads=1,
        keep=tmp_path / "kept",
    )
    assert tuned is not None
    kept = prepare_teacher(str(tmp_path / "kept"))
    task = replace(data.task, way="own head")
    found = score_as_it_is(
        kept, replace(data, task=task, train=()), SETTINGS, device="cpu", threads=1
    )
    assert found is not None
    assert found.metrics["dev"] == pytest.approx(tuned.metrics["dev"], abs=1e-6)
    assert [p.prediction for p in found.predictions["dev"]] == [
        p.prediction
        if isinstance(p.prediction, str | tuple)
        else pytest.approx(p.prediction, abs=1e-5)
        for p in tuned.predictions["dev"]
    ]
    assert (found.steps, found.train_examples, found.notes[0]) == (0, 0, AS_IT_IS_NOTE)
    stopped = score_as_it_is(kept, data, SETTINGS, device="cpu", should_stop=lambda: True)
    assert stopped is None
    many = replace(data, evaluations={"dev": data.evaluations["dev"] * 70})
    answers = iter([False, True])  # after the first batch, and long before the last
    assert score_as_it_is(kept, many, SETTINGS, should_stop=lambda: next(answers)) is None


def head(folder: Path, labels: list[str], model: TeacherHandle, **changes: object) -> TeacherHandle:
    """A model whose configuration says that it has a head with these labels."""
    config = json.loads((model.folder / "config.json").read_text("utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"], **changes}
    config |= {
        "id2label": dict(enumerate(labels)),
        "label2id": {n: i for i, n in enumerate(labels)},
    }
    folder.mkdir()
    for file in model.folder.iterdir():
        if file.is_file() and file.name != "config.json":
            (folder / file.name).symlink_to(file)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return prepare_teacher(str(folder))


@pytest.mark.parametrize(
    ("own", "expected", "noted"),
    [
        (["yes", "no"], ("yes", "no"), ()),
        (["Maybe", "YES", "No"], ("Maybe", "yes", "no"), ()),
        (
            ["LABEL_0", "LABEL_1"],
            ("no", "yes"),
            ("the model only numbers its classes; taken was that LABEL_0 is no, LABEL_1 is yes",),
        ),
    ],
)
def test_labels_are_found_again(
    own: list[str],
    expected: tuple[str, ...],
    noted: tuple[str, ...],
    model: TeacherHandle,
    tmp_path: Path,
) -> None:
    assert labels_of_head(head(tmp_path / "m", own, model), CASES[0]) == (expected, noted)


def test_labels_that_are_numbers_are_places(model: TeacherHandle, tmp_path: Path) -> None:
    examples = [TextExample(str(n), "x", None, str(n % 2)) for n in range(4)]
    data = replace(CASES[0], evaluations={"dev": examples}, labels=("0", "1"))
    numbered = head(tmp_path / "m", ["LABEL_0", "LABEL_1", "LABEL_2"], model)
    assert labels_of_head(numbered, data) == (("0", "1", "2"), ())


def test_other_heads_are_refused(model: TeacherHandle, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no head, so that .* leave out `training: false`"):
        labels_of_head(model, CASES[0])
    other = head(tmp_path / "a", ["bad", "good"], model)
    with pytest.raises(
        RequestError, match=r"mine has the label 'no', which model .* it has bad, g"
    ):
        labels_of_head(other, CASES[0])
    with pytest.raises(RequestError, match="has a head for classification, but NER is of kind tag"):
        labels_of_head(other, CASES[3])
    many = head(tmp_path / "b", ["a", "b"], model, problem_type="multi_label_classification")
    with pytest.raises(RequestError, match="has a head for multilabel, but mine is of kind class"):
        labels_of_head(many, CASES[0])
