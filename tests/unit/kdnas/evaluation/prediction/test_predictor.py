"""Fine-tuned models, saved and at work."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from kdnas.cli.predict import predict
from kdnas.errors import RequestError, TaskDataError
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.finetuning.saving import read_saved_task, save_task_model
from kdnas.evaluation.prediction import predictor as predict_module
from kdnas.evaluation.prediction.inputs import Source, format_of, one_example, read_examples
from kdnas.evaluation.prediction.predictor import Answer, Predictor, find_saved
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import SpanExample, TaggedExample, TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.tasks.task import own_task
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

WORDS = ("good", "bad", "film", "the", "was")
LABELS = {"SST-2": ("no", "yes"), "WNUT-17": ("O", "B-place", "I-place")}
TEXTS = ["the film was good", "bad", "", "the film was bad was good was bad", "film"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as --save-models leaves it; the heads are at random."""
    folder = tmp_path_factory.mktemp("saved")
    handle = prepare_teacher(str(make_tiny_teacher(folder / "base", words=WORDS, layers=1)))
    impossible = SpanExample("1", "q", "c", (), (), impossible=True)
    for name in ("SST-2", "STS-B", "WNUT-17", "SQuAD 2.0"):
        task = find_task(name)
        pair = TextExample("0", "a", "b", 1.0)
        train = {"SQuAD 2.0": [impossible], "STS-B": [pair]}.get(name, [])
        data = TaskData(task, train, {}, LABELS.get(name), True, ("made up",))
        model = load_task_model(handle, task, LABELS.get(name), 0.1, 1)
        settings = FinetuneSettings(1e-3, 1, max_length=16, stride=4)
        save_task_model(
            folder / "models" / name.replace(" ", "-"), model, handle, data, settings, 1
        )
    return folder / "models"


def texts(*values: str, pair: str | None = None) -> list[TextExample]:
    return [TextExample(str(i), text, pair, None) for i, text in enumerate(values)]


def test_a_saved_model_is_an_ordinary_one(saved: Path) -> None:
    folder = saved / "SST-2"
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "no", 1: "yes"}
    encoded = AutoTokenizer.from_pretrained(folder)("the film", return_tensors="pt")
    with torch.no_grad():
        expected = model(**encoded).logits.softmax(-1)[0]
    (answer,) = Predictor(str(folder))(texts("the film"))
    assert answer.value == ("no", "yes")[int(expected.argmax())]
    assert answer.probability == pytest.approx(float(expected.max()), abs=1e-6)
    assert answer.probabilities is not None
    assert sorted(answer.probabilities.values()) == pytest.approx(sorted(expected.tolist()))
    assert next(iter(answer.probabilities)) == answer.value
    about = read_saved_task(folder)
    assert about is not None
    assert (about.task, about.seed, about.max_length, about.may_deny) == ("SST-2", 1, 16, False)
    assert read_saved_task(saved) is None


def test_answers_come_in_order_a_chunk_at_a_time(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Predictor(str(saved / "SST-2"), batch_size=2)
    expected = [next(whole(texts(text))).probability for text in TEXTS]
    monkeypatch.setattr(predict_module, "CHUNK", 2)
    taken: list[str] = []

    def asked() -> object:
        for example in texts(*TEXTS):
            taken.append(example.text)
            yield example

    answers = whole(asked())  # type: ignore[arg-type]
    first = next(answers)
    assert taken == TEXTS[:2]
    found = [first, *answers]
    assert [a.example.id for a in found] == ["0", "1", "2", "3", "4"]
    assert [a.probability for a in found] == pytest.approx(expected, abs=1e-6)
    mixed = [*texts("a"), *texts("b", pair="c")]
    with pytest.raises(RequestError, match="example 0 has no second text, but others have"):
        list(whole(mixed))


def test_a_text_may_have_several_labels_or_none(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "base", words=WORDS, layers=1)))
    task, labels = own_task("mine", "multilabel"), ("a", "b", "c")
    learned = [TextExample("1", "the film", None, ("a", "c"))]
    data = TaskData(task, learned, {}, labels, True, ("made up",))
    model = load_task_model(handle, task, labels, 0.1, 1)
    settings = FinetuneSettings(1e-3, 1, max_length=16)
    save_task_model(tmp_path / "mine", model, handle, data, settings, 1)
    predictor = Predictor(str(tmp_path / "mine"))
    assert (predictor.kind, predictor.labels) == ("multilabel", labels)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mine")
    assert plain.config.problem_type == "multi_label_classification"
    for text in TEXTS:
        encoded = AutoTokenizer.from_pretrained(tmp_path / "mine")(text, return_tensors="pt")
        with torch.no_grad():
            expected = plain(**encoded).logits.sigmoid()[0].tolist()
        (answer,) = predictor(texts(text))
        assert answer.probability is None
        assert answer.probabilities == pytest.approx(dict(zip(labels, expected, strict=True)))
        said = {label for label, share in zip(labels, expected, strict=True) if share > 0.5}
        assert set(answer.value) == said  # type: ignore[arg-type]


