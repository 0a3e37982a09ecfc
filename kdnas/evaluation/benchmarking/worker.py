"""A model in a process of its own, which times it when told to.

Memory is only honest where nothing else was loaded, so each model and runtime has its process, and
one for ONNX never imports torch. It is given a subject as JSON; once the model is loaded it answers
with a line, and then each line of stdin, ``{"batch": 1, "repeats": 8}``, with a line of stdout. It
ends with its stdin.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import psutil

from kdnas.errors import KdnasError, LatencyError
from kdnas.latency.clock import cpu_clock

WARMUPS = 2
FIRST_ID = 5
"""Low ids are padding and other special tokens."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model in a runtime, under the conditions in which it is timed.

    Attributes:
        ref: how the user named the model.
        runtime: ``pytorch``, ``onnx`` or ``onnx-int8``.
        file: graph of a model in ONNX; None for PyTorch.
        keep_layers: leave out the layers above this many; None keeps all. PyTorch only.
        vocab_size: token ids are drawn below it.
        length: tokens of a sequence.
        threads: intra-op threads on a CPU.
        device: ``cpu`` or ``cuda``.
        dtype: of the weights: ``float32`` or ``bfloat16``.
    """

    ref: str
    runtime: str
    file: str | None
    keep_layers: int | None
    vocab_size: int
    length: int
    threads: int
    device: str
    dtype: str

    def to_json(self) -> str:
        """One line; :meth:`from_json` takes it back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Subject:
        """Read back what :meth:`to_json` gave."""
        return cls(**json.loads(text))

    def ids(self, batch: int) -> Any:
        """Token ids, (B, T), without padding."""
        low = min(FIRST_ID, self.vocab_size - 1)
        return np.random.default_rng(0).integers(
            low, self.vocab_size, (batch, self.length), dtype=np.int64
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can be run.

    Attributes:
        bind: batch → a function that runs a batch of that size once.
        clock: in seconds.
        weights_bytes: of the weights in memory; of a graph, its size on disk.
        peak_bytes: what is the most memory that was in use until now.
    """

    bind: Callable[[int], Callable[[], object]]
    clock: Callable[[], float]
    weights_bytes: int
    peak_bytes: Callable[[], int]


def load(subject: Subject) -> Loaded:
    """Load a subject; what this imports belongs to its memory.

    Raises:
        KdnasError: the model does not load.
    """
    return _pytorch(subject) if subject.file is None else _onnx(subject, Path(subject.file))


def _onnx(subject: Subject, file: Path) -> Loaded:
    from kdnas.distill.onnx_session import OnnxGraph, graph_bytes

    graph = OnnxGraph(file, subject.threads)

    def bind(batch: int) -> Callable[[], object]:
        ids = subject.ids(batch)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        if "token_type_ids" in graph.inputs:
            inputs["token_type_ids"] = np.zeros_like(ids)
        return lambda: graph(inputs)

    return Loaded(bind, cpu_clock(subject.threads), graph_bytes(file), peak_memory)


def _pytorch(subject: Subject) -> Loaded:
    import torch

    from kdnas.latency.measure import DTYPES, cuda_clock
    from kdnas.models.opening import load_model, prepare_cut_model

    torch.set_num_threads(subject.threads)
    handle = prepare_cut_model(subject.ref, subject.keep_layers)
    on_gpu = subject.device == "cuda"
    model = load_model(handle).to(subject.device, DTYPES[subject.dtype])

    def bind(batch: int) -> Callable[[], object]:
        ids = torch.from_numpy(subject.ids(batch)).to(subject.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        return torch.inference_mode()(lambda: model(**inputs))

    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    return Loaded(
        bind,
        cuda_clock if on_gpu else cpu_clock(subject.threads),
        weights,
        torch.cuda.max_memory_allocated if on_gpu else peak_memory,
    )


def peak_memory() -> int:
    """Return the most memory, in bytes, that this process has had resident.

    Not what ``getrusage`` says, which on Linux still counts the parent's memory after a fork.
    """
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


def timed(loaded: Loaded, batch: int, repeats: int) -> list[float]:
    """Run a batch again and again; milliseconds of each repeat after a warm-up."""
    run, clock, samples = loaded.bind(batch), loaded.clock, []
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(WARMUPS):
            run()
        for _ in range(repeats):
            started = clock()
            run()
            samples.append((clock() - started) * 1e3)
    finally:
        if collecting:
            gc.enable()
    return samples


def serve(subject: Subject, orders: TextIO, answers: TextIO) -> None:
    """Load a subject and time it as it is told, a line of JSON each way."""

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    empty = psutil.Process().memory_info().rss
    try:
        loaded = load(subject)
    except KdnasError as error:
        answer({"error": str(error)})
        return
    except Exception as error:  # noqa: BLE001 - told to who waits; onnxruntime's have no base
        reason = " ".join(str(error).split())[:200]
        where = f"{subject.ref!r} could not be opened in {subject.runtime} ({reason})"
        answer({"error": f"{where}; export the model again, or leave this runtime out"})
        return
    try:
        answer({"weights_bytes": loaded.weights_bytes, "empty_bytes": empty})
        for line in orders:
            order = json.loads(line)
            samples = timed(loaded, order["batch"], order["repeats"])
            answer({"samples_ms": samples, "peak_bytes": loaded.peak_bytes()})
    except KdnasError as error:
        answer({"error": str(error)})
    except (RuntimeError, MemoryError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        answer(
            {
                "error": str(
                    LatencyError(
                        f"{subject.ref!r} could not be timed in {subject.runtime} ({reason}); give "
                        "a smaller --batch-size, or leave this runtime out"
                    )
                )
            }
        )


if __name__ == "__main__":
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    serve(Subject.from_json(sys.argv[1]), sys.stdin, channel)
