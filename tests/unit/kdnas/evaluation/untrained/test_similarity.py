"""Sentence embeddings, pooled as a model's folder says, against sentence-transformers' rules."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import pearsonr, spearmanr
from transformers import AutoModel, AutoTokenizer

from kdnas.errors import TeacherError
from kdnas.evaluation.settings import AS_IT_IS
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.evaluation.untrained.similarity import score_by_cosine
from kdnas.models.pooling import Pooling, pooling_of, read_pooling, teaching_pooling
from kdnas.models.sentence import DENSE_WEIGHTS, LINEAR_WEIGHT, write_student_modules
from kdnas.models.teacher import prepare_teacher, with_layers
from kdnas.testing.tiny_teacher import make_tiny_teacher

WORDS = ("river", "stone", "cloud", "tree", "bird")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), words=WORDS)


def configure(model: Path, to: Path, pooling: dict[str, Any], *others: str) -> Path:
    """Copy a model and write a pooling configuration beside it."""
    folder = Path(shutil.copytree(model, to))
    kinds = ["Transformer", "Pooling", *others]
    modules = [
        {"idx": i, "path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def data() -> TaskData:
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 6)))

    pairs = [TextExample(str(i), text(), text(), draw.uniform(0, 5)) for i in range(30)]
    return TaskData(find_task("STS-B cosine"), (), {"dev": pairs}, None, True, ("made up",))


OLD = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        (None, ("mean",)),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, ("mean",)),
        (OLD, ("cls",)),
        ({"pooling_mode_max_tokens": True}, ("max",)),
        ({"pooling_mode": "cls"}, ("cls",)),
        ({"pooling_mode": ["mean", "max"]}, ("mean", "max")),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
        ({"pooling_mode_lasttoken": True}, ("lasttoken",)),
        ({"pooling_mode_weightedmean_tokens": True}, ("weightedmean",)),
    ],
)
def test_cosines_are_those_of_texts_embedded_one_by_one(
    pooling: dict[str, Any] | None, modes: tuple[str, ...], model: Path, tmp_path: Path
) -> None:
    folder = model if pooling is None else configure(model, tmp_path / "m", pooling, "Normalize")
    assert read_pooling(folder, "m") == Pooling(modes, configured=pooling is not None)
    encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def embed(text: str) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        how = {"cls": states[0], "max": states.max(0), "mean": states.mean(0)}
        how["mean_sqrt_len_tokens"] = states.sum(0) / np.sqrt(len(states))
        how["lasttoken"] = states[-1]
        how["weightedmean"] = np.average(states, axis=0, weights=np.arange(1, len(states) + 1))
        return np.concatenate([how[mode] for mode in modes])

    task = data()
    result = score_by_cosine(prepare_teacher(str(folder)), task, AS_IT_IS, device="cpu")
    assert result is not None
    wanted = []
    for example in task.evaluations["dev"]:
        assert isinstance(example, TextExample)
        first, second = embed(example.text), embed(str(example.pair))
        wanted.append(float(first @ second / np.linalg.norm(first) / np.linalg.norm(second)))
    found = [p.prediction for p in result.predictions["dev"]]
    assert found == pytest.approx(wanted, abs=1e-5)
    labels = [e.label for e in task.evaluations["dev"] if isinstance(e, TextExample)]
    assert [p.gold for p in result.predictions["dev"]] == labels
    assert result.main == pytest.approx(spearmanr(found, labels).statistic)
    assert result.metrics["dev"]["pearson"] == pytest.approx(pearsonr(found, labels).statistic)
    assert ("none is configured" in result.notes[0]) == (pooling is None)


@pytest.mark.parametrize(
    ("pooling", "other", "message"),
    [
        ({"pooling_mode": "median"}, "Normalize", "unknown pooling 'median'"),
        ({"pooling_mode": "mean"}, "WeightedLayerPooling", "need the module WeightedLayerPooling"),
        ({"pooling_mode": "mean"}, "Pooling", "need the module Dense more than once"),
        ({}, "Normalize", "unknown pooling"),
    ],
)
def test_other_pooling_is_refused(
    pooling: dict[str, Any], other: str, message: str, model: Path, tmp_path: Path
) -> None:
    folder = configure(model, tmp_path / "m", pooling, other)
    with pytest.raises(TeacherError, match=message):
        read_pooling(folder, "m")


@pytest.fixture
def projected(model: Path, tmp_path: Path) -> tuple[Path, torch.Tensor]:
    """A model whose embeddings are read through a map to a quarter of their dimensions."""
    plain = configure(model, tmp_path / "plain", {"pooling_mode": "mean"}, "Normalize")
    folder = Path(shutil.copytree(model, tmp_path / "projected"))
    projection = torch.randn(48, 12, generator=torch.Generator().manual_seed(0))
    assert write_student_modules(plain, 48, folder, projection) is not None
    return folder, projection


def test_embeddings_are_read_through_a_linear_map(
    projected: tuple[Path, torch.Tensor], model: Path
) -> None:
    folder, projection = projected
    handle, task = prepare_teacher(str(folder)), data()
    result = score_by_cosine(handle, task, AS_IT_IS, device="cpu")
    assert result is not None
    assert "mean, then a linear map to 12 dimensions" in result.notes[0]
    encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def embed(text: str) -> torch.Tensor:
        with torch.inference_mode():
            states = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        return states.mean(0) @ projection

    examples = [e for e in task.evaluations["dev"] if isinstance(e, TextExample)]
    wanted = [
        float(torch.cosine_similarity(embed(e.text), embed(str(e.pair)), dim=0)) for e in examples
    ]
    found = [p.prediction for p in result.predictions["dev"]]
    assert found == pytest.approx(wanted, abs=1e-5)
    plain = score_by_cosine(prepare_teacher(str(model)), task, AS_IT_IS, device="cpu")
    assert plain is not None
    assert [p.prediction for p in plain.predictions["dev"]] != pytest.approx(wanted, abs=1e-3)


def test_a_result_is_named_by_the_map_too(
    projected: tuple[Path, torch.Tensor], model: Path
) -> None:
    folder, projection = projected
    handle, plain = prepare_teacher(str(folder)), prepare_teacher(str(model))
    assert handle.fingerprint == plain.fingerprint
    assert pooling_of(plain).variant == ""
    variant = pooling_of(handle).variant
    assert variant.startswith("projection ")
    weights = {LINEAR_WEIGHT: (projection.T * 2).contiguous()}
    save_file(weights, folder / "2_Dense" / DENSE_WEIGHTS)
    assert pooling_of(handle).variant not in {"", variant}
    # The map is of the last layer: without it there is none.
    assert pooling_of(with_layers(handle, 1)).variant == ""


@pytest.mark.parametrize(
    "change",
    [{"bias": True}, {"activation_function": "torch.nn.Tanh"}, {"use_residual": True}],
)
def test_a_dense_module_that_is_no_linear_map_is_refused(
    change: dict[str, Any], projected: tuple[Path, torch.Tensor]
) -> None:
    file = projected[0] / "2_Dense" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(TeacherError, match="a bias, an activation or a residual"):
        read_pooling(projected[0], "m")


def test_a_dense_module_without_its_weights_is_said(
    projected: tuple[Path, torch.Tensor],
) -> None:
    (projected[0] / "2_Dense" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(TeacherError, match=r"model\.safetensors cannot be read .* copy the model"):
        read_pooling(projected[0], "m")


@pytest.mark.parametrize(
    "weight", [torch.full((12, 48), torch.nan), torch.ones(48), torch.ones(12, 48, 1)]
)
def test_a_dense_module_that_holds_no_map_is_refused(
    weight: torch.Tensor, projected: tuple[Path, torch.Tensor]
) -> None:
    save_file({LINEAR_WEIGHT: weight}, projected[0] / "2_Dense" / DENSE_WEIGHTS)
    with pytest.raises(TeacherError, match="finite numbers in a matrix; copy the model again"):
        pooling_of(prepare_teacher(str(projected[0])))


def test_a_dense_module_of_another_width_is_refused(projected: tuple[Path, torch.Tensor]) -> None:
    save_file({LINEAR_WEIGHT: torch.ones(12, 40)}, projected[0] / "2_Dense" / DENSE_WEIGHTS)
    handle = prepare_teacher(str(projected[0]))
    for read in (pooling_of, teaching_pooling):
        with pytest.raises(TeacherError, match="takes 40 numbers, and its pooling gives 48"):
            read(handle)


@pytest.mark.parametrize("config", ["{", "[1]", '{"pooling_mode": 5}', '{"pooling_mode": [["a"]]}'])
def test_a_broken_configuration_is_said(config: str, model: Path, tmp_path: Path) -> None:
    folder = configure(model, tmp_path / "m", {"pooling_mode": "mean"})
    (folder / "1_Pooling" / "config.json").write_text(config)
    with pytest.raises(TeacherError, match=r"cannot be read|must be a name or a list of names"):
        read_pooling(folder, "m")
