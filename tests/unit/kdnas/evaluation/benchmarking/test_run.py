from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kdnas.errors import LatencyError, RequestError, SpecError, TeacherError
from kdnas.evaluation.benchmarking import run as subject_module
from kdnas.evaluation.benchmarking.run import (
    Benchmark,
    BenchmarkPlan,
    Candidate,
    Speed,
    run_benchmark,
)
from kdnas.evaluation.benchmarking.table import (
    benchmark_json,
    benchmark_table,
    conditions,
    overall_speed_up,
    speed_up,
)
from kdnas.evaluation.benchmarking.worker import Subject, peak_memory, serve
from kdnas.models.sequence.config import KINDS
from kdnas.models.teacher import load_teacher_model, prepare_teacher, with_layers
from kdnas.records import LatencyProfile
from kdnas.specs.search import LatencySpec
from kdnas.testing.tiny_sequence import make_tiny_sequence
from kdnas.testing.tiny_teacher import make_tiny_teacher

PROFILE = LatencyProfile("cpu:Test", "pytorch-eager", 1, "float32", 8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("model"), layers=2, hidden=24, heads=2)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(subject_module, "TURNS", 2)
    monkeypatch.setattr(subject_module, "TURN_SECONDS", 0.005)
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))


def plan(*runtimes: str, batch_size: int | None = 4) -> BenchmarkPlan:
    spec = LatencySpec.read({"device": "cpu", "length": 8}, "latency")
    return BenchmarkPlan(runtimes, spec, batch_size)


@pytest.mark.slow
def test_pytorch_and_graph_side_by_side(model: Path, tmp_path: Path, hasty: None) -> None:
    steps: list[str] = []
    found = run_benchmark(
        [Candidate(str(model), "tiny")],
        plan("pytorch", "onnx"),
        tmp_path,
        on_step=steps.append,
    )
    assert [(s.model, s.runtime) for s in found.speeds] == [("tiny", "pytorch"), ("tiny", "onnx")]
    assert steps == ["making graphs of tiny", "loading the models", "timing"]
    pytorch, onnx = found.speeds
    weights = load_teacher_model(prepare_teacher(str(model))).parameters()
    assert pytorch.parameters == onnx.parameters == sum(p.numel() for p in weights)
    assert pytorch.weights_bytes == 4 * pytorch.parameters
    for speed in found.speeds:
        assert 0 < speed.latency_ms <= speed.latency_p95_ms
        assert speed.sentences_per_second
        assert speed.tokens_per_second == pytest.approx(8 * speed.sentences_per_second)
        assert speed.peak_bytes > speed.empty_bytes
    assert onnx.peak_bytes < pytorch.peak_bytes / 2  # a graph's process has no torch in it

    # What was made is what kdnas export leaves: a folder without weights for PyTorch.
    exported = subject_module._Model.find(Candidate(str(tmp_path / "0"), "exported"), 8)
    assert exported.parameters == pytorch.parameters
    assert exported.lacks("pytorch", "cpu") == "the folder has no weights for it"
    assert exported.lacks("onnx-int8", "cpu") is None
    assert exported.lacks("onnx", "cuda") == "graphs are run on the CPU"


