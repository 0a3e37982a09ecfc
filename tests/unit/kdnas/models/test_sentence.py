from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from kdnas.errors import TeacherError
from kdnas.models.pooling import Pooling, pooling_of, read_pooling, teaching_pooling
from kdnas.models.sentence import (
    DENSE_WEIGHTS,
    IDENTITY,
    LINEAR_WEIGHT,
    SentenceModules,
    copy_sentence_files,
    linear_pooling,
    sentence_folder,
    store_sentence_files,
    stored_sentence_folder,
    write_student_modules,
)
from kdnas.models.teacher import open_teacher, prepare_teacher
from kdnas.store import Store
from kdnas.testing.tiny_teacher import make_tiny_teacher

TEXTS = ["balan kosor", "mivek", "a longer one"]


def write(file: Path, value: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value), "utf-8")


def with_modules(folder: Path, *kinds: str, hidden: int = 48) -> Path:
    """Add the files of sentence-transformers, as older versions wrote them."""
    modules = []
    for place, kind in enumerate(kinds):
        path = f"{place}_{kind}" if place else ""
        kind_of = f"sentence_transformers.models.{kind}"
        modules.append({"idx": place, "name": str(place), "path": path, "type": kind_of})
        if kind == "Pooling":
            mean = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
            write(folder / path / "config.json", {"word_embedding_dimension": hidden, **mean})
        if kind == "Dense":
            write(folder / path / "config.json", {"in_features": hidden, "out_features": 8})
    write(folder / "modules.json", modules)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": False})
    return folder


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    folder = make_tiny_teacher(tmp_path / "teacher", hidden=48)
    return with_modules(folder, "Transformer", "Pooling", "Dense", "Normalize")


def test_sentence_transformers_loads_a_student_with_its_teachers_pooling(
    teacher: Path, tmp_path: Path
) -> None:
    student = make_tiny_teacher(tmp_path / "student", hidden=24, layers=1)
    written = write_student_modules(teacher, 24, student)
    assert written == SentenceModules(("mean",), None, normalised=True)
    model = SentenceTransformer(str(student), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    assert model.max_seq_length == 20
    vectors = torch.from_numpy(model.encode(TEXTS))
    assert vectors.shape == (3, 24)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3))
    # What we score similarity with is the same vector.
    pooling = read_pooling(student, "student")
    assert (pooling.modes, pooling.configured) == (("mean",), True)
    encoded = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model[0].model(**encoded).last_hidden_state
    ours = pooling(states, encoded["attention_mask"])
    assert torch.allclose(torch.nn.functional.normalize(ours), vectors, atol=1e-5)


@pytest.mark.parametrize(
    "mode", ["mean", "cls", "mean_sqrt_len_tokens", "lasttoken", "weightedmean"]
)
def test_a_student_embeds_in_its_teachers_space(mode: str, teacher: Path, tmp_path: Path) -> None:
    """As pooled states times W, which are the states times W pooled."""
    write(teacher / "1_Pooling" / "config.json", {"embedding_dimension": 48, "pooling_mode": mode})
    assert linear_pooling(teacher) == mode
    student = make_tiny_teacher(tmp_path / "student", hidden=24, layers=1)
    projection = torch.randn(24, 48, generator=torch.Generator().manual_seed(0))
    written = write_student_modules(teacher, 24, student, projection)
    assert written == SentenceModules((mode,), "2_Dense", normalised=True)
    model = SentenceTransformer(str(student), device="cpu")
    kinds = [type(module).__name__ for module in model]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    vectors = torch.from_numpy(model.encode(TEXTS))
    assert vectors.shape == (3, 48)
    pooling = read_pooling(student, "student")
    assert pooling.projection is not None
    assert torch.equal(pooling.projection, projection)
    encoded = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model[0].model(**encoded).last_hidden_state
    mask = encoded["attention_mask"]
    ours = pooling(states, mask)
    before = Pooling((mode,))(states @ projection, mask)
    for found in (ours, before):
        assert torch.allclose(torch.nn.functional.normalize(found), vectors, atol=1e-5)
    modes = {(student / "2_Dense" / name).stat().st_mode for name in ("config.json", DENSE_WEIGHTS)}
    assert len(modes) == 1
    # Whoever copies the folder's way of embedding copies the weights of the map with it.
    copy = make_tiny_teacher(tmp_path / "copy", hidden=24, layers=1)
    copy_sentence_files(student, copy)
    again = torch.from_numpy(SentenceTransformer(str(copy), device="cpu").encode(TEXTS))
    assert torch.equal(again, vectors)


@pytest.mark.parametrize("modes", ["max", ["mean", "max"], ["cls", "mean"]])
def test_a_map_is_left_out_behind_other_pooling(
    modes: str | list[str], teacher: Path, tmp_path: Path
) -> None:
    write(teacher / "1_Pooling" / "config.json", {"pooling_mode": modes})
    assert linear_pooling(teacher) is None
    (tmp_path / "student").mkdir()
    written = write_student_modules(teacher, 24, tmp_path / "student", torch.ones(24, 48))
    assert written is not None
    assert written.projection is None
    assert not (tmp_path / "student" / "2_Dense").exists()


