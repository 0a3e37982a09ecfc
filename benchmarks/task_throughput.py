"""Distillation for one task beside TextBrewer 0.2.1: same teacher, student, batches and losses.

The teacher is MiniLM (6 x 384) with a head, the student its first three layers, the tasks RTE
(pairs of sentences) and CoLA (single short ones) from a folder of GLUE. TextBrewer runs as its
documentation says: `GeneralDistiller`, adaptors, its own `train`. Both get the same examples in
each batch, in the same number format, and run the teacher on every batch; then rows of ours follow
in which several methods share the teacher's pass, and in which its outputs are kept.

    python benchmarks/task_throughput.py --data-dir ./glue --output docs/results/task_throughput

Needs the extra `bench`. One thread. TextBrewer trains in a process of its own (memory settings
belong to a process); rows take turns, and each gets the same batches in every round, short texts
and long ones. Time is the
processor's, so that others on the machine count little; the clock's is kept beside it.
`--tasks CoLA --batch-sizes 32 --steps 1 --rounds 2` tries the program.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from study_files import publish
from torch import Tensor, nn

from kdnas import ENGINE_VERSION
from kdnas.distill.numerics import autocast, derived_seed
from kdnas.distill.parameter_groups import parameter_groups
from kdnas.evaluation.finetuning.model import load_task_model
from kdnas.latency.measure import hardware_name
from kdnas.models.teacher import TeacherHandle, quiet_transformers
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.tabular.measures import Interval, median_interval, ratio_interval
from kdnas.taskspecific.examples import Examples, Indices, TaskBatch
from kdnas.taskspecific.methods.layer_choice import matched_layers
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.outputs import NetworkOutputs
from kdnas.taskspecific.stages import Hyperparameters, Stage
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import (
    RunningTeacher,
    TeacherOutputs,
    run_over,
    running_teacher,
)
from kdnas.taskspecific.training import HeldOut, Training
from workers.task.ready import ReadyTask, prepare_for_task
from workers.task.request import CheckedTask
from workers.task.students import network_of

STUDENT: Final = "first-layers:3"
TEACHER: Final = {"ref": "minilm", "epochs": 0.05}
"""Fine-tuned for a moment only: speed does not depend on the weights."""
FIXED_LENGTH: Final = 128
"""Tokens to which TextBrewer's examples for GLUE pad everything (its MNLI and SST-2 examples)."""
TWO: Final = ("vanilla-kd", "pkd")
FOUR: Final = (*TWO, "universal-kd-il", "mhkd")
BAR: Final = 3.0
STEPS: Final = 10_000
"""Of the learning-rate schedule; fewer are made."""


@dataclass(frozen=True)
class Row:
    """One way to train.

    Attributes:
        title: what the table calls it.
        methods: of the students that are trained side by side.
        textbrewer: whether TextBrewer trains, or our engine.
        fixed: whether batches are padded to a fixed length, or to their longest.
        kept: whether what the teacher says is looked up.
    """

    title: str
    methods: tuple[str, ...]
    textbrewer: bool = False
    fixed: bool = False
    kept: bool = False


def rows_of(method: str) -> tuple[Row, ...]:
    """Rows of one method: TextBrewer's and ours."""
    name = "vanilla KD" if method == "vanilla-kd" else "hidden states"
    return (
        Row(
            f"{name}: TextBrewer, padded to {FIXED_LENGTH} as in its examples",
            (method,),
            textbrewer=True,
            fixed=True,
        ),
        Row(f"{name}: TextBrewer, padded as ours", (method,), textbrewer=True),
        Row(f"{name}: ours", (method,)),
        Row(f"{name}: ours, teacher outputs kept", (method,), kept=True),
    )


ROWS: Final = (
    *rows_of("vanilla-kd"),
    *rows_of("pkd"),
    Row("two methods share the teacher's pass", TWO),
    Row("four methods share the teacher's pass", FOUR),
    Row("four methods, teacher outputs kept", FOUR, kept=True),
)


@dataclass(frozen=True)
class Setting:
    """What a comparison is made with.

    Attributes:
        task: name of the task.
        batch_size: examples of a step.
        dtype: of the forward passes.
    """

    task: str
    batch_size: int
    dtype: str


