"""Configurations that nobody's program wrote: each is refused in a sentence, at once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdnas.errors import TeacherError
from kdnas.models.opening import load_served_model, prepare_model
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("sound") / "teacher", layers=2)


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "teacher")


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


WHOLE, NUMBER = "must be a whole number", "must be a number from 0 to 1"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hidden_size", 10**30, "must not be above 65536"),
        ("hidden_size", "64", WHOLE),
        ("hidden_size", 64.0, WHOLE),
        ("hidden_size", True, WHOLE),
        ("hidden_size", [64], WHOLE),
        ("hidden_size", -1, WHOLE),
        ("hidden_size", 50, "must be a multiple of 4 heads"),
        ("num_hidden_layers", 10**7, "must not be above 1024"),
        ("num_attention_heads", 0, WHOLE),
        ("intermediate_size", 10**12, "must not be above 262144"),
        ("vocab_size", 10**12, "must not be above 16777216"),
        ("max_position_embeddings", 10**12, "must not be above 16777216"),
        ("type_vocab_size", "two", WHOLE),
        ("type_vocab_size", -3, WHOLE),
        ("type_vocab_size", 10**13, "must not be above 65536"),
        ("hidden_act", "nope", "must name an activation"),
        ("dtype", "float7", "must be one of float32, float16, bfloat16, float64, auto"),
        ("torch_dtype", ["float32"], "must be one of float32, "),
        ("hidden_act", {"a": 1}, "must name an activation"),
        ("hidden_dropout_prob", "x", NUMBER),
        ("hidden_dropout_prob", 7, NUMBER),
        ("attention_probs_dropout_prob", float("nan"), NUMBER),
        ("layer_norm_eps", "abc", "must be a small number"),
        ("initializer_range", 1e400, "must be a small number"),
        ("pad_token_id", "zero", WHOLE),
        ("pad_token_id", -5, WHOLE),
        ("pad_token_id", 10**6, "must be the id of a token"),
        ("id2label", "x", "must be an object with a name for each number"),
        ("id2label", {"a": "b"}, "must be an object with a name for each number"),
        ("num_labels", 10**9, "must not be above 1048576"),
        ("architectures", [5], "must be a list of names"),
        ("architectures", "BertModel", "must be a list of names"),
        ("is_decoder", "yes", "must be true or false"),
        ("chunk_size_feed_forward", "x", WHOLE),
    ],
)
def test_a_value_of_another_kind_is_refused(
    folder: Path, key: str, value: object, said: str
) -> None:
    edit(folder, **{key: value})
    with pytest.raises(TeacherError, match=f"^{key} in the config.json of model .* {said}"):
        prepare_model(str(folder))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "5",
        "[]",
        "{",
        "[" * 100_000,
        '{"a":' * 100_000,
        "\0",
        '{"model_type": ["bert"]}',
    ],
)
def test_what_is_no_object_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(TeacherError, match=r"no readable config\.json with a model_type"):
        prepare_model(str(folder))


def test_a_configuration_without_an_end_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TeacherError, match=r"no readable config\.json"):
        prepare_model(str(folder))


def test_what_a_library_makes_of_other_values_is_a_sentence(folder: Path) -> None:
    edit(folder, use_cache="nope")
    handle = prepare_model(str(folder))
    with pytest.raises(TeacherError, match="is not one that transformers reads"):
        load_served_model(handle)


def test_more_numbers_than_there_are_weights_are_refused(folder: Path) -> None:
    edit(folder, num_hidden_layers=1000, intermediate_size=100_000)
    with pytest.raises(
        TeacherError, match=r"describes \d+ numbers, and its weights have \d+ bytes"
    ):
        prepare_model(str(folder))


def test_weights_with_a_hole_of_terabytes_are_refused(folder: Path) -> None:
    length = 1 << 42
    header = json.dumps(
        {"hole": {"dtype": "F32", "shape": [length // 4], "data_offsets": [0, length]}}
    )
    with (folder / "more.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + length)
    with pytest.raises(TeacherError, match=r"the weights of model .* bytes, and its config\.json"):
        prepare_model(str(folder))


@pytest.mark.parametrize("name", ["more.safetensors", "vocab.txt", "added_tokens.json"])
def test_a_pipe_holds_nobody_up(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(TeacherError, match=rf"has {name} in .*, which is no file \(a pipe"):
        prepare_model(str(folder))


def test_what_nobody_reads_may_be_anything(folder: Path) -> None:
    (folder / ".#README.md").symlink_to("somebody@somewhere.1234")  # an editor's lock
    os.mkfifo(folder / "pipe")
    assert prepare_model(str(folder)).shape.layers == 2
