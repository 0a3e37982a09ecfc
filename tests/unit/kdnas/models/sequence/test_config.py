from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import KdnasError, SpecError, TeacherError
from kdnas.models.sequence.config import KINDS, SequenceConfig, read_config, sequence_kind
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

VALUES: dict[str, Any] = {
    "kind": "gated-cnn",
    "layers": 2,
    "embedding_size": 16,
    "vocab_size": 50,
    "pad_token_id": 1,
    "hidden": 12,
    "kernel": 3,
    "dropout": 0.25,
    "labels": ("schlecht", "größer"),
    "max_length": 33,
    "tokenizer_family": "roberta",
}


@pytest.mark.parametrize("labels", [(), ("no", "yes", "maybe")])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(kind: str, labels: tuple[str, ...], tmp_path: Path) -> None:
    config = SequenceConfig(**VALUES | {"kind": kind, "labels": labels})
    (tmp_path / "config.json").write_text(json.dumps(config.to_json()), "utf-8")
    assert read_config(tmp_path, "it") == config
    assert config.num_labels == max(1, len(labels))


def test_the_file_has_what_others_look_for() -> None:
    found = SequenceConfig(**VALUES).to_json()
    assert found["model_type"] == "kdnas-gated-cnn"
    assert found["architectures"] == ["KdnasGatedCNNForSequenceClassification"]
    assert found["id2label"] == {"0": "schlecht", "1": "größer"}
    assert (found["problem_type"], found["num_labels"]) == ("single_label_classification", 2)
    regression = SequenceConfig(**VALUES | {"labels": ()}).to_json()
    assert (regression["problem_type"], regression["num_labels"]) == ("regression", 1)
    assert "id2label" not in regression


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "lstm"}, "unknown kind of student 'lstm', did you mean 'bilstm'"),
        ({"layers": 0}, "layers must be a whole number from 1 to 1024, not 0"),
        ({"hidden": 7.5}, "hidden must be a whole number from 1 to 65536, not 7.5"),
        ({"vocab_size": True}, "vocab_size must be a whole number from 1 to 16777216, not true"),
        ({"kernel": 4}, "kernel must be odd, .* not 4"),
        ({"pad_token_id": 50}, r"pad_token_id \(50\) must be one of the 50 ids"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ({"labels": ("one",)}, "labels must be at least two that differ, .* not one"),
        ({"labels": ("a", "b", "a")}, "not a, b, a"),
        ({"tokenizer_family": "gpt2"}, "model type 'gpt2' are not supported"),
    ],
)
def test_what_makes_no_model_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(KdnasError, match=message):
        SequenceConfig(**VALUES | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"version": 2}, "has version 2, and this kdnas reads 1; install the version"),
        ({"layers": -1}, r"describes no model \(layers must .* not -1\); copy the folder"),
        ({"labels": None}, "describes no model"),
        ({"hidden": 10**30}, r"\(hidden must be a whole number from 1 to 65536, not 10{9}"),
        ({"layers": 10**7}, r"\(layers must be a whole number from 1 to 1024, not 10000000\)"),
        ({"kernel": 10**9 + 1}, r"\(kernel must be a whole number from 1 to 1024"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    written = SequenceConfig(**VALUES).to_json() | values
    (tmp_path / "config.json").write_text(json.dumps(written), "utf-8")
    with pytest.raises(TeacherError, match=message):
        read_config(tmp_path, "it")
    del written["hidden"]
    with pytest.raises(TeacherError, match=r"\('hidden' is missing\)"):
        SequenceConfig.from_json(written | {"version": 1}, "it")


def test_other_models_are_told_apart(tmp_path: Path) -> None:
    assert read_config(tmp_path, "it") is None
    for text in ("{", "[]", "{}", '{"model_type": "bert"}', '{"model_type": ["kdnas-bilstm"]}'):
        (tmp_path / "config.json").write_text(text, "utf-8")
        assert read_config(tmp_path, "it") is None
    assert sequence_kind("kdnas-bilstm") is KINDS["bilstm"]
    assert sequence_kind("bilstm") is None


@pytest.mark.parametrize(
    ("model_type", "width", "pad", "longest"),
    [("bert", 48, 0, 64), ("electra", 24, 0, 64), ("roberta", 48, 0, 63)],
)
def test_a_teacher_says_what_is_read(
    model_type: str, width: int, pad: int, longest: int, tmp_path: Path
) -> None:
    """An ELECTRA's words are narrower than its layers; a RoBERTa has fewer places than rows."""
    teacher = prepare_teacher(str(make_tiny_teacher(tmp_path, model_type)))
    config = SequenceConfig.for_teacher("bilstm", teacher, ("a", "b"), dropout=0.1)
    assert (config.layers, config.hidden, config.embedding_size) == (3, 768, width)
    assert (config.pad_token_id, config.max_length) == (pad, longest)
    assert (config.vocab_size, config.tokenizer_family) == (teacher.shape.vocab_size, model_type)
    assert SequenceConfig.for_teacher("gated-cnn", teacher, ()).layers == 4
    with pytest.raises(SpecError, match="unknown kind of student 'cnn'"):
        SequenceConfig.for_teacher("cnn", teacher, ())