@dataclass(frozen=True)
class Round:
    """What some steps took.

    Attributes:
        cpu: seconds of the processor.
        wall: seconds.
        teacher: of the processor's, those of the teacher's passes; 0 where that is not measured.
    """

    cpu: float
    wall: float
    teacher: float = 0.0


class Clock:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._began = time.process_time(), time.perf_counter()

    def read(self, teacher: float = 0.0) -> Round:
        """What has passed."""
        return Round(
            time.process_time() - self._began[0], time.perf_counter() - self._began[1], teacher
        )


def made_student(checked: CheckedTask, dropout: float) -> Any:
    """Make the student that all rows begin with."""
    return checked.student.build(dropout, derived_seed("student", 0) % 2**31)


def padded(batch: TaskBatch, length: int) -> TaskBatch:
    """Pad a batch further, to a fixed length at least."""
    extra = max(0, length - batch.inputs["input_ids"].shape[1])
    inputs = {name: nn.functional.pad(t, (0, extra)) for name, t in batch.inputs.items()}
    return replace(batch, inputs=inputs)


class Peer:
    """TextBrewer, started with our student's weights.

    ``kd_ce`` is the cross entropy of the softened outputs, which has KL's gradient. The match
    ``pkd`` is Σ ‖h^T/‖h^T‖ − h^S/‖h^S‖‖² over matched layers' [CLS], a mean over the batch: Eq. 2.
    """

    def __init__(
        self,
        checked: CheckedTask,
        teacher: TeacherHandle,
        method: str,
        dtype: str,
        dropout: float,
        scratch: str,
    ) -> None:
        from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

        class Distiller(GeneralDistiller):  # type: ignore[misc]
            """Autocast around the forward passes and the loss; no file at the end of a round."""

            def train_on_batch(self, batch: Any, args: Any) -> Any:
                with autocast("cpu", dtype):
                    return super().train_on_batch(batch, args)

            def save_and_callback(self, *_: Any) -> None:
                """Keep nothing."""

        hyper = checked.hyper
        taught_by = load_task_model(teacher, checked.data.task, checked.data.labels, 0.0, 0)
        taught_by.model.eval().requires_grad_(False)
        made = made_student(checked, dropout)
        self.student, self._taken = made.model, made.inputs
        self._hyper = hyper
        self._states = method == "pkd"
        beta = hyper.beta if self._states else 1.0
        setting = checked.setting(checked.teacher_shape, hyper.beta, 0)
        matches = [
            {
                "layer_T": theirs,
                "layer_S": own,
                "feature": "hidden",
                "loss": "pkd",
                "weight": 1 - beta,
            }
            for own, theirs in enumerate(matched_layers(setting), start=1)
        ]
        self._distiller = Distiller(
            TrainingConfig(ckpt_steps=STEPS, log_dir=None, output_dir=scratch, device="cpu"),
            DistillationConfig(
                temperature=hyper.temperature,
                kd_loss_type="ce",
                kd_loss_weight=beta,
                hard_label_weight=0,
                intermediate_matches=matches if self._states else None,
            ),
            taught_by.model,
            self.student,
            self._adapt,
            self._adapt,
        )
        self._optimizer = torch.optim.AdamW(
            parameter_groups(self.student.parameters(), hyper.weight_decay), hyper.learning_rate
        )

    def _adapt(self, batch: dict[str, Tensor], outputs: Any) -> dict[str, Any]:
        found = {"logits": outputs.logits}
        return found | ({"hidden": outputs.hidden_states} if self._states else {})

    def _inputs(self, batch: TaskBatch) -> dict[str, Tensor]:
        return {name: t for name, t in batch.inputs.items() if name in self._taken}

    @property
    def _options(self) -> dict[str, Any]:
        return {"output_hidden_states": True} if self._states else {}

    def train(self, batches: Sequence[TaskBatch]) -> Round:
        """Make a step on each batch; the clock starts with the first one."""
        from transformers import get_linear_schedule_with_warmup

        clocks = []

        def watched() -> Iterator[dict[str, Tensor]]:
            clocks.append(Clock())
            for batch in batches:
                yield self._inputs(batch)

        hyper = self._hyper
        with self._distiller:
            self._distiller.train(
                self._optimizer,
                watched(),
                num_steps=len(batches),
                scheduler_class=get_linear_schedule_with_warmup,
                scheduler_args={
                    "num_warmup_steps": round(hyper.warmup_fraction * STEPS),
                    "num_training_steps": STEPS,
                },
                max_grad_norm=hyper.max_grad_norm,
                **self._options,
            )
        return clocks[0].read()

    def gradient(self, batch: TaskBatch) -> Tensor:
        """Gradient of the loss of a batch, with the weights as they are."""
        self.student.eval()
        loss, _ = self._distiller.train_on_batch(self._inputs(batch), self._options)
        loss.backward()
        return gradient_of(self.student)


