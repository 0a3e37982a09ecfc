"""What is done to texts before they are embedded, as the files of a model say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import TeacherError
from kdnas.models.sentence import write_student_modules
from kdnas.models.sentence_texts import Prompts, TextForm, prompts_of, text_form_of
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

PROMPTS = {"query": "river ", "document": "stone ", "other": "x"}
LONGEST = 64  # of the tiny model


def embedding_files(folder: Path, prompts: Any = None, texts: Any = None, **pooling: Any) -> Path:
    """Write how sentences are embedded, by the mean, into a folder."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    files = {
        "modules.json": [
            {"idx": n, "name": str(n), "type": f"sentence_transformers.models.{t}", "path": p}
            for n, (t, p) in enumerate(modules)
        ],
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, **pooling},
        "config_sentence_transformers.json": {"prompts": prompts},
        "sentence_bert_config.json": texts or {},
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    ("prompts", "wanted"),
    [
        ({"query": "q: ", "passage": "p: "}, Prompts("q: ", "p: ")),
        ({"query": "q: ", "document": ""}, Prompts("q: ", "")),
        ({"corpus": "c: "}, Prompts("", "c: ")),
        ({"document": "d: ", "passage": "p: "}, Prompts("", "d: ")),
        ({}, Prompts()),
        (None, Prompts()),
    ],
)
def test_prompts(prompts: Any, wanted: Prompts, tmp_path: Path) -> None:
    folder = embedding_files(tmp_path, prompts)
    assert prompts_of(folder, "m") == wanted
    assert (wanted.variant == "") == (wanted == Prompts())


def test_prompts_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    folder = embedding_files(tmp_path, PROMPTS, include_prompt=False)
    with pytest.raises(TeacherError, match="leaves its prompts out of the pooling"):
        prompts_of(folder, "m")
    assert prompts_of(embedding_files(tmp_path, {}, include_prompt=False), "m") == Prompts()
    folder = embedding_files(tmp_path, {"query": 5})
    with pytest.raises(TeacherError, match=r"must be texts by name, not \{'query': 5\}"):
        prompts_of(folder, "m")


def test_a_student_has_its_teachers_prompts(tmp_path: Path) -> None:
    teacher = embedding_files(tmp_path / "teacher", PROMPTS)
    student = tmp_path / "student"
    student.mkdir()
    write_student_modules(teacher, 24, student)
    assert prompts_of(student, "s") == Prompts("river ", "stone ")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("texts", "wanted", "form"),
    [
        ({}, 20, TextForm(20)),
        ({}, 512, TextForm(LONGEST)),
        ({"max_seq_length": None}, 20, TextForm(20)),
        ({"max_seq_length": 20}, 20, TextForm(20)),
        ({"max_seq_length": 512}, 512, TextForm(LONGEST)),
        ({"max_seq_length": 10}, 20, TextForm(10, cuts=True)),
        ({"max_seq_length": 10, "do_lower_case": True}, 8, TextForm(8, lower=True)),
    ],
)
def test_the_shortest_length_counts(texts: Any, wanted: int, form: TextForm, model: Path) -> None:
    embedding_files(model, texts=texts)
    assert text_form_of(prepare_teacher(str(model)), wanted) == form


def test_only_what_the_files_change_is_told() -> None:
    plain = TextForm(20)
    assert (plain.variant, plain.notes, plain("BaLan")) == ("", (), "BaLan")
    both = TextForm(20, cuts=True, lower=True)
    assert both("BaLan İΣ") == "balan i\u0307σ"  # letter by letter
    assert both.variant == "cut at 20 lower case"
    assert both.notes == (
        "texts are cut at 20 tokens, as the model's files say",
        "texts are put in lower case",
    )


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"max_seq_length": 2}, "must be a number of tokens, 3 at least, not 2; copy"),
        ({"max_seq_length": True}, "3 at least, not True"),
        ({"max_seq_length": "long"}, "3 at least, not 'long'"),
        ({"max_seq_length": 20.0}, r"3 at least, not 20\.0"),
        ({"do_lower_case": "no"}, "do_lower_case in .* must be true or false, not 'no'"),
        ([], "cannot be read as a JSON object"),
    ],
)
def test_what_is_no_form_is_refused(texts: Any, said: str, model: Path) -> None:
    embedding_files(model)
    (model / "sentence_bert_config.json").write_text(json.dumps(texts))
    with pytest.raises(TeacherError, match=said):
        text_form_of(prepare_teacher(str(model)), 20)


def test_the_least_length_is_embedded(model: Path) -> None:
    from kdnas.evaluation.settings import AS_IT_IS
    from kdnas.evaluation.untrained.embedding import embedder

    embedding_files(model, texts={"max_seq_length": 3})
    with embedder(prepare_teacher(str(model)), AS_IT_IS, device="cpu") as embed:
        found = embed(["a", "a b c d e f", "b"])
    assert found is not None
    assert found[0].equal(found[1])