@pytest.mark.parametrize(
    ("modules", "settings", "known"),
    [
        (("Dense", "Normalize"), {}, True),
        (("Normalize", "Dense"), {}, False),
        (("Normalize",), {}, False),
        (("Dense",), {"activation_function": "torch.nn.modules.activation.Tanh"}, False),
        (("Dense",), {"bias": True}, False),
    ],
)
def test_a_teachers_own_map_counts_where_it_is_linear_and_follows_the_pooling(
    modules: tuple[str, ...], settings: dict[str, Any], known: bool, tmp_path: Path
) -> None:
    folder = make_tiny_teacher(tmp_path / "model", hidden=48)
    with_modules(folder, "Transformer", "Pooling", *modules)
    own = torch.randn(48, 8, generator=torch.Generator().manual_seed(0))
    for dense in folder.glob("*_Dense"):
        plain = {"bias": False, "activation_function": IDENTITY}
        write(dense / "config.json", plain | settings)
        save_file({LINEAR_WEIGHT: own.T.contiguous()}, dense / DENSE_WEIGHTS)
    pooling = teaching_pooling(prepare_teacher(str(folder)))
    assert pooling is not None
    assert pooling.modes == ("mean",)
    assert (pooling.projection is not None) == known
    if pooling.projection is not None:
        assert torch.equal(pooling.projection, own)


def test_nothing_is_copied_of_a_model_without_such_files(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    copy_sentence_files(tmp_path, tmp_path / "to")
    assert not list((tmp_path / "to").iterdir())


def test_newer_files_keep_their_settings(tmp_path: Path) -> None:
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    for folder in (teacher, student):
        folder.mkdir()
    with_modules(teacher, "Transformer", "Pooling")
    config = {"embedding_dimension": 48, "pooling_mode": "cls", "include_prompt": False}
    write(teacher / "1_Pooling" / "config.json", config)
    write(teacher / "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    assert write_student_modules(teacher, 24, student)
    written = json.loads((student / "1_Pooling" / "config.json").read_text())
    assert written == {**config, "embedding_dimension": 24}
    prompts = json.loads((student / "config_sentence_transformers.json").read_text())
    assert prompts == {"prompts": {"query": "query: "}}


def test_a_pipeline_without_pooling_is_not_taken_over(tmp_path: Path) -> None:
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    for folder in (teacher, student):
        folder.mkdir()
    assert sentence_folder(teacher) is None
    with_modules(teacher, "Transformer", "Normalize")
    assert sentence_folder(teacher) == teacher
    assert linear_pooling(teacher) is None
    assert not write_student_modules(teacher, 24, student)
    assert not list(student.iterdir())


def test_the_files_travel_by_the_store(teacher: Path, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    handle = prepare_teacher(str(teacher), store)
    fetched = open_teacher(handle.fingerprint, store)
    assert fetched.sentences is not None
    assert fetched.sentences != teacher
    (tmp_path / "student").mkdir()
    assert write_student_modules(fetched.sentences, 24, tmp_path / "student")
    # With the weights of its map, so that embeddings are the same from there.
    student = make_tiny_teacher(tmp_path / "projected", hidden=48)
    assert write_student_modules(teacher, 48, student, torch.ones(48, 8)) is not None
    prepared = prepare_teacher(str(student), store)
    for found in (prepared, open_teacher(prepared.fingerprint, store)):
        assert pooling_of(found).variant == pooling_of(prepare_teacher(str(student))).variant != ""
    # The latest files of a model count.
    with_modules(teacher, "Transformer", "Pooling")
    store_sentence_files(teacher, handle.fingerprint, store)
    newest = stored_sentence_folder(handle.fingerprint, store)
    assert newest is not None
    assert len(json.loads((newest / "modules.json").read_text())) == 2
    assert stored_sentence_folder("ffff", store) is None


@pytest.mark.parametrize(
    "modules",
    [
        *("{", "{}", '[{"type": "x"}]', '[{"type": "m.Pooling", "path": "../../etc"}]', "[3]"),
        pytest.param("[" * 100_000, id="nested"),
        pytest.param(" " * (1 << 25), id="long"),
    ],
)
def test_strange_files_are_refused(modules: str, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text(modules)
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    with pytest.raises(TeacherError, match=r"modules\.json is not as .* copy the model again"):
        store_sentence_files(tmp_path, "f", store)


@pytest.mark.parametrize("name", ["sentence_bert_config.json", "2_Dense/model.safetensors"])
def test_files_far_larger_than_any_are_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path / "modules.json", [{"type": "m.Dense", "path": "2_Dense"}])
    (tmp_path / "2_Dense").mkdir()
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 42)
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    with pytest.raises(TeacherError, match=rf"{name} has \d+ bytes, and no file beside a model's"):
        store_sentence_files(tmp_path, "f", store)
