"""Configurations that nobody's program wrote: each is refused in a sentence, at once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from kdnas.errors import TeacherError
from kdnas.models.opening import load_model, load_served_model, prepare_model
from kdnas.models.teacher import prepare_teacher
from kdnas.reach import Reach
from kdnas.specs.parts import ModelSpec
from kdnas.store import Store
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
        ("id2label", {"0": 5}, "must be an object with a name for each number"),
        ("id2label", {"a": "b"}, "must name each number from 0 without a gap"),
        ("id2label", {"1": "neg", "2": "pos"}, "must name each number from 0 without a gap"),
        ("id2label", {"0": "neg", "00": "pos"}, "must name each number from 0 without a gap"),
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


@pytest.mark.parametrize(
    "name", ["more.safetensors", "tokenizer.json", "2_Dense/model.safetensors"]
)
def test_what_the_service_copies_has_an_end(name: str, folder: Path, tmp_path: Path) -> None:
    """A file with a hole takes nothing where it lies, and all that it says where it is copied."""
    spec, store = ModelSpec(ref=str(folder)), Store(str(tmp_path / "store"), tmp_path / "cache")
    reach = Reach.below([tmp_path])
    assert prepare_teacher(spec, store, reach).shape.layers == 2
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "modules.json").write_text('[{"type": "m.Dense", "path": "2_Dense"}]')
    with (folder / name).open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(
        TeacherError, match=r"has \d{13} bytes|weights of model .* have \d{13} bytes"
    ):
        prepare_teacher(spec, store, reach)
    assert not list((tmp_path / "store").glob("incoming/*"))
    if name != "more.safetensors":  # of which the command reads the header first
        with pytest.raises(TeacherError, match=r"has \d{13} bytes, and no file beside"):
            prepare_teacher(spec, store)


@pytest.mark.parametrize("name", ["more.safetensors", "vocab.txt"])
def test_what_is_no_file_is_told_by_the_service_too(
    name: str, folder: Path, tmp_path: Path
) -> None:
    spec, store = ModelSpec(ref=str(folder)), Store(str(tmp_path / "store"), tmp_path / "cache")
    reach = Reach.below([tmp_path])
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("nowhere")
    assert prepare_teacher(spec, store, reach).shape.layers == 2
    for make in (os.mkfifo, os.mkdir):
        (folder / name).unlink()
        make(folder / name)
        with pytest.raises(TeacherError, match=rf"{name} cannot be read as a part of a model \("):
            prepare_teacher(spec, store, reach)


def test_weights_that_are_not_finite_are_told_as_such_without_a_store(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(TeacherError, match=r"is broken: .* holds values that are not finite"):
        prepare_teacher(str(folder))
    with pytest.raises(TeacherError, match="is broken"):
        prepare_model(str(folder))


@pytest.mark.parametrize("index", ["{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'])
def test_a_list_of_weights_that_lists_none_is_a_sentence(index: str, folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    (folder / "model.safetensors.index.json").write_text(index)
    handle = prepare_model(str(folder))
    with pytest.raises(TeacherError, match=r"the weights of teacher .* do not load"):
        load_model(handle)


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