def gradient_of(student: nn.Module) -> Tensor:
    """All gradients of a student in one row."""
    found = [p.grad.flatten() for p in student.parameters() if p.grad is not None]
    student.zero_grad()
    return torch.cat(found)


class Watched:
    """A teacher, and the time it takes."""

    def __init__(self, teacher: TeacherOutputs) -> None:
        self._teacher, self.seconds = teacher, 0.0

    def of(self, batch: TaskBatch) -> NetworkOutputs:
        """What it says of a batch."""
        began = time.process_time()
        said = self._teacher.of(batch)
        self.seconds += time.process_time() - began
        return said


class Ours:
    """The engine, put together as a distillation for a task does it."""

    def __init__(
        self,
        ready: ReadyTask,
        teacher: TeacherOutputs,
        methods: Sequence[str],
        hyper: Hyperparameters,
        dtype: str,
    ) -> None:
        self.teacher = Watched(teacher)
        checked = ready.checked
        self.runs = []
        for name in methods:
            kind = method_named(name)
            network = network_of(made_student(checked, hyper.dropout))
            setting = checked.setting(checked.teacher_shape, hyper.beta, 0)
            student = TaskStudent(
                network,
                setting.space.size,
                classifies_layers=kind.needs_student_layers,
                reads_states=kind.needs_teacher_states,
                seed=0,
            )
            run = StudentRun(student, kind(setting), self.teacher, hyper, 0, "cpu", dtype)
            self.runs.append(run)
        held_out = HeldOut(ready.held_out.tokens, [], lambda _: 0.0)
        self._training = Training(self.runs, ready.train.tokens, held_out, 0, "cpu")
        self._stage = Stage(1, STEPS, STEPS)
        for run in self.runs:
            run.begin(self._stage)
        self._step = 0

    def train(self, groups: Iterable[Indices]) -> Round:
        """Make a step on each batch."""
        clock, before = Clock(), self.teacher.seconds
        for indices in groups:
            self._training._step(self._stage, self._step, indices)
            self._step += 1
        return clock.read(self.teacher.seconds - before)

    def gradient(self, batch: TaskBatch) -> Tensor:
        """Gradient of the loss of a batch, with the weights as they are."""
        (run,) = self.runs
        run.student.eval()
        with autocast("cpu", "float32"):
            own = run.student(batch.inputs)
        loss: Any = run._loss(self._stage, 0, own, batch, self.teacher.of(batch))
        loss.backward()
        return gradient_of(run.student.model)


