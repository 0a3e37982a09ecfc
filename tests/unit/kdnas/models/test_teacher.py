from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from kdnas.errors import TeacherError
from kdnas.models.cost import EmbeddingShape, count_parameters, teacher_architecture
from kdnas.models.families import FAMILIES
from kdnas.models.teacher import (
    TeacherHandle,
    load_teacher_model,
    open_teacher,
    prepare_teacher,
)
from kdnas.models.teacher_files import locate, read_shape
from kdnas.records import TeacherShape
from kdnas.store import Store
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("bert") / "teacher")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A teacher of one's own, to be damaged."""
    return shutil.copytree(made, tmp_path / "teacher")


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_family_is_prepared_stored_and_loaded(model_type: str, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / "teacher", model_type, layers=3)
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    handle = prepare_teacher(str(folder), store)
    shape = handle.shape
    assert (shape.model_type, shape.layers, shape.heads) == (model_type, 3, 4)
    assert (shape.hidden, shape.intermediate, shape.activation) == (48, 96, "gelu")
    assert shape.max_positions == 64
    assert shape.vocab_size == len(AutoTokenizer.from_pretrained(handle.folder))
    shutil.rmtree(folder)
    again = open_teacher(handle.fingerprint, store)
    assert again.shape == shape
    assert again.ref == handle.ref == str(folder)
    model = load_teacher_model(again)
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not any("pooler" in name for name, _ in model.named_parameters())


def test_a_teacher_that_was_fetched_needs_its_store_no_more(folder: Path, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}-fetched"
    handle = prepare_teacher(str(folder), Store(url, tmp_path / "mine"))
    store = Store(url, tmp_path / "theirs")
    assert open_teacher(handle.fingerprint, store).ref == str(folder)
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}-fetched", recursive=True)
    assert open_teacher(handle.fingerprint, store).ref == str(folder)


@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_longest_sequence_runs_and_a_longer_one_has_no_positions(
    model_type: str, pad: int, tmp_path: Path
) -> None:
    """RoBERTa's positions begin behind the padding token's; rotary ones have no table at all."""
    folder = make_tiny_teacher(tmp_path / "teacher", model_type, pad_token_id=pad)
    handle = prepare_teacher(str(folder))
    offset = pad + 1 if model_type in {"roberta", "xlm-roberta"} else 0
    assert handle.longest_sequence == 64 - offset
    model = load_teacher_model(handle)
    with torch.no_grad():
        ids = torch.full((1, handle.longest_sequence), 7)
        assert torch.isfinite(model(input_ids=ids).last_hidden_state).all()
        if FAMILIES[model_type].positions is not None:
            with pytest.raises((IndexError, RuntimeError)):
                model(input_ids=torch.full((1, handle.longest_sequence + 1), 7))


def test_a_modernbert_takes_8192_tokens(tmp_path: Path) -> None:
    """By default, as the published ones do."""
    config = AutoConfig.for_model("modernbert").to_dict()
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = read_shape(tmp_path, "modernbert", "f")
    assert shape == TeacherShape(
        "modernbert", 22, 12, 768, 1152, "gelu", 50368, 8192, 0, fingerprint="f"
    )
    assert TeacherHandle("modernbert", tmp_path, shape).longest_sequence == 8192


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_size_of_a_teacher_can_be_told_from_its_shape(model_type: str, tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "teacher", model_type)))
    own = teacher_architecture(handle.shape)
    assert own is not None
    parameters = load_teacher_model(handle).named_parameters()
    size = sum(p.numel() for name, p in parameters if not name.startswith("pooler."))
    assert count_parameters(own, EmbeddingShape.of(handle.shape)) == size


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_checkpoint_with_a_language_model_head_will_do(model_type: str, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / "teacher", model_type)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(1)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder))
    model.save_pretrained(folder)
    teacher = load_teacher_model(prepare_teacher(str(folder)))
    own = dict(model.base_model.named_parameters())
    assert all(torch.equal(own[name], p) for name, p in teacher.named_parameters())


def test_half_precision_weights_are_loaded_as_float32(folder: Path) -> None:
    weights = folder / "model.safetensors"
    save_file({k: v.half() for k, v in load_file(weights).items()}, weights, {"format": "pt"})
    model = load_teacher_model(prepare_teacher(str(folder)))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_fingerprint_is_of_the_content(made: Path, folder: Path) -> None:
    handle = prepare_teacher(str(made))
    assert prepare_teacher(str(folder)).fingerprint == handle.fingerprint
    (folder / "training_args.bin").write_bytes(b"not a part of the teacher")
    assert prepare_teacher(str(folder)).fingerprint == handle.fingerprint
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert prepare_teacher(str(folder)).fingerprint != handle.fingerprint


