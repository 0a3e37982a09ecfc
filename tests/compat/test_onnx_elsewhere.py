"""Exported graphs in Optimum, and in sentence-transformers' ONNX backend.

Both run in an environment of their own: Optimum wants an older transformers than kdnas has.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kdnas.distill.onnx_export import export_onnx
from kdnas.models.sentence import write_student_modules
from kdnas.testing.tiny_heads import with_head
from kdnas.testing.tiny_teacher import make_tiny_teacher

pytestmark = pytest.mark.compat

NEEDED = (
    "torch==2.13.0",
    "optimum-onnx[onnxruntime]==0.1.0",
    "sentence-transformers==5.2.3",
)
PAIRS = [
    ["the river rose", "it had rained"],
    ["a", "she wrote fourteen letters to the council and nobody answered"],
    ["why does a small model answer sooner than a large one?", "x"],
]
TEXTS = [first for first, _ in PAIRS] + [second for _, second in PAIRS]
ASK = """
import json, sys, time
kind, folder, texts = json.loads(sys.argv[1])
if kind == "embeddings":
    from sentence_transformers import SentenceTransformer
    models = [
        SentenceTransformer(place, backend=backend, device="cpu") for place, backend in folder
    ]
    said = {"vectors": [model.encode(texts).tolist() for model in models], "ms": []}
    for model in models:
        spans = []
        for _ in range(40):
            began = time.perf_counter()
            model.encode(texts[:1])
            spans.append(1000 * (time.perf_counter() - began))
        said["ms"].append(sorted(spans)[20])
else:
    import optimum.onnxruntime, torch
    from transformers import AutoTokenizer
    model = getattr(optimum.onnxruntime, f"ORTModel{kind}").from_pretrained(folder)
    encoded = AutoTokenizer.from_pretrained(folder)(*texts, padding=True, return_tensors="pt")
    outputs = model(**encoded)
    said = {name: outputs[name].tolist() for name in outputs}
print("SAID " + json.dumps(said))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Optimum and sentence-transformers, and without kdnas."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDED], check=True)
    return python


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), layers=2, hidden=24, heads=2)


def ask(python: Path, kind: str, folder: Any, texts: Any) -> dict[str, Any]:
    """What another environment says of texts."""
    request = json.dumps([kind, folder, texts])
    done = subprocess.run(
        [python, "-c", ASK, request], cwd=python.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("SAID "))
    found: dict[str, Any] = json.loads(said.removeprefix("SAID "))
    return found


def sentence_model(model: Path, folder: Path, width: int | None) -> Iterator[Path]:
    """A teacher that embeds sentences, and with a width a student that has a map to its space."""
    teacher = Path(shutil.copytree(model, folder / "teacher"))
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(kinds.items())
    ]
    (teacher / "modules.json").write_text(json.dumps(modules))
    (teacher / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    (teacher / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    yield teacher
    if width is not None:
        student = Path(shutil.copytree(model, folder / "student"))
        projection = torch.randn(24, width, generator=torch.Generator().manual_seed(0))
        assert write_student_modules(teacher, 24, student, projection) is not None
        yield student


@pytest.mark.parametrize("width", [None, 16], ids=["pooled", "with a linear map"])
def test_sentence_transformers_has_the_same_vectors(
    width: int | None,
    elsewhere: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from sentence_transformers import SentenceTransformer

    *_, folder = sentence_model(model, tmp_path, width)
    wanted = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    onnx = export_onnx(str(folder), tmp_path / "onnx").folder
    places = [[str(folder), "torch"], [str(onnx), "onnx"]]
    said = ask(elsewhere, "embeddings", places, TEXTS)
    for vectors in said["vectors"]:
        np.testing.assert_allclose(vectors, wanted, atol=1e-4)
    assert wanted.shape == (len(TEXTS), width or 24)
    np.testing.assert_allclose(np.linalg.norm(said["vectors"][1], axis=1), 1, atol=1e-5)
    with capsys.disabled():
        print(f"\na text in sentence-transformers, ms: PyTorch {said['ms'][0]:.2f}, ", end="")
        print(f"ONNX {said['ms'][1]:.2f}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("classification", "ForSequenceClassification"),
        ("tagging", "ForTokenClassification"),
        ("span", "ForQuestionAnswering"),
    ],
)
def test_optimum_has_the_same_logits_of_pairs(
    kind: str, name: str, elsewhere: Path, model: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tuned = with_head(model, kind, tmp_path / "tuned")
    onnx = export_onnx(str(tmp_path / "tuned"), tmp_path / "onnx").folder
    texts = [list(column) for column in zip(*PAIRS, strict=True)]
    said = ask(elsewhere, name, str(onnx), texts)
    encoded = AutoTokenizer.from_pretrained(onnx)(*texts, padding=True, return_tensors="pt")
    assert encoded["token_type_ids"].any()
    with torch.inference_mode():
        expected = tuned(**encoded)
    real = encoded["attention_mask"].bool()
    assert said.keys() == expected.keys()
    for key, values in said.items():
        ours, theirs = torch.tensor(values), expected[key]
        if ours.shape[:2] == real.shape:
            ours, theirs = ours[real], theirs[real]
        assert torch.allclose(ours, theirs, atol=1e-4), key