def test_several_labels_in_words() -> None:
    shares = {"a": 0.9, "c": 0.75, "b": 0.2}
    answer = Answer(texts("x")[0], ("a", "c"), None, shares)
    assert answer.to_text() == "a, c\t0.9000, 0.7500"
    assert answer.to_json() == {
        **{"id": "0", "text": "x"},
        **{"prediction": ("a", "c"), "probabilities": shares},
    }
    assert Answer(texts("x")[0], (), None, shares).to_text() == "no label"


def test_every_kind_answers(saved: Path) -> None:
    (number,) = Predictor(str(saved / "STS-B"))(texts("the film", pair="the film"))
    assert isinstance(number.value, float)
    with pytest.raises(
        RequestError,
        match="0 has no second text, but the model learned from pairs; give it with --pair, or in",
    ):
        next(Predictor(str(saved / "STS-B"))(texts("the film")))
    assert number.to_json() == {
        **{"id": "0", "text": "the film", "pair": "the film"},
        "prediction": number.value,
    }
    tagged = [one_example("tagging", text, None) for text in TEXTS]
    answers = list(Predictor(str(saved / "WNUT-17"))(tagged))
    assert [len(a.value) for a in answers if isinstance(a.value, tuple)] == [4, 1, 0, 8, 1]
    assert {tag for a in answers for tag in a.value} <= set(LABELS["WNUT-17"])  # type: ignore[union-attr]
    questions = [one_example("span", "the film", c) for c in ("was good " * 20, "bad", "")]
    predictor = Predictor(str(saved / "SQuAD-2.0"))
    found = list(predictor(questions))
    for question, answer in zip(questions, found, strict=True):
        assert isinstance(question, SpanExample)
        assert str(answer.value) in question.context
    assert found[2].value == ""
    predictor._denies = False
    assert next(predictor(questions)).value != ""


def test_answers_as_text_and_json() -> None:
    sentence = TaggedExample("7", ("Rome", "!"), ("O", "O"))
    tags = Answer(sentence, ("B-place", "O"))
    assert tags.to_text() == "Rome\tB-place\n!\tO\n"
    assert tags.to_json() == {"id": "7", "words": ["Rome", "!"], "prediction": ("B-place", "O")}
    label = Answer(texts("a")[0], "yes", 0.75)
    assert label.to_text() == "yes\t0.7500"
    assert label.to_json() == {
        **{"id": "0", "text": "a"},
        **{"prediction": "yes", "probability": 0.75},
    }
    every = Answer(texts("a")[0], "yes", 0.75, {"yes": 0.75, "no": 0.25})
    assert every.to_json()["probabilities"] == {"yes": 0.75, "no": 0.25}
    assert Answer(texts("a")[0], 2.5).to_text() == "2.5000"


def test_the_model_that_is_meant(saved: Path, tmp_path: Path) -> None:
    assert find_saved(str(saved), "squad2.0") == str(saved / "SQuAD-2.0")
    assert find_saved(str(saved / "STS-B"), None) == str(saved / "STS-B")
    assert find_saved("minilm", None) == "minilm"
    with pytest.raises(
        RequestError, match=r"several tasks; name one with --task: SQuAD-2.0, SST-2"
    ):
        find_saved(str(saved), None)
    with pytest.raises(RequestError, match="'SST3', did you mean 'SST-2'"):
        find_saved(str(saved), "SST3")
    assert find_saved(str(saved / "SST-2"), "sst2") == str(saved / "SST-2")
    with pytest.raises(RequestError, match="is fine-tuned on SST-2, not on 'nope'; leave out"):
        find_saved(str(saved / "SST-2"), "nope")
    with pytest.raises(RequestError, match="'minilm' does not say what task it is for; leave out"):
        find_saved("minilm", "SST-2")
    plain = make_tiny_teacher(tmp_path / "plain", layers=1)
    with pytest.raises(RequestError, match=r"has no head .* --suite SUITE --save-models DIR"):
        Predictor(str(plain))


