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
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from study_files import publish
from task_throughput_ours import Ours, cost_of_keeping, teacher_in
from task_throughput_page import report
from task_throughput_rows import FOUR, ROWS, TWO, Round, Row, Setting
from task_throughput_textbrewer import Peer, asked, serve

from kdnas import ENGINE_VERSION
from kdnas.latency.measure import hardware_name
from kdnas.models.teacher import quiet_transformers
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.examples import Examples, Indices
from workers.task.ready import ReadyTask, prepare_for_task

STUDENT: Final = "first-layers:3"
TEACHER: Final = {"ref": "minilm", "epochs": 0.05}
"""Fine-tuned for a moment only: speed does not depend on the weights."""


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