def test_the_worker_answers_a_line_an_order(model: Path) -> None:
    subject = Subject(
        str(model), "pytorch", None, 1, 30, 8, torch.get_num_threads(), "cpu", "float32"
    )
    answers = io.StringIO()
    with torch.enable_grad():
        serve(subject, io.StringIO('{"batch": 2, "repeats": 3}\n'), answers)
    loaded, timed = map(json.loads, answers.getvalue().splitlines())
    cut = load_teacher_model(with_layers(prepare_teacher(str(model)), 1))
    assert loaded["weights_bytes"] == 4 * sum(p.numel() for p in cut.parameters())
    assert len(timed["samples_ms"]) == 3
    assert timed["peak_bytes"] >= loaded["empty_bytes"] > 0
    assert peak_memory() >= timed["peak_bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_that_is_no_transformer_is_timed_with_its_head(kind: str, tmp_path: Path) -> None:
    count = sum(p.numel() for p in make_tiny_sequence(tmp_path, kind).parameters())
    found = subject_module._Model.find(Candidate(str(tmp_path), "tiny"), 8)
    assert (found.parameters, found.lacks("onnx-int8", "cpu")) == (count, None)
    subject = found.subject("pytorch", plan("pytorch").latency, "cpu", tmp_path, lambda _: None)
    assert found.disk_bytes(subject) == (tmp_path / "model.safetensors").stat().st_size
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        answers = io.StringIO()
        orders = io.StringIO('{"batch": 2, "repeats": 3}\n')
        threads = torch.get_num_threads()
        serve(replace(subject, dtype=dtype, threads=threads), orders, answers)
        loaded, timed = map(json.loads, answers.getvalue().splitlines())
        assert loaded["weights_bytes"] == size * count
        assert len(timed["samples_ms"]) == 3
    with pytest.raises(
        TeacherError, match="whose head reads its last layer; leave out `keep_layers"
    ):
        subject_module._Model.find(Candidate(str(tmp_path), "tiny", keep_layers=1), 8)


def test_the_worker_says_what_is_wrong(model: Path, tmp_path: Path) -> None:
    def answer(ref: str, length: int, orders: str = "", graph: Path | None = None) -> str:
        answers = io.StringIO()
        runtime, file = ("onnx", str(graph)) if graph else ("pytorch", None)
        subject = Subject(ref, runtime, file, None, 30, length, 1, "cpu", "float32")
        serve(subject, io.StringIO(orders), answers)
        return str(json.loads(answers.getvalue().splitlines()[-1])["error"])

    assert "does not exist" in answer(str(tmp_path / "nowhere"), 8)
    assert "could not be timed in pytorch" in answer(str(model), 500, '{"batch":1,"repeats":1}\n')
    (tmp_path / "noise.onnx").write_bytes(bytes(range(256)))
    told = answer("small", 8, graph=tmp_path / "noise.onnx")
    assert told.startswith("'small' could not be opened in onnx (")
    assert told.endswith("); export the model again, or leave this runtime out")


def test_a_process_that_dies_is_told() -> None:
    subject = Subject("big", "onnx", "big.onnx", None, 30, 8, 1, "cpu", "float32")
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        pytest.raises(LatencyError, match=r"'big' in onnx was killed by signal 9; free memory"),
    ):
        subject_module._Process(subject, process)


def test_wrong_requests(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"runtime 'onxx'.*onnx"):
        plan("onxx")
    with pytest.raises(SpecError, match="batch size must be at least 1, not 0"):
        plan("onnx", batch_size=0)
    long = BenchmarkPlan(("pytorch",), LatencySpec(length=65))
    with pytest.raises(SpecError, match=r"65 tokens is longer than the 64 .*--length"):
        run_benchmark([Candidate(str(model), "m")], long, tmp_path)
    with pytest.raises(TeacherError, match="2 layers cannot be kept of the 2 "):
        run_benchmark([Candidate(str(model), "m", keep_layers=2)], plan("pytorch"), tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"graph")
    with pytest.raises(RequestError, match=r"neither weights nor a whole export\.json"):
        run_benchmark([Candidate(str(tmp_path), "m")], plan("onnx"), tmp_path)


def speed(model: str, runtime: str, ms: float) -> Speed:
    return Speed(
        model, runtime, 1_500_000, 6_000_000, 6_000_000, 1, 9_000_000, ms, 2 * ms, None, None
    )


def test_speed_ups_and_table() -> None:
    speeds = (speed("t", "pytorch", 12.0), speed("t", "onnx", 6.0), speed("s", "onnx", 2.0))
    found = Benchmark(PROFILE, None, speeds, ())
    assert speed_up(found, speeds[2], "t") == 3
    assert overall_speed_up(found, speeds[2], "t") == 6
    assert speed_up(found, speeds[0], "s") is None
    header, rows = benchmark_table(found, "t")
    assert header[-2:] == ["speed-up", "over PyTorch"]
    assert rows[2] == ["s", "ONNX", "1.5", "6.0", "6.0", "9.0", "2.00", "4.00", "3.00×", "6.00×"]
    assert "Test, 1 thread, 8 tokens" in conditions(found, "t")[0]
    assert benchmark_json(found, "t")["models"][2]["overall_speed_up"] == 6