def test_a_model_of_single_texts_takes_no_pair(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved / "SST-2", tmp_path / "single"))
    about = json.loads((folder / "task.json").read_text("utf-8"))
    (folder / "task.json").write_text(json.dumps(about | {"paired": False}), "utf-8")
    predictor = Predictor(str(folder))
    assert len(list(predictor(texts("a", "b")))) == 2
    with pytest.raises(RequestError, match="example 0 has a second text, but the model learned"):
        list(predictor(texts("a", pair="b")))


def read(kind: str, format_: str, content: str, **columns: str) -> list[object]:
    source = Source(kind, format_, **columns)
    return list(read_examples(source, io.StringIO(content, newline=""), "file"))


def test_files_of_every_layout() -> None:
    def text(id_: str, text: str, pair: str | None = None) -> TextExample:
        return TextExample(id_, text, pair, None)

    assert read("classification", "txt", "one\r\n\ntwo") == [
        text("1", "one"),
        text("2", ""),
        text("3", "two"),
    ]
    assert read("classification", "csv", 'sentence,n\n"a, b",1\n') == [text("1", "a, b")]
    assert read("classification", "tsv", 'sentence1\tsentence2\n"a\tb\n') == [text("1", '"a', "b")]
    jsonl = '{"t": "x", "u": "y"}\n\n{"t": "z", "u": ""}\n'
    found = read("regression", "jsonl", jsonl, text="t", pair="u")
    assert found == [text("1", "x", "y"), text("3", "z", "")]
    columns = "-DOCSTART- -X- O\n\nRome NNP B-place\n! . O\n\nParis\n"
    assert [e.tokens for e in read("tagging", "conll", columns)] == [("Rome", "!"), ("Paris",)]  # type: ignore[attr-defined]
    words = read("tagging", "jsonl", '{"text": ["a-b", "c"]}\n{"text": "It\'s so."}')
    assert [e.tokens for e in words] == [("a-b", "c"), ("It", "'", "s", "so", ".")]  # type: ignore[attr-defined]
    squad = {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": 5, "question": "q"}]}]}]}
    asked = SpanExample("5", "q", "c", (), (), impossible=False)
    assert read("span", "squad", json.dumps(squad)) == [asked]
    (row,) = read("span", "csv", "question,context\nq,c\n")
    assert (row.question, row.context) == ("q", "c")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "format_", "content", "message"),
    [
        ("classification", "csv", "a,b\n1,2\n", "row 1 has no column 'text'; there are a, b"),
        ("classification", "csv", "text,b\n1\n", "row 1 has not as many cells"),
        ("classification", "jsonl", "{\n", "line 1 is not JSON"),
        ("classification", "jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("classification", "jsonl", "[]\n", "line 1 is no object"),
        (
            "classification",
            "txt",
            "a\n" + "b" * (2 << 20),
            "line 2 has a text of more than 1048576",
        ),
        ("tagging", "conll", "a\n" + "b" * (17 << 20), "line 2 has more than .* without an end"),
        ("classification", "jsonl", '{"text": 3}', "has 3 in the place of a text"),
        ("span", "jsonl", '{"question": "q"}', "a question without a context"),
        ("span", "squad", "{}", "not in the layout of SQuAD"),
        ("span", "squad", "{", "not in the layout of SQuAD"),
    ],
)
def test_wrong_files_are_one_sentence(kind: str, format_: str, content: str, message: str) -> None:
    with pytest.raises(TaskDataError, match=message) as caught:
        read(kind, format_, content)
    assert len(str(caught.value).splitlines()) == 1


def test_an_object_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdnas.evaluation.prediction.inputs.MOST_OF_SQUAD", 1 << 20)
    with pytest.raises(TaskDataError, match=r"has more than 1 MiB, of an object .*; cut it into"):
        read("span", "squad", "[" * (1 << 21))


def test_formats_are_known_by_their_ends() -> None:
    assert format_of("-", "classification", None) == "txt"
    assert format_of("A.CSV", "span", None) == "csv"
    assert format_of("a.txt", "tagging", "conll") == "conll"
    for path, kind, wanted in (
        ("a.txt", "span", None),
        ("a.json", "tagging", None),
        ("a", "span", "x"),
    ):
        with pytest.raises(TaskDataError):
            format_of(path, kind, wanted)


def test_columns_are_found_whatever_their_case() -> None:
    content = "Review,Other,Sentence\ngood,x,bad\n"
    assert read("classification", "csv", content) == [TextExample("1", "bad", None, None)]
    named = read("classification", "csv", content, text="review", pair="OTHER")
    assert named == [TextExample("1", "good", "x", None)]


def test_a_file_in_the_place_of_the_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("good film\n")
    with pytest.raises(RequestError, match=r"in\.txt' is a file; give it with --input"):
        predict("model", str(path))
