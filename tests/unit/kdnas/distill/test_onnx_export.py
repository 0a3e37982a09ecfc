from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from transformers import AutoTokenizer

from kdnas.distill.onnx_card import doubt_text, export_card, slow_text
from kdnas.distill.onnx_export import Agreement, check_batches, compare, export_onnx
from kdnas.distill.onnx_graph import INPUTS
from kdnas.errors import OutputError, RequestError, StoreError, TeacherError
from kdnas.latency.side_by_side import time_side_by_side
from kdnas.models.families import FAMILIES
from kdnas.models.pooling import read_pooling
from kdnas.models.sentence import write_student_modules
from kdnas.models.sequence.config import KINDS
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.small_disk import small_disk
from kdnas.testing.tiny_heads import with_head
from kdnas.testing.tiny_sequence import make_tiny_sequence
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), layers=1, hidden=24, heads=2)


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("exported") / "onnx"
    steps: list[str] = []
    done = export_onnx(
        str(model), output, time_side_by_side, int8=True, length=16, on_step=steps.append
    )
    assert done.folder == output
    assert len(steps) == 4
    return output


def agrees(folder: Path, source: Path) -> None:
    """Check against PyTorch on batches that the export itself did not use."""
    encoder = load_teacher_model(prepare_teacher(str(source)))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for texts in (["a b c"], ["x", "one two three four, five"], ["hello"] * 7, [("a b", "c d e")]):
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        inputs = {value.name: encoded[value.name] for value in session.get_inputs()}
        (found,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        with torch.inference_mode():
            expected = encoder(**inputs).last_hidden_state
        real = inputs["attention_mask"].bool()
        assert torch.allclose(torch.from_numpy(found)[real], expected[real], atol=1e-5)


def says_the_same(folder: Path, model: Any) -> None:
    """Check a graph with a head against transformers, on texts and pairs of many shapes."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    names = [value.name for value in session.get_outputs()]
    for texts in (
        ["a b c"],
        [("one two", "three")],
        [("a", "b c d e f g"), ("one two three four five six", "x")],
        [("w " * length, "v " * (length % 3 + 1)) for length in range(1, 12)],
    ):
        encoded = tokenizer(texts, padding=True, return_tensors="pt")
        inputs = {value.name: encoded[value.name] for value in session.get_inputs()}
        found = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        with torch.inference_mode():
            expected = model(**inputs)
        real = inputs["attention_mask"].bool()
        for name, values in zip(names, found, strict=True):
            ours, theirs = torch.from_numpy(values), expected[name]
            if ours.shape[:2] == real.shape:
                ours, theirs = ours[real], theirs[real]
            assert torch.allclose(ours, theirs, atol=1e-4), name


@pytest.mark.parametrize(
    ("kind", "outputs", "compared"),
    [
        ("classification", ["logits"], "texts"),
        pytest.param("multilabel", ["logits"], "texts", marks=pytest.mark.slow),
        pytest.param("regression", ["logits"], "texts", marks=pytest.mark.slow),
        pytest.param("tagging", ["logits"], "tokens", marks=pytest.mark.slow),
        ("span", ["start_logits", "end_logits"], "tokens"),
    ],
)
def test_a_fine_tuned_model_keeps_its_head(
    kind: str, outputs: list[str], compared: str, model: Path, tmp_path: Path
) -> None:
    tuned = with_head(model, kind, tmp_path / "tuned")
    done = export_onnx(str(tmp_path / "tuned"), tmp_path / "onnx", time_side_by_side, int8=True)
    says_the_same(done.folder, tuned)
    figures = json.loads((done.folder / "export.json").read_text("utf-8"))
    assert (figures["kind"], figures["outputs"]) == (kind, outputs)
    assert figures["inputs"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert figures["agreement"]["of"] == compared
    assert figures["parameters"] == sum(p.numel() for p in tuned.parameters())
    assert 0.9 < figures["int8"]["mean_cosine"] <= 1
    card = (done.folder / "README.md").read_text("utf-8")
    assert "for name in ['input_ids', 'attention_mask', 'token_type_ids']}" in card
    assert f"{', '.join(outputs)}{',' if len(outputs) == 1 else ''} = session.run" in card


def test_a_head_can_be_left_out(model: Path, tmp_path: Path) -> None:
    with_head(model, "classification", tmp_path / "tuned")
    done = export_onnx(str(tmp_path / "tuned"), tmp_path / "onnx", head=False)
    assert (done.figures["kind"], done.figures["outputs"]) == ("encoder", ("last_hidden_state",))
    agrees(done.folder, tmp_path / "tuned")


def test_the_folder_serves_with_onnxruntime_alone(exported: Path, model: Path) -> None:
    agrees(exported, model)
    assert {p.name for p in exported.iterdir()} == {
        "README.md",
        "config.json",
        "export.json",
        "model.int8.onnx",
        "model.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert [p.name for p in exported.parent.iterdir()] == ["onnx"]
    session = onnxruntime.InferenceSession(str(exported / "model.onnx"))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    assert [i.name for i in session.get_inputs()] == names
    assert [i.shape for i in session.get_inputs()] == [["batch", "sequence"]] * 3
    (output,) = session.get_outputs()
    assert (output.name, output.shape) == ("last_hidden_state", ["batch", "sequence", 24])


@pytest.mark.parametrize("labels", [("a", "b", "c"), ()])
@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_no_transformer_has_its_logits(
    kind: str, labels: tuple[str, ...], tmp_path: Path
) -> None:
    """Batches and lengths are free, and padding changes nothing."""
    model = make_tiny_sequence(tmp_path / "student", kind, labels, dropout=0.5)
    done = export_onnx(str(tmp_path / "student"), tmp_path / "onnx", int8=True)
    figures = done.figures
    assert (figures["family"], figures["outputs"]) == (model.config.model_type, ("logits",))
    assert (figures["layers"], figures["hidden"]) == (model.config.layers, 24)
    assert figures["agreement"]["compared"] == 1 + 4 + 1 + 3 + 1 + 3
    assert figures["agreement"]["max_difference"] <= 1e-4
    session = onnxruntime.InferenceSession(str(done.folder / "model.onnx"))
    assert [i.name for i in session.get_inputs()] == ["input_ids", "attention_mask"]
    (output,) = session.get_outputs()
    assert (output.name, output.shape) == ("logits", ["batch", len(labels) or 1])
    small = onnxruntime.InferenceSession(str(done.folder / "model.int8.onnx"))
    generator = torch.Generator().manual_seed(0)
    for batch, length in ((1, 1), (1, 5), (3, 17), (8, 64), (2, 200)):
        ids = torch.randint(5, model.config.vocab_size, (batch, length), generator=generator)
        ends = torch.randint(1, length + 1, (batch, 1), generator=generator)
        mask = (torch.arange(length) < ends).long()
        inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        with torch.inference_mode():
            expected = model(ids, mask).logits
        np.testing.assert_allclose(session.run(None, inputs)[0], expected, atol=1e-4)
        np.testing.assert_allclose(small.run(None, inputs)[0], expected, atol=0.1)
    card = (done.folder / "README.md").read_text("utf-8")
    assert "logits, = session.run(None, inputs)" in card
    assert "pipeline_tag: text-classification" in card
    assert "optimum" not in card
    assert f"{1 + 4 + 1 + 3 + 1 + 3} texts, single ones and pairs)" in card


def test_how_sentences_are_embedded_comes_along(model: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(model, tmp_path / "model"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling")))
    ]
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "modules.json").write_text(json.dumps(modules))
    projection = torch.randn(24, 48, generator=torch.Generator().manual_seed(0))
    write_student_modules(tmp_path / "teacher", 24, source, projection)
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    folder = export_onnx(str(source), tmp_path / "onnx").folder
    pooling = read_pooling(folder, "onnx")
    assert pooling == read_pooling(source, "model")
    assert pooling.projection is not None
    assert torch.equal(pooling.projection, projection)
    agrees(folder, source)  # the graph ends before it
    card = (folder / "README.md").read_text("utf-8")
    assert "optimum.onnxruntime.ORTModelForFeatureExtraction.from_pretrained(folder)" in card
    assert 'SentenceTransformer(folder, backend="onnx")' in card


def test_the_figures_are_those_that_were_measured(exported: Path, model: Path) -> None:
    figures = json.loads((exported / "export.json").read_text("utf-8"))
    handle = prepare_teacher(str(model))
    assert figures["fingerprint"] == handle.fingerprint
    assert (figures["family"], figures["layers"], figures["hidden"]) == ("bert", 1, 24)
    agreement = figures["agreement"]
    assert 0 < agreement["max_difference"] < 1e-5 < agreement["allowed"]
    assert agreement["mean_cosine"] > 1 - 1e-6
    batches = check_batches(handle, figures["inputs"])
    assert agreement["compared"] == sum(int(b["attention_mask"].sum()) for b in batches)
    assert figures["int8"]["max_difference"] > agreement["max_difference"]
    assert 0.9 < figures["int8"]["mean_cosine"] < 1
    latency = figures["latency"]
    assert (latency["batch_size"], latency["tokens"], latency["threads"]) == (1, 16, 1)
    assert all(latency[f"{name}_ms"] > 0 for name in ("pytorch", "onnx", "int8"))
    for name, size in figures["bytes"].items():
        assert (exported / name).stat().st_size == size
    card = (exported / "README.md").read_text("utf-8")
    assert f"| ONNX int8 | {latency['int8_ms']:.2f} ms |" in card
    assert "onnxruntime.InferenceSession" in card
    assert card == export_card(figures)
    assert "SentenceTransformer" not in card


def test_batches_are_uneven_and_reach_the_longest(model: Path) -> None:
    handle = prepare_teacher(str(model))
    batches = check_batches(handle, INPUTS)
    lengths = [batch["attention_mask"].sum(1).tolist() for batch in batches]
    assert lengths[:4] == [[3], [17, 4, 30, 9], [64], [32, 64, 21]]
    assert all(batch["token_type_ids"].any() for batch in batches[4:])
    assert not any(batch["token_type_ids"].any() for batch in batches[:4])
    assert all((b["input_ids"][~b["attention_mask"].bool()] == 0).all() for b in batches)


def test_padding_is_not_compared(model: Path) -> None:
    handle = prepare_teacher(str(model))
    batches = check_batches(handle, INPUTS[:2])

    def reference(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor]:
        return (input_ids[..., None].float() + 1,)

    class Graph:
        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            states = inputs["input_ids"][..., None] + 1.5
            real = inputs["attention_mask"][..., None] == 1
            return [np.where(real, states, 1e6).astype(np.float32)]

    found = compare(reference, Graph(), batches, None)  # type: ignore[arg-type]
    assert found.max_difference == 0.5
    assert found.mean_cosine == pytest.approx(1)


def test_a_graph_that_differs_is_not_kept(model: Path, tmp_path: Path) -> None:
    """No export is exact to the bit."""
    with pytest.raises(StoreError, match=r"differs from PyTorch by .*and was not kept"):
        export_onnx(str(model), tmp_path / "out", tolerance=1e-12)
    assert not list(tmp_path.iterdir())


def test_the_tolerance_grows_with_the_values() -> None:
    assert Agreement(1e-3, 20.0, 1.0, 5, "texts").within(1e-4)
    assert not Agreement(1e-3, 5.0, 1.0, 5, "texts").within(1e-4)
    assert not Agreement(1.5e-4, 0.01, 1.0, 5, "texts").within(1e-4)
    assert not Agreement(float("nan"), 1.0, 1.0, 5, "texts").within(1e-4)


def test_a_doubtful_int8_model_is_warned_of() -> None:
    assert doubt_text({"doubtful": False, "mean_cosine": 0.99}) is None
    words = doubt_text({"doubtful": True, "mean_cosine": 0.9123})
    assert words is not None
    assert "mean cosine 0.9123" in words
    assert "measure it on your task" in words


@pytest.mark.parametrize("size", [100, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_full_disk_leaves_nothing(model: Path, tmp_path: Path, size: int) -> None:
    sentence = r"could not be written to .*out .*free space"
    with small_disk(size), pytest.raises(StoreError, match=sentence):
        export_onnx(str(model), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_wrong_requests_are_refused_before_anything_is_made(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "precious.txt").write_text("mine")
    with pytest.raises(OutputError, match="used is not empty"):
        export_onnx(str(model), used)
    with pytest.raises(RequestError, match=r"65 tokens is longer than the 64 .*--sequence-length"):
        export_onnx(str(model), tmp_path / "out", length=65)
    with pytest.raises(TeacherError, match="does not exist"):
        export_onnx(str(tmp_path / "nowhere"), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    said = r"needs .* onnxruntime, .*run: make setup, or pip install 'kdnas\[onnx\]'"
    with pytest.raises(RequestError, match=said):
        export_onnx(str(model), tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["used"]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_family_can_be_exported(model_type: str, tmp_path: Path) -> None:
    model = make_tiny_teacher(tmp_path / "model", model_type, max_positions=160)
    export_onnx(str(model), tmp_path / "out")
    agrees(tmp_path / "out", model)
    tuned = with_head(model, "classification", tmp_path / "tuned")
    export_onnx(str(tmp_path / "tuned"), tmp_path / "tuned-onnx")
    says_the_same(tmp_path / "tuned-onnx", tuned)


def test_a_slow_int8_model_is_warned_of() -> None:
    timed = {"pytorch_ms": 30.0, "onnx_ms": 20.0}
    assert slow_text(None) is None
    assert slow_text(timed) is None
    assert slow_text({**timed, "int8_ms": 12.0}) is None
    words = slow_text({**timed, "int8_ms": 50.0})
    assert words is not None
    assert "2.50 times as long as model.onnx" in words
