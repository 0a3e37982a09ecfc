"""Models in int8 and without their upper layers, fine-tuned, scored and measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kdnas.evaluation.benchmarking.timing import TimedModel, measure_models
from kdnas.evaluation.finetuning.int8 import task_model_in_int8
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.evaluation.tasks.registry import find_task
from kdnas.latency.device_lock import training_lock
from kdnas.models.families import FAMILIES
from kdnas.models.teacher import prepare_teacher, with_layers
from kdnas.specs.evaluation import TimedSpec
from kdnas.testing.tiny_teacher import make_tiny_teacher


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))


def near_in_int8(folder: Path, task_name: str) -> None:
    """Check that the quantised model says nearly what the fine-tuned one does, padding or not."""
    task, handle = find_task(task_name), prepare_teacher(str(folder))
    labels = ("no", "yes") if task.kind == "classification" else None
    whole = load_task_model(handle, task, labels, 0.1, 0)
    encoded = whole.taken(
        whole.tokenizer(["balan", "x"], ["mivek", "a b c d e"], padding=True, return_tensors="pt")
    )
    with task_model_in_int8(whole, task.kind, handle) as small, torch.no_grad():
        found, expected = small.model(**encoded), whole.model(**encoded)
    for name, values in found.items():
        assert values.shape == expected[name].shape
        assert not torch.equal(values, expected[name])
        assert (values - expected[name]).abs().max() < 0.1 * expected[name].abs().max() + 0.01


def test_a_fine_tuned_model_in_int8_says_nearly_the_same(tmp_path: Path) -> None:
    near_in_int8(make_tiny_teacher(tmp_path / "model", layers=1), "SST-2")


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_can_be_quantised_with_a_head(family: str, tmp_path: Path) -> None:
    near_in_int8(make_tiny_teacher(tmp_path / "model", family), "SQuAD 2.0")


def test_models_are_measured_side_by_side(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "model", layers=2, max_positions=20)))
    cut = with_layers(handle, 1)
    assert (cut.shape.layers, cut.fingerprint) == (1, handle.fingerprint)
    (whole, half), lacking = measure_models([TimedModel(handle), TimedModel(cut)], TimedSpec())
    assert lacking is None
    assert whole.conditions == half.conditions
    assert (whole.length, whole.threads, whole.runtime) == (20, 1, "pytorch")
    assert whole.latency_ms is not None
    assert half.latency_ms is not None
    assert half.latency_ms < whole.latency_ms
    assert whole.disk_bytes == (tmp_path / "model" / "model.safetensors").stat().st_size
    assert half.disk_bytes is not None
    assert half.disk_bytes < whole.disk_bytes
    share = half.parameters / whole.parameters
    assert half.disk_bytes == pytest.approx(share * whole.disk_bytes, rel=1e-6)


def test_a_busy_machine_leaves_latency_out(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "model", layers=1)))
    with training_lock():
        (found,), lacking = measure_models([TimedModel(handle)], TimedSpec(), wait_seconds=0)
    assert found.latency_ms is None
    assert found.parameters > 0
    assert lacking is not None
    assert lacking.startswith("latency was not measured: this machine is still taken")
    (unasked,), nothing = measure_models([TimedModel(handle, int8=True)], None)
    assert (unasked.runtime, unasked.disk_bytes, nothing) == ("onnx-int8", None, None)
