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
from scipy.stats import pearsonr, spearmanr
from transformers import AutoModel, AutoTokenizer

from kdnas.errors import TeacherError
from kdnas.evaluation.examples import TaskData, TextExample
from kdnas.evaluation.pooling import Pooling, read_pooling
from kdnas.evaluation.settings import AS_IT_IS
from kdnas.evaluation.sts_cosine import score_by_cosine
from kdnas.evaluation.tasks import find_task
from kdnas.models.teacher import prepare_teacher
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
    assert result.main == pytest.approx(spearmanr(found, labels).statistic)
    assert result.metrics["dev"]["pearson"] == pytest.approx(pearsonr(found, labels).statistic)
    assert ("none is configured" in result.notes[0]) == (pooling is None)


@pytest.mark.parametrize(
    ("pooling", "other", "message"),
    [
        ({"pooling_mode": "lasttoken"}, "Normalize", "unknown pooling 'lasttoken'"),
        ({"pooling_mode": "mean"}, "Dense", "need the module Dense"),
        ({}, "Normalize", "unknown pooling"),
    ],
)
def test_other_pooling_is_refused(
    pooling: dict[str, Any], other: str, message: str, model: Path, tmp_path: Path
) -> None:
    folder = configure(model, tmp_path / "m", pooling, other)
    with pytest.raises(TeacherError, match=message):
        read_pooling(folder, "m")


def test_a_broken_configuration_is_said(model: Path, tmp_path: Path) -> None:
    folder = configure(model, tmp_path / "m", {"pooling_mode": "mean"})
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(TeacherError, match="cannot be read"):
        read_pooling(folder, "m")


def test_it_stops_when_asked(model: Path) -> None:
    handle = prepare_teacher(str(model))
    assert score_by_cosine(handle, data(), AS_IT_IS, should_stop=lambda: True) is None