def serve(
    checked: CheckedTask, teacher: TeacherHandle, examples: Examples, setting: Setting, pipe: Any
) -> None:
    """Train with TextBrewer in a process of its own, as the other end of a pipe asks."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with TemporaryDirectory() as scratch:
        peers = {
            method: Peer(checked, teacher, method, setting.dtype, checked.hyper.dropout, scratch)
            for method in TWO
        }
        while (wanted := pipe.recv()) is not None:
            row, groups = wanted
            # Padding is the caller's own part in TextBrewer, and outside of its time.
            batches = [examples.batch(indices) for indices in groups]
            if row.fixed:
                batches = [padded(batch, FIXED_LENGTH) for batch in batches]
            pipe.send(peers[row.methods[0]].train(batches))


def teacher_in(ready: ReadyTask, dtype: str) -> RunningTeacher:
    """Load the teacher, to be run in a number format."""
    data = ready.checked.data
    loaded = load_task_model(ready.model, data.task, data.labels, 0.0, 0)
    return running_teacher(network_of(loaded), "cpu", dtype, ready.classifiers)


def compare_gradients(ready: ReadyTask, indices: Indices) -> dict[str, float]:
    """By how much gradients of the same batch and weights differ, relative to their norm."""
    batch, found = ready.train.tokens.batch(indices), {}
    teacher = teacher_in(ready, "float32")
    for method in TWO:
        with TemporaryDirectory() as scratch:
            peer = Peer(ready.checked, ready.model, method, "float32", 0.0, scratch)
        ours = Ours(ready, teacher, (method,), ready.checked.hyper, "float32")
        theirs, own = peer.gradient(batch), ours.gradient(batch)
        found[method] = float((theirs - own).norm() / own.norm())
    return found


def measure(ready: ReadyTask, setting: Setting, steps: int, rounds: int) -> dict[str, Any]:
    """Time all rows, taking turns; a first round warms up, uncounted."""
    examples = ready.train.tokens
    hyper = replace(ready.checked.hyper, batch_size=setting.batch_size)
    running = teacher_in(ready, setting.dtype)
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    arguments = (ready.checked, ready.model, examples, setting, other)
    process = context.Process(target=serve, args=arguments, daemon=True)
    process.start()
    other.close()  # so that a process that dies ends the wait for it
    ask: dict[Row, Callable[[Sequence[Indices]], Round]] = {}
    for row in ROWS:
        if row.textbrewer:
            ask[row] = partial(asked, pipe, row)
        else:
            teacher = ready.learned if row.kept else running
            ask[row] = Ours(ready, teacher, row.methods, hyper, setting.dtype).train
    groups = spaced_batches(examples, setting.batch_size, steps)
    taken: dict[Row, list[Round]] = {row: [] for row in ROWS}
    for turn in range(rounds + 1):
        order = [*ROWS[turn % len(ROWS) :], *ROWS[: turn % len(ROWS)]]
        found = {row: ask[row](groups) for row in order}
        if turn:
            for row in ROWS:
                taken[row].append(found[row])
        print(f"{setting}: round {turn} of {rounds}", flush=True)
    pipe.send(None)
    process.join()
    return {
        **asdict(setting),
        "tokens": int(sum(examples.lengths[indices].sum() for indices in groups)),
        "rows": [
            {"title": row.title, **asdict(row), "rounds": [asdict(r) for r in taken[row]]}
            for row in ROWS
        ],
    }


def spaced_batches(examples: Examples, batch_size: int, count: int) -> list[Indices]:
    """Batches of an epoch, evenly spaced from those of short texts to those of long ones.

    Every round has the same ones, so that kernels that a matrix library builds for a shape are
    there after the first, as they are in a training.
    """
    batches = examples.plan(batch_size, 0).epoch_batches(0)
    by_length = sorted(
        (b for b in batches if len(b) == batch_size), key=lambda b: int(examples.lengths[b].max())
    )
    return [by_length[len(by_length) * (2 * i + 1) // (2 * count)] for i in range(count)]


def asked(pipe: Connection, row: Row, groups: Sequence[Indices]) -> Round:
    """Let the other process train."""
    pipe.send((row, groups))
    found: Round = pipe.recv()
    return found


def cost_of_keeping(ready: ReadyTask, dtype: str) -> dict[str, float]:
    """What it takes to keep the outputs: one pass over the examples, and memory."""
    clock = Clock()
    examples = ready.train.tokens
    with TemporaryDirectory() as scratch:
        kept = run_over(teacher_in(ready, dtype), examples, Path(scratch))
    states = kept.states
    assert states is not None
    return {
        "examples": len(examples),
        "tokens": int(examples.lengths.sum()),
        "seconds": clock.read().cpu,
        "bytes_of_outputs": 4 * (1 + states.shape[1]) * kept.logits.shape[1],
        "bytes_of_states": 4 * states.shape[1] * states.shape[2],
    }


def speeds(row: dict[str, Any], tokens: int, clock: str = "cpu") -> list[float]:
    """Real tokens a second of each round: of all students of the row, the examples' own."""
    students = len(row["methods"])
    return [students * tokens / r[clock] for r in row["rounds"]]


def said(interval: Interval, digits: int) -> str:
    """A median with its interval."""
    return f"{interval.median:.{digits}f} ({interval.low:.{digits}f}–{interval.high:.{digits}f})"


