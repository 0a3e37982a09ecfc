"""Distillation for one task: every method on real files of GLUE, over seeds.

    python benchmarks/task_study.py run --data-dir ./glue --results task_specific_runs.jsonl

MiniLM teaches a student of three layers. Runs are done one by one and kept as they come, so that
the program may be ended at any moment and started again; several may run beside each other, each
with one thread, and share the work. Models and checkpoints lie in ``KDNAS_HOME``. Of a part with a
grid its trials are done first, and then a run a seed with the best of them. On a machine without
that folder teachers are fine-tuned anew: ``moved --results …`` leaves out what others had begun.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from study_files import JsonLines

from kdnas import ENGINE_VERSION
from kdnas.artefact import write_atomically
from kdnas.errors import TrainingError
from kdnas.latency.measure import hardware_name
from kdnas.settings import Settings
from kdnas.specs.task_distillation import METHODS, TaskDistillationSpec, TaskGridSpec
from kdnas.taskspecific.grid import GRID_SEED, TaskPoint, TaskTrial, best_task_trial, task_points
from kdnas.taskspecific.methods.registry import method_named
from workers.task.ready import OnProgress, ReadyTask, ShouldStop, TaskProgress, prepare_for_task
from workers.task.runs import do_run, let_go, try_out
from workers.task.scoring import FinishedTaskRun

TRANSFORMER_METHODS: Final = tuple(name for name in METHODS if name != "universal-kd-ca")
THREE: Final = ("none", "vanilla-kd", "universal-kd-il")
ACROSS: Final = ("none", "vanilla-kd", "universal-kd-ca")
READING: Final = ("mhkd", "dih", "universal-kd-il", "universal-kd-cg", "universal-kd-weighted")
"""The methods that read the teacher's pseudo-classifiers."""
TEACHER_RATE: Final = 5e-5
TEACHER_EPOCHS: Final[Mapping[str, int]] = {"RTE": 10, "CoLA": 5, "STS-B": 5, "SST-2": 3}
"""Of Trivedi et al.'s published grid the fastest rate; decided before the first run."""
FIRST_LAYERS, SAME_SIZE = "first-layers:3", "3,12,384,1536,gelu"
SENTENCES: Final = 4000
"""Lines of SST-2, mostly phrases, that students of other kinds, and their teacher, are given."""


GRID: Final[Mapping[str, Any]] = {"grid": {}}
"""All points of the published one (App. A)."""


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
        examples: how many are taken, of which a tenth is held out; None takes all.
        options: of the request besides.
        states: what the teacher's pseudo-classifiers learn from.
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
    states: str = "raw"

    def points(self, method: str) -> tuple[TaskPoint, ...]:
        """What its grid tries; nothing where it has none."""
        if "grid" not in self.options:
            return ()
        grid = TaskGridSpec.model_validate(self.options["grid"])
        return task_points(grid, uses_beta=method_named(method).uses_beta)

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
                    "warmup_states": self.states,
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
    Part("STS-B-standardised", "STS-B", FIRST_LAYERS, READING, 1, 5, 3, states="standardised"),
    Part("RTE-start", "RTE", SAME_SIZE, THREE, 5, 8, 4),
    Part("RTE-grid", "RTE", FIRST_LAYERS, ("vanilla-kd", "universal-kd-il"), 5, 8, 4, None, GRID),
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


@dataclass(frozen=True)
class Piece:
    """What is done at once: a run, or a trial of a grid.

    Attributes:
        part: of the study.
        method: by which the student learns.
        seed: of the run.
        point: that is tried, or that a grid has chosen.
        tries: whether it is a trial.
    """

    part: Part
    method: str
    seed: int
    point: TaskPoint | None = None
    tries: bool = False

    @property
    def name(self) -> str:
        """Of its lock, and of its folder; the run of the best trial goes on with that one's."""
        goes_on = self.point is not None and self.seed == GRID_SEED
        what = self.point.as_file_name if self.point and goes_on else str(self.seed)
        return f"{self.part.name}-{self.method}-{what}"


def trials_of(results: JsonLines, part: Part, method: str) -> dict[TaskPoint, TaskTrial]:
    """Trials of a method's grid that have ended."""
    rows = results.having(part=part.name, method=method, tries=True)
    trials = [TaskTrial.from_json(row["trial"]) for row in rows]
    return {trial.point: trial for trial in trials}


def best_point(method: str, known: Mapping[TaskPoint, TaskTrial]) -> TaskPoint | None:
    """The best of a grid's trials; None where all of them diverged."""
    if all(trial.ending != "finished" for trial in known.values()):
        return None
    return best_task_trial(method, known.values()).point


def left(results: JsonLines, parts: tuple[Part, ...]) -> Iterator[Piece]:
    """What is not done, seed by seed, so that what there is can be compared at any time.

    Runs that wait for trials are left out until these have ended, and those of a grid whose trials
    have all diverged.
    """
    for seed in range(max(part.seeds for part in parts)):
        for part in parts:
            for method in part.methods if seed < part.seeds else ():
                point = None
                if part.points(method):
                    known = trials_of(results, part, method)
                    missing = [one for one in part.points(method) if one not in known]
                    if missing:
                        if seed == GRID_SEED:
                            yield from (Piece(part, method, seed, one, True) for one in missing)
                        continue
                    point = best_point(method, known)
                    if point is None:
                        continue
                if not results.having(part=part.name, method=method, seed=seed, tries=None):
                    yield Piece(part, method, seed, point)


