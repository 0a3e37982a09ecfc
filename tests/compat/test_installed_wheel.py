"""``kdnas.load`` from an installed wheel, as those who serve a model have it.

The wheel is built with the tools that pyproject.toml names and installed into an environment of its
own, outside of which no file of this folder is read; what kdnas depends on is that of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from kdnas.models.sequence.config import KINDS
from kdnas.testing.tiny_sequence import make_tiny_sequence

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[2]
ASK = """
import json, sys, kdnas
assert "torch" not in sys.modules
model = kdnas.load(sys.argv[1])
encoded = model.tokenizer("the film", return_tensors="pt")
logits = model.model(**{name: encoded[name] for name in ("input_ids", "attention_mask")}).logits
answers = [answer.to_json() for answer in model(["the film", "was"])]
print(json.dumps([kdnas.__file__, model.kind, model.labels, logits[0].tolist(), answers]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has kdnas as a wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT], cwd=folder, check=True
    )
    (wheel,) = folder.glob("kdnas-*.whl")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    own = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # A plain path: what is linked there, such as kdnas as it is developed, does not come along.
    Path(own, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_opened(kind: str, installed: Path, tmp_path: Path) -> None:
    model = make_tiny_sequence(tmp_path / "student", kind, words=("the", "film", "was"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KDNAS_", "PYTHON"))}
    done = subprocess.run(
        [installed, "-c", ASK, tmp_path / "student"],
        cwd=tmp_path,
        env=environment | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, found_kind, labels, logits, answers = json.loads(done.stdout)
    assert Path(place).is_relative_to(installed.parents[1])
    assert (found_kind, labels) == ("classification", ["no", "yes"])
    last = model.config.vocab_size - 3
    with torch.inference_mode():
        expected = model(torch.tensor([[2, last, last + 1, 3]])).logits[0]
    assert logits == pytest.approx(expected.tolist(), abs=1e-6)
    assert answers[0]["prediction"] == ("no", "yes")[int(expected.argmax())]
    assert answers[0]["probability"] == pytest.approx(float(expected.softmax(0).max()), abs=1e-6)
    assert len(answers) == 2
