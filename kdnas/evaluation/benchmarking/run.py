"""How fast and how large models are, in each runtime: latency, throughput, memory, size.

Each model and runtime lives in a process of its own (:mod:`kdnas.evaluation.benchmarking.worker`);
the processes take turns, so that a drift of the machine hits all alike.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from kdnas.distill.onnx_export import FIGURES_FILE, export_onnx
from kdnas.distill.onnx_session import FLOAT_FILE, INT8_FILE, graph_bytes, require_packages
from kdnas.errors import LatencyError, RequestError, SpecError, unknown_name
from kdnas.evaluation.benchmarking.timing import parameters_of, weights_on_disk
from kdnas.evaluation.benchmarking.worker import Subject
from kdnas.latency.device_lock import measuring_lock
from kdnas.latency.measure import current_profile
from kdnas.models.opening import ModelHandle, prepare_cut_model
from kdnas.paths import expanded
from kdnas.records import LatencyProfile
from kdnas.specs.search import LatencySpec

RUNTIMES = ("pytorch", "onnx", "onnx-int8")
GRAPHS = {"onnx": FLOAT_FILE, "onnx-int8": INT8_FILE}
TURNS = 10
TURN_SECONDS = 0.4
"""How long a turn of a model takes about; at most ``MOST_REPEATS`` inferences."""
MOST_REPEATS = 20
_PYTHON = (sys.executable, "-P", "-m")


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """Under which conditions models are timed.

    Attributes:
        runtimes: some of :data:`RUNTIMES`.
        latency: device, threads, tokens of a sequence, and format of PyTorch's weights.
        batch_size: sequences of a batch, for throughput; None measures latency alone.
    """

    runtimes: tuple[str, ...] = RUNTIMES
    latency: LatencySpec = field(default_factory=LatencySpec)
    batch_size: int | None = 32

    def __post_init__(self) -> None:
        for runtime in self.runtimes:
            if runtime not in RUNTIMES:
                raise SpecError(unknown_name("runtime", runtime, RUNTIMES))
        if not self.runtimes:
            raise SpecError(f"name at least one runtime: {', '.join(RUNTIMES)}")
        if self.batch_size is not None and self.batch_size < 1:
            raise SpecError(f"the batch size must be at least 1, not {self.batch_size}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to be timed.

    Attributes:
        ref: an alias, a folder or a hub id.
        name: what it is called in tables.
        keep_layers: leave out the layers above this many; PyTorch only.
    """

    ref: str
    name: str
    keep_layers: int | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """A model in a runtime.

    Attributes:
        model: its name.
        runtime: one of :data:`RUNTIMES`.
        parameters: of the encoder, without pooler and heads; of a student that is no Transformer,
            all of them, as it is timed with its head.
        disk_bytes: of its weights on disk.
        weights_bytes: of its weights in memory; of a graph, its size on disk.
        empty_bytes: resident memory of its process before anything of it was loaded.
        peak_bytes: the most memory in use; on a GPU, that torch has allocated there.
        latency_ms: of a single sequence, the median.
        latency_p95_ms: that 95 of 100 stay below.
        sentences_per_second: in batches; None if that was not measured.
        tokens_per_second: likewise.
    """

    model: str
    runtime: str
    parameters: int
    disk_bytes: int
    weights_bytes: int
    empty_bytes: int
    peak_bytes: int
    latency_ms: float
    latency_p95_ms: float
    sentences_per_second: float | None
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Models side by side.

    Attributes:
        profile: where and how latency was measured.
        batch_size: sequences of a batch, for throughput.
        speeds: model by model in the order that was asked for, runtime by runtime.
        left_out: what could not be measured, a sentence each.
    """

    profile: LatencyProfile
    batch_size: int | None
    speeds: tuple[Speed, ...]
    left_out: tuple[str, ...]


def run_benchmark(
    candidates: Sequence[Candidate],
    plan: BenchmarkPlan,
    scratch: Path,
    *,
    wait_seconds: float | None = None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Benchmark:
    """Time models in turns, with the machine to themselves.

    Args:
        candidates: the models.
        plan: the conditions.
        scratch: folder for graphs that have to be made; whoever made it removes it.
        wait_seconds: longest time to wait for trainings on this machine to end; None waits for
            ever.
        on_step: is told what is being done.

    Raises:
        RequestError: a model is not there, the sequence is longer than it takes, or the extra
            ``onnx`` is not installed.
        StoreError: a graph cannot be made.
        LatencyError: a model cannot be run, or the machine stays taken.
    """
    profile = current_profile(plan.latency)
    device = profile.device.partition(":")[0]
    subjects, left_out = [], []
    for number, candidate in enumerate(candidates):
        model = _Model.find(candidate, plan.latency.length)
        for runtime in plan.runtimes:
            reason = model.lacks(runtime, device)
            if reason is None:
                place = scratch / str(number)
                subject = model.subject(runtime, plan.latency, device, place, on_step)
                subjects.append((model, subject))
            else:
                left_out.append(f"{candidate.name} in {runtime}: {reason}")
    if not subjects:
        raise RequestError(f"nothing can be measured: {'; '.join(left_out)}")
    with measuring_lock(wait_seconds, on_step), ExitStack() as stack:
        on_step("loading the models")
        running = [stack.enter_context(_process(subject)) for _, subject in subjects]
        turns = _take_turns(running, plan.batch_size, on_step)
    return Benchmark(
        profile,
        plan.batch_size,
        tuple(
            _speed(model, process.subject, process, times, plan)
            for (model, _), process, times in zip(subjects, running, turns, strict=True)
        ),
        tuple(left_out),
    )


@dataclass(frozen=True)
class _Model:
    """A candidate that was found: with weights for PyTorch, with graphs, or with both."""

    candidate: Candidate
    handle: ModelHandle | None
    graphs: Mapping[str, Path]
    parameters: int
    vocab_size: int

    @classmethod
    def find(cls, candidate: Candidate, length: int) -> _Model:
        folder = expanded(candidate.ref)
        graphs = {
            runtime: folder / file for runtime, file in GRAPHS.items() if (folder / file).is_file()
        }
        if graphs and not any(folder.glob("*.safetensors")):
            return cls._of_export(candidate, folder, graphs)
        handle = prepare_cut_model(candidate.ref, candidate.keep_layers)
        if length > handle.longest_sequence:
            raise SpecError(
                f"a sequence of {length} tokens is longer than the {handle.longest_sequence} that "
                f"{candidate.ref} takes; give a smaller --length"
            )
        return cls(
            candidate,
            handle,
            graphs if candidate.keep_layers is None else {},
            parameters_of(handle),
            handle.shape.vocab_size,
        )

    @classmethod
    def _of_export(cls, candidate: Candidate, folder: Path, graphs: Mapping[str, Path]) -> _Model:
        """Read a folder that ``kdnas export`` wrote, which has no weights for PyTorch."""
        try:
            config = json.loads((folder / "config.json").read_text("utf-8"))
            figures = json.loads((folder / FIGURES_FILE).read_text("utf-8"))
            return cls(
                candidate, None, graphs, int(figures["parameters"]), int(config["vocab_size"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            raise RequestError(
                f"the folder {folder} has graphs, but neither weights nor a whole {FIGURES_FILE}; "
                "export the model again with kdnas export --format onnx"
            ) from None

    def lacks(self, runtime: str, device: str) -> str | None:
        """Why this model cannot be measured in a runtime, if so."""
        if runtime == "pytorch":
            return None if self.handle else "the folder has no weights for it"
        if device == "cuda":
            return "graphs are run on the CPU"
        if self.candidate.keep_layers is not None:
            return "of a model without its upper layers no graph is made"
        if runtime not in self.graphs and self.handle is None:
            return f"the folder has no {GRAPHS[runtime]}"
        return None

    def subject(
        self,
        runtime: str,
        spec: LatencySpec,
        device: str,
        scratch: Path,
        on_step: Callable[[str], None],
    ) -> Subject:
        file = None if runtime == "pytorch" else self._graph(runtime, scratch, on_step)
        return Subject(
            ref=self.candidate.ref,
            runtime=runtime,
            file=None if file is None else str(file),
            keep_layers=self.candidate.keep_layers,
            vocab_size=self.vocab_size,
            length=spec.length,
            threads=spec.threads,
            device=device,
            dtype=spec.dtype if file is None else "float32",
        )

    def _graph(self, runtime: str, scratch: Path, on_step: Callable[[str], None]) -> Path:
        require_packages()
        if runtime in self.graphs:
            return self.graphs[runtime]
        if not scratch.is_dir():
            on_step(f"making graphs of {self.candidate.name}")
            export_onnx(self.candidate.ref, scratch, int8=True, head=False)
        return scratch / GRAPHS[runtime]

    def disk_bytes(self, subject: Subject) -> int:
        if subject.file is not None:
            return graph_bytes(Path(subject.file))
        assert self.handle is not None  # it has a subject for PyTorch
        return weights_on_disk(self.handle)


class _Process:
    """A subject in its process."""

    def __init__(self, subject: Subject, process: subprocess.Popen[str]) -> None:
        self.subject, self._process = subject, process
        self.loaded = self._answer()
        self.peak_bytes = 0

    def time(self, batch: int, repeats: int) -> list[float]:
        """Milliseconds of each repeat.

        Raises:
            LatencyError: the model cannot be run.
        """
        order = json.dumps({"batch": batch, "repeats": repeats})
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # how it ended is said below
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        answer = self._answer()
        self.peak_bytes = int(answer["peak_bytes"])
        return [float(ms) for ms in answer["samples_ms"]]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise LatencyError(
                f"the process that timed {self.subject.ref!r} in {self.subject.runtime} {how}; "
                "free memory, or give a smaller --batch-size"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LatencyError(answer["error"])
        return answer


@contextmanager
def _process(subject: Subject) -> Iterator[_Process]:
    threads = {"OMP_NUM_THREADS": str(subject.threads)}
    with subprocess.Popen(
        [*_PYTHON, "kdnas.evaluation.benchmarking.worker", subject.to_json()],
        env={**os.environ, **threads},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for this process, which then closes the pipe
    ) as process:
        try:
            yield _Process(subject, process)
        finally:
            process.kill()  # it holds nothing that a kill could harm


@dataclass(frozen=True, slots=True)
class _Times:
    """Milliseconds of single sequences, and of batches."""

    single: list[float]
    batch: list[float]


def _take_turns(
    running: Sequence[_Process], batch_size: int | None, on_step: Callable[[str], None]
) -> list[_Times]:
    """Time all subjects; the order turns round every other time, as a steady drift would favour."""
    times = [_Times([], []) for _ in running]
    sizes = [1] if batch_size is None else [1, batch_size]
    repeats = {
        (place, size): _repeats(process.time(size, 1)[0])
        for place, process in enumerate(running)
        for size in sizes
    }
    on_step("timing")
    for turn in range(TURNS):
        order = list(range(len(running)))[:: 1 if turn % 2 == 0 else -1]
        for place in order:
            taken = times[place]
            taken.single.extend(running[place].time(1, repeats[place, 1]))
            if batch_size is not None:
                taken.batch.extend(running[place].time(batch_size, repeats[place, batch_size]))
    return times


def _repeats(ms: float) -> int:
    return max(1, min(MOST_REPEATS, ceil(TURN_SECONDS * 1e3 / max(ms, 1e-3))))


def _speed(
    model: _Model, subject: Subject, process: _Process, times: _Times, plan: BenchmarkPlan
) -> Speed:
    sentences = None
    if plan.batch_size is not None:
        sentences = plan.batch_size / (float(np.median(times.batch)) / 1e3)
    return Speed(
        model=model.candidate.name,
        runtime=subject.runtime,
        parameters=model.parameters,
        disk_bytes=model.disk_bytes(subject),
        weights_bytes=int(process.loaded["weights_bytes"]),
        empty_bytes=int(process.loaded["empty_bytes"]),
        peak_bytes=process.peak_bytes,
        latency_ms=float(np.median(times.single)),
        latency_p95_ms=float(np.percentile(times.single, 95)),
        sentences_per_second=sentences,
        tokens_per_second=None if sentences is None else sentences * subject.length,
    )