def awaited(results: JsonLines, part: Part) -> set[str]:
    """The methods of a part that have runs: not those of whose grid every trial diverged."""

    def diverged(method: str) -> bool:
        points, known = part.points(method), trials_of(results, part, method)
        return bool(points) and len(known) == len(points) and best_point(method, known) is None

    return {method for method in part.methods if not diverged(method)}


def whole(results: JsonLines, parts: tuple[Part, ...]) -> tuple[list[Any], list[Any]]:
    """Leave out runs of seeds, and trials of grids, that were begun and are not whole.

    Methods are compared seed by seed, so that all of a seed must have learned from one teacher.

    Returns:
        The results that stay, and those that do not.
    """
    kept, left_out = [], []
    for row in results.rows:
        part = next(one for one in parts if one.name == row["part"])
        if row.get("tries"):
            known = trials_of(results, part, row["method"])
            stays = len(known) == len(part.points(row["method"]))
        else:
            of_seed = results.having(part=part.name, seed=row["seed"], tries=None)
            stays = {one["method"] for one in of_seed} >= awaited(results, part)
        (kept if stays else left_out).append(row)
    return kept, left_out


def is_done(results: JsonLines, piece: Piece) -> bool:
    """Whether somebody has done it meanwhile."""
    if piece.tries:
        return piece.point in trials_of(results, piece.part, piece.method)
    of = {"part": piece.part.name, "method": piece.method, "seed": piece.seed}
    return bool(results.having(**of, tries=None))


def do(
    piece: Piece, ready: ReadyTask, work: Path, tell: OnProgress, over: ShouldStop
) -> dict[str, Any] | None:
    """Do a piece; returns what is kept of it, or None if the time was over."""
    folder, hyper = work / piece.name, ready.checked.hyper
    if piece.point is not None:
        hyper = piece.point.applied_to(hyper)
    if not piece.tries:
        try:
            finished = do_run(ready, piece.method, piece.seed, folder, tell, over, hyper)
        except TrainingError as error:
            return {**about(piece, ready), "seed": piece.seed, "error": str(error)}
        return None if finished is None else row(piece, ready, finished)
    assert piece.point is not None
    try:
        run = try_out(ready, piece.method, folder, tell, over, hyper=hyper)
    except TrainingError:
        trial = TaskTrial(piece.point, "diverged", None)
    else:
        if run is None:
            return None
        assert run.best is not None
        curve = tuple(epoch["held_out"] for epoch in run.curve)
        trial = TaskTrial(piece.point, "finished", run.best.score, curve)
    return {**about(piece, ready), "tries": True, "trial": trial.to_json()}


def about(piece: Piece, ready: ReadyTask) -> dict[str, Any]:
    """What is kept of every piece, whatever has come of it."""
    return {
        "part": piece.part.name,
        "method": piece.method,
        "metric": ready.facts.metric,
        "teacher": {"fingerprint": ready.model.fingerprint},
        "machine": hardware_name("cpu"),
        "engine_version": ENGINE_VERSION,
    }


def tidy(results: JsonLines, piece: Piece, work: Path) -> None:
    """Remove what trials have left, but for the best of them so far."""
    known = trials_of(results, piece.part, piece.method)
    best = best_point(piece.method, known)
    for point in known:
        if point != best:
            name = Piece(piece.part, piece.method, GRID_SEED, point, True).name
            shutil.rmtree(work / name, ignore_errors=True)


def row(piece: Piece, ready: ReadyTask, finished: FinishedTaskRun) -> dict[str, Any]:
    """What is kept of a run."""
    facts, run = ready.facts, finished.run
    return {
        **about(piece, ready),
        **run.to_json(),
        "task": facts.task,
        "teacher": {k: facts.teacher[k] for k in ("fingerprint", "main", "held_out")},
        "layers": list(facts.layers),
        "student": dict(facts.student),
        "settings": dict(facts.settings),
        "data": facts.data,
        "predictions": {
            name: [one.prediction for one in said]
            for name, said in finished.result.predictions.items()
        },
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
        for piece in left(JsonLines(path), parts):
            part = piece.part
            lock = FileLock(work / f"{piece.name}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                if is_done(JsonLines(path), piece):
                    break
                if part.name not in ready:
                    found = prepare_for_task(
                        part.spec(task_folder(part, data_dir, work)), settings, tell, over
                    )
                    if found is None:
                        return
                    ready[part.name] = found
                kept = do(piece, ready[part.name], work, tell, over)
                if kept is None:
                    return
                with FileLock(work / "results.lock"):
                    results = JsonLines(path)
                    results.add(kept)
                if piece.tries:
                    tidy(results, piece, work)
                else:
                    let_go(work / piece.name)
                said = kept["trial"]["held_out"] if piece.tries else kept.get("main", "diverged")
                print(f"{time.strftime('%H:%M:%S')} {piece.name}: {said}", flush=True)
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
    moving = commands.add_parser("moved", help="leave out seeds that are not whole")
    moving.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "moved":
        kept, left_out = whole(JsonLines(given.results), PARTS)
        write_atomically(given.results, "".join(f"{json.dumps(row)}\n" for row in kept).encode())
        print(
            f"{len(left_out)} of {len(kept) + len(left_out)} results left out: their seeds are not "
            f"whole ({dict(Counter(row['part'] for row in left_out))})"
        )
        return
    named = given.parts.split(",")
    run(
        given.data_dir,
        given.results,
        tuple(part for part in PARTS if part.name in named),
        given.minutes,
    )


if __name__ == "__main__":
    main()
