"""Distillation for one task: every method on real files of GLUE, over seeds.

    python benchmarks/task_study.py run --data-dir ./glue --results task_specific_runs.jsonl

MiniLM teaches a student of three layers. Runs are done one by one and kept as they come, so that
the program may be ended at any moment and started again; several may run beside each other, each
with one thread, and share the work. Models and checkpoints lie in ``KDNAS_HOME``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from study_files import JsonLines

from kdnas import ENGINE_VERSION
from kdnas.latency.measure import hardware_name
from kdnas.settings import Settings
from kdnas.specs.task_distillation import METHODS, TaskDistillationSpec
from workers.task.ready import ReadyTask, TaskProgress, prepare_for_task
from workers.task.runs import do_run
from workers.task.scoring import FinishedTaskRun

TRANSFORMER_METHODS: Final = tuple(name for name in METHODS if name != "universal-kd-ca")
THREE: Final = ("none", "vanilla-kd", "universal-kd-il")
ACROSS: Final = ("none", "vanilla-kd", "universal-kd-ca")
TEACHER_RATE: Final = 5e-5
TEACHER_EPOCHS: Final[Mapping[str, int]] = {"RTE": 10, "CoLA": 5, "STS-B": 5, "SST-2": 3}
"""Of Trivedi et al.'s published grid the fastest rate; decided before the first run."""
FIRST_LAYERS, SAME_SIZE = "first-layers:3", "3,12,384,1536,gelu"
SENTENCES: Final = 4000
"""Of SST-2 that students of other kinds learn from."""


@dataclass(frozen=True)
class Part:
    """Runs that share a task, a teacher and a student.

    Attributes:
        name: of the part.
        task: name of the task.
        student: as requests name it.
        methods: each is a run a seed.
        seeds: how many.
        epochs: of the first stage.
        finetune_epochs: of the second.
        examples: how many are learned from; None takes all.
        options: of the request besides.
    """

    name: str
    task: str
    student: str
    methods: tuple[str, ...]
    seeds: int
    epochs: int
    finetune_epochs: int
    examples: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, data_dir: Path) -> TaskDistillationSpec:
        """The request."""
        return TaskDistillationSpec.read(
            {
                "task": self.task,
                "data_dir": str(data_dir),
                "teacher": {
                    "ref": "minilm",
                    "learning_rate": TEACHER_RATE,
                    "epochs": TEACHER_EPOCHS[self.task],
                },
                "student": self.student,
                "methods": self.methods,
                "seeds": self.seeds,
                "epochs": self.epochs,
                "finetune_epochs": self.finetune_epochs,
                "threads": 1,
                **self.options,
            },
            self.name,
        )


PARTS: Final = (
    Part("RTE", "RTE", FIRST_LAYERS, TRANSFORMER_METHODS, 5, 8, 4),
    Part("CoLA", "CoLA", FIRST_LAYERS, TRANSFORMER_METHODS, 3, 5, 3),
    Part("STS-B", "STS-B", FIRST_LAYERS, TRANSFORMER_METHODS, 3, 5, 3),
    Part("RTE-start", "RTE", SAME_SIZE, THREE, 5, 8, 4),
    Part("bilstm", "SST-2", "bilstm", ACROSS, 3, 4, 2, SENTENCES),
    Part("gated-cnn", "SST-2", "gated-cnn", ACROSS, 3, 4, 2, SENTENCES),
)


def task_folder(part: Part, data_dir: Path, scratch: Path) -> Path:
    """Return the folder with a part's data, cut to fewer examples where it learns from fewer."""
    source = data_dir / part.task
    if part.examples is None:
        return source
    folder = scratch / f"{part.task}-{part.examples}"
    if not (folder / "dev.tsv").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        lines = (source / "train.tsv").read_text("utf-8").splitlines(keepends=True)
        (folder / "train.tsv").write_text("".join(lines[: part.examples + 1]), "utf-8")
        (folder / "dev.tsv").write_bytes((source / "dev.tsv").read_bytes())
    return folder


def left(results: JsonLines, parts: tuple[Part, ...]) -> Iterator[tuple[Part, str, int]]:
    """Runs that are not done, seed by seed, so that what there is can be compared at any time."""
    for seed in range(max(part.seeds for part in parts)):
        for part in parts:
            if seed < part.seeds:
                for method in part.methods:
                    if not results.having(part=part.name, method=method, seed=seed):
                        yield part, method, seed


def row(part: Part, ready: ReadyTask, finished: FinishedTaskRun) -> dict[str, Any]:
    """What is kept of a run."""
    facts, run = ready.facts, finished.run
    return {
        "part": part.name,
        **run.to_json(),
        "task": facts.task,
        "metric": facts.metric,
        "teacher": {k: facts.teacher[k] for k in ("fingerprint", "main", "held_out")},
        "layers": list(facts.layers),
        "student": dict(facts.student),
        "settings": dict(facts.settings),
        "data": facts.data,
        "predictions": {
            name: [one.prediction for one in said]
            for name, said in finished.result.predictions.items()
        },
        "machine": hardware_name("cpu"),
        "engine_version": ENGINE_VERSION,
    }


def run(data_dir: Path, path: Path, parts: tuple[Part, ...], minutes: float) -> None:
    """Do what is left, until the time is over."""
    end = time.monotonic() + 60 * minutes
    settings = Settings.from_environment()
    work = settings.home / "task-study"
    work.mkdir(parents=True, exist_ok=True)
    ready: dict[str, ReadyTask] = {}

    def tell(progress: TaskProgress) -> None:
        if progress.done == progress.total:
            print(f"{time.strftime('%H:%M:%S')} {progress}", flush=True)

    def over() -> bool:
        return time.monotonic() > end

    while not over():
        for part, method, seed in left(JsonLines(path), parts):
            lock = FileLock(work / f"{part.name}-{method}-{seed}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                if JsonLines(path).having(part=part.name, method=method, seed=seed):
                    break
                if part.name not in ready:
                    found = prepare_for_task(
                        part.spec(task_folder(part, data_dir, work)), settings, tell, over
                    )
                    if found is None:
                        return
                    ready[part.name] = found
                folder = work / f"{part.name}-{method}-{seed}"
                finished = do_run(ready[part.name], method, seed, folder, tell, over)
                if finished is None:
                    return
                with FileLock(work / "results.lock"):
                    JsonLines(path).add(row(part, ready[part.name], finished))
                print(part.name, method, seed, finished.run.main, finished.run.seconds, flush=True)
            finally:
                lock.release()
            break
        else:
            return


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doing = commands.add_parser("run", help="do what is left")
    doing.add_argument("--data-dir", type=Path, required=True, help="folder of GLUE")
    doing.add_argument("--results", type=Path, required=True)
    doing.add_argument("--parts", default=",".join(part.name for part in PARTS))
    doing.add_argument("--minutes", type=float, default=10_000.0, help="end in good order then")
    given = parser.parse_args()
    named = given.parts.split(",")
    run(
        given.data_dir,
        given.results,
        tuple(part for part in PARTS if part.name in named),
        given.minutes,
    )


if __name__ == "__main__":
    main()