def table(part: dict[str, Any]) -> str:
    """The rows of one setting."""
    by_title = {row["title"]: row for row in part["rows"]}
    lines = [
        "| | real tokens / s | × TextBrewer, padded as ours | × TextBrewer, padded to "
        f"{FIXED_LENGTH} | by the clock |",
        "|---|---|---|---|---|",
    ]
    for row in part["rows"]:
        own = speeds(row, part["tokens"])
        name = row["title"].split(":")[0]
        ratios = []
        for of in ("padded as ours", f"padded to {FIXED_LENGTH} as in its examples"):
            peer = by_title.get(f"{name}: TextBrewer, {of}")
            if peer is None:
                ratios.append("")
                continue
            ratios.append(said(ratio_interval(own, speeds(peer, part["tokens"])), 2))
        wall = statistics.median(speeds(row, part["tokens"], "wall"))
        lines.append(
            f"| {row['title']} | {said(median_interval(own), 0)} | {ratios[0]} | {ratios[1]} | "
            f"{wall:.0f} |"
        )
    return "\n".join(lines)


def ratio(part: dict[str, Any], method: str, of: str, kept: bool = False) -> Interval:
    """How much faster ours is than TextBrewer in a setting."""
    name = rows_of(method)[0].title.split(":")[0]
    by_title = {row["title"]: row for row in part["rows"]}
    end = "ours, teacher outputs kept" if kept else "ours"
    ours, theirs = (by_title[f"{name}: {which}"] for which in (end, f"TextBrewer, {of}"))
    return ratio_interval(speeds(ours, part["tokens"]), speeds(theirs, part["tokens"]))


def savings(part: dict[str, Any]) -> str:
    """A line of what sharing and keeping save in a setting."""

    def seconds(title: str, which: str = "cpu") -> float:
        (row,) = (row for row in part["rows"] if row["title"] == title)
        return statistics.median(r[which] for r in row["rounds"])

    two, four = (f"{n} methods share the teacher's pass" for n in ("two", "four"))
    kept = seconds("four methods, teacher outputs kept")
    cells = [f"{part['task']}, {part['batch_size']}, {part['dtype']}"]
    alone = [seconds(f"{name}: ours") for name in ("vanilla KD", "hidden states")]
    share = seconds("vanilla KD: ours", "teacher") / alone[0]
    cells.append(f"{100 * share:.0f} %")
    cells.append(f"{100 * (1 - seconds(two) / sum(alone)):.0f} %")
    teacher = seconds(four, "teacher")
    each = seconds(four) + 3 * teacher  # as if each of the four had run it
    cells.append(f"{100 * (1 - seconds(four) / each):.0f} %")
    cells.append(
        f"{100 * (1 - seconds('vanilla KD: ours, teacher outputs kept') / alone[0]):.0f} %"
    )
    cells.append(f"{100 * (1 - kept / each):.0f} %")
    return f"| {' | '.join(cells)} |"