def edit_config(folder: Path, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def only_a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def half_the_weights(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda f: edit_config(f, model_type="t5"),
        r"'t5' are not supported; these are: BERT \(bert\)",
    ),
    (lambda f: edit_config(f, model_type=None), "no readable config.json with a model_type"),
    (
        lambda f: edit_config(f, hidden_size=None),
        "hidden_size .* whole number of at least 1, not null",
    ),
    (lambda f: edit_config(f, num_hidden_layers="two"), "num_hidden_layers .* not 'two'"),
    (lambda f: edit_config(f, is_decoder=True), "is a decoder; give an encoder"),
    (lambda f: (f / "config.json").write_text("{"), "no readable config.json"),
    (lambda f: (f / "config.json").write_text("[1]"), "no readable config.json"),
    (lambda f: (f / "config.json").unlink(), "no config.json"),
    (only_a_pickle, r"no safetensors weights .*pytorch_model.bin is a pickle"),
    (lambda f: (f / "model.safetensors").unlink(), "no safetensors weights"),
    (no_tokenizer, "no tokenizer"),
    (half_the_weights, "damaged or cut off"),
    (lambda f: (f / "model.safetensors").write_bytes(b""), "damaged or cut off"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_wrong_folder_is_refused_in_a_sentence(
    folder: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(folder)
    with pytest.raises(TeacherError, match=words) as caught:
        prepare_teacher(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_only_positions_that_count_from_the_padding_token_need_its_id(
    model_type: str, tmp_path: Path
) -> None:
    folder = make_tiny_teacher(tmp_path, model_type)
    edit_config(folder, pad_token_id=None)
    if FAMILIES[model_type].padded_positions:
        with pytest.raises(TeacherError, match=r"pad_token_id .* is null, and") as caught:
            prepare_teacher(str(folder))
        assert "\n" not in str(caught.value)
    else:
        assert prepare_teacher(str(folder)).longest_sequence == 64


def test_a_checkpoint_that_lacks_a_part_of_the_encoder_is_refused(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(TeacherError, match=r"lack 1 tensors .*encoder.layer.1.output.dense.weight"):
        load_teacher_model(prepare_teacher(str(folder)))


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_do_not_get_into_the_store(
    folder: Path, value: float, tmp_path: Path
) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.weight"][3, 2] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    with pytest.raises(
        TeacherError, match=r"is broken: encoder\.layer\.1\.output\.dense\.weight in"
    ):
        prepare_teacher(str(folder), store)
    assert not list((tmp_path / "store").glob("**/model.safetensors"))


def test_weights_of_another_size_are_refused(folder: Path) -> None:
    handle = prepare_teacher(str(folder))
    edit_config(folder, intermediate_size=80)
    with pytest.raises(TeacherError, match="do not load") as caught:
        load_teacher_model(handle)
    assert "\n" not in str(caught.value)


def test_a_file_or_a_missing_folder_is_refused(folder: Path) -> None:
    with pytest.raises(TeacherError, match="is a file; give the model's folder"):
        prepare_teacher(str(folder / "config.json"))
    for ref in (str(folder / "none"), "./none", "a/b/c"):
        with pytest.raises(TeacherError, match=rf"'{ref}' does not exist"):
            prepare_teacher(ref)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("minlm", "'minlm', did you mean 'minilm'"),
        ("nobody/nothing", "'nobody/nothing'"),
        ("a b", "unknown model 'a b'"),
    ],
)
def test_a_name_that_nobody_knows_is_refused_at_once(
    ref: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub refuses connections here; that must not lead to a minute of retries."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    started = time.monotonic()
    with pytest.raises(TeacherError, match=words) as caught:
        prepare_teacher(ref)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 50


def test_a_revision_leads_to_no_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's library reads a revision that is a path as a file, and follows what is in it."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    cache, private = tmp_path / "cache", make_tiny_teacher(tmp_path / "private")
    (cache / "models--nobody--nothing").mkdir(parents=True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    (tmp_path / "ref").write_text(str(private))
    found = huggingface_hub.snapshot_download(
        "nobody/nothing", cache_dir=cache, revision=str(tmp_path / "ref")
    )
    assert found == str(private)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: found)
    with pytest.raises(TeacherError, match=r"no revision '.*ref' of 'nobody/nothing'"):
        locate("nobody/nothing", str(tmp_path / "ref"))


def test_weights_of_very_many_tensors_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_tiny_teacher(tmp_path / "teacher")
    monkeypatch.setattr("kdnas.models.teacher_files.MOST_TENSORS", 5)
    with pytest.raises(TeacherError, match=r"are \d+ tensors, which no encoder has"):
        prepare_teacher(str(folder))