def verdicts(result: dict[str, Any]) -> str:
    """The bar, setting by setting."""
    fixed = f"padded to {FIXED_LENGTH} as in its examples"
    lines = [
        "| | vanilla KD | hidden states | vanilla KD, kept | hidden states, kept |",
        "|---|---|---|---|---|",
    ]
    for of in ("padded as ours", fixed):
        for part in result["settings"]:
            cells = []
            for kept in (False, True):
                for method in TWO:
                    found = ratio(part, method, of, kept)
                    word = "" if kept else (" met" if found.low >= BAR else " missed")
                    cells.append(f"{said(found, 2)}{word}")
            name = f"{part['task']}, {part['batch_size']}, {part['dtype']}"
            lines.append(f"| {name}; TextBrewer {of} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(result: dict[str, Any]) -> str:
    """Write the Markdown page."""
    sections = "\n\n".join(
        f"## {part['task']}, batches of {part['batch_size']}, {part['dtype']}\n\n{table(part)}"
        for part in result["settings"]
    )
    costs = "\n".join(
        f"| {name} | {cost['seconds']:.1f} s | {cost['tokens']} | {cost['bytes_of_outputs']} | "
        f"{cost['bytes_of_states']} |"
        for name, cost in result["keeping"].items()
    )
    same = result["same_gradients"]
    alike = "; ".join(
        f"{task} {', '.join(f'{method} {value:.0e}' for method, value in found.items())}"
        for task, found in same.items()
    )
    return f"""# Throughput of distillation for one task

TextBrewer 0.2.1 and ours: MiniLM (6 × 384) with a head as teacher, its first three layers as
student (dropout 0.1), {" and ".join(result["same_gradients"])}, on one thread of
{result["machine"]}. Figures are real tokens
of the training examples, padding not counted, a second of processor time, of all students of a row
together; medians of {result["rounds"]} rounds of {result["steps"]} steps in which rows take turns,
with 95 % bootstrap intervals; the last column is by the clock, which others on the machine disturb.
All rows see the same examples in the same batches, as our plan cuts them by length, evenly spaced
from short to long, and the same number format. Engine {result["engine_version"]}.

TextBrewer is used as documented: `GeneralDistiller`, gradients clipped to a norm of 1 in both,
AdamW with our rates and decay, no log, no checkpoint, no evaluation. Its loss of vanilla KD is the
cross entropy of the softened outputs, whose gradient is that of our KL; its hidden-state matching
here is its loss `pkd`, which is ours: squared distances of normalised [CLS] states of layers 1–2
and 2–4 beside the outputs, weighted by β. (Its other one, `hidden_mse`, compares all tokens and
takes longer.) Gradients of the same batch differ by this part of their norm: {alike}. Its bfloat16
is `torch.autocast`, which we put around its `train_on_batch`. Its examples for GLUE pad every text
to {FIXED_LENGTH} tokens (`max_length`); the rows "padded as ours" hand it our batches, padded to
their longest rounded up to a multiple of eight, which it does not do by itself.

## The bar: {BAR:g} × TextBrewer, teacher outputs not kept

{verdicts(result)}

It is met where the interval's lower end reaches the bar. Why it is not where it is not: with equal
padding and format most of a step is matrix products, and those of both run at the processor's
speed. TextBrewer multiplies for six layers of the teacher and, forward and backward, three of the
student: 6 + 3 · 3 = 15 layers' products. Of either network's last layer a head reads the first
token alone, which leaves a sixth of that layer, so that ours are 5⅙ + 3 · 2⅙ = 11⅔. Products alone
thus give 1.29 ×, and 2.31 × where the teacher's outputs are kept; what is more comes from all the
rest: padding that is not run, dropout, attention, word embeddings that no example reads, memory.

## What one pass of the teacher for several methods saves, and what keeping its outputs saves

| | its part of a step | two share it | four share it | kept, one | kept, four |
|---|---|---|---|---|---|
{chr(10).join(savings(part) for part in result["settings"])}

Processor time saved, of the time with a pass of the teacher for each method and batch. Keeping
costs one pass over all examples before the first step, whatever methods, seeds and epochs follow,
and memory:

| | the pass | real tokens | bytes an example: outputs | states, where needed |
|---|---|---|---|---|
{costs}

{sections}

Made with `python benchmarks/task_throughput.py --data-dir ./glue --output
docs/results/task_throughput {result["options"]}`.
"""


def request(task: str, data_dir: Path) -> TaskDistillationSpec:
    """The request that teacher and examples are made ready for."""
    return TaskDistillationSpec.read(
        {
            "task": task,
            "data_dir": str(data_dir / task),
            "teacher": dict(TEACHER),
            "student": STUDENT,
            "methods": FOUR,
            "cache": "always",
            "threads": 1,
        },
        "throughput",
    )


def main() -> None:
    """Run the benchmark and write its table and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of GLUE")
    parser.add_argument("--tasks", nargs="+", default=["RTE", "CoLA"])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=3, help="of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "machine": hardware_name("cpu").removeprefix("cpu:"),
        "engine_version": ENGINE_VERSION,
        "options": f"--tasks {' '.join(given.tasks)} --batch-sizes "
        f"{' '.join(map(str, given.batch_sizes))} --steps {given.steps} --rounds {given.rounds}",
        "steps": given.steps,
        "rounds": given.rounds,
        "same_gradients": {},
        "keeping": {},
        "settings": [],
    }
    for task in given.tasks:
        with quiet_transformers():
            ready = prepare_for_task(request(task, given.data_dir), Settings.from_environment())
        assert ready is not None  # nobody stops it
        first = ready.train.tokens.plan(given.batch_sizes[0], 0).batch_indices(0)
        result["same_gradients"][task] = compare_gradients(ready, first)
        for dtype in given.dtypes:
            result["keeping"][f"{task}, {dtype}"] = cost_of_keeping(ready, dtype)
            for batch_size in given.batch_sizes:
                setting = Setting(task, batch_size, dtype)
                result["settings"].append(measure(ready, setting, given.steps, given.rounds))
    publish(report(result), result, given.output)


if __name__ == "__main__":
    main()
