"""What came of distillations for a task, method by method, with published rows beside.

Plain data for REST, the command line and the page; loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import inf, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from api.jobs.files import task_run_folder
from kdnas.db.engine import Session
from kdnas.db.repository import task_distillations
from kdnas.evaluation.reports.published import published
from kdnas.evaluation.reports.report import PUBLISHED_NAMES, Cell
from kdnas.evaluation.scoring.paired import (
    PREDICTIONS_FILE,
    Files,
    Kept,
    compare,
    interval_over_examples,
)
from kdnas.evaluation.tasks.task import CORRELATIONS, METRIC_NAMES
from kdnas.records import TaskFacts, TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.taskspecific.grid import GRID_SEED

AGAINST: Final = "vanilla-kd"
"""The method that the others are compared with."""

PAPER: Final = "wu2021"

STUDENT: Final = "model"
"""Folder of a run's student, beside its predictions."""

OURS: Final[Mapping[str, str]] = {
    "no distillation": "none",
    "no further distillation": "none",
    "vanilla KD": "vanilla-kd",
    "PKD": "pkd",
    "MHKD": "mhkd",
    "ALP-KD": "alp-kd",
    "TAKD": "takd",
    "DIH": "dih",
    "Annealing-KD": "annealing-kd",
    "Universal-KD (IL)": "universal-kd-il",
    "Universal-KD (CG)": "universal-kd-cg",
    "Universal-KD (CA)": "universal-kd-ca",
    "Universal-KD▲ (weighted losses)": "universal-kd-weighted",
}
"""What the paper calls a method → our name of it."""


def task_report(session: Session, settings: Settings, reference: str) -> dict[str, Any]:
    """Sum up what the runs have come to so far, as plain JSON.

    It is an :class:`~api.task_distillations.schemas.TaskReport`; scores are fractions. Intervals of
    a mean are those of Student's t over the seeds, of a single seed of a bootstrap over the
    examples; those of a difference of a paired bootstrap over the examples. What is drawn of
    examples needs predictions on this machine.

    Args:
        session: of any transaction.
        settings: of this process, whose home has the files.
        reference: id or name of the job.

    Raises:
        NotFoundError: there is no such job.
    """
    record = task_distillations.get_task_distillation(session, reference)
    facts = task_distillations.task_facts(session, record.id)
    spec = TaskDistillationSpec.read(dict(record.spec), record.name)
    runs: dict[str, list[TaskRun]] = {}
    for run in task_distillations.task_runs(session, record.id):
        runs.setdefault(run.method, []).append(run)
    folders = {
        (run.method, run.seed): task_run_folder(settings, record.id, run.method, run.seed)
        for found in runs.values()
        for run in found
    }
    files = {
        method: _files(facts, [run for run in found if run.error is None], folders)
        for method, found in runs.items()
    }
    rows = [
        _row(method, spec, facts, runs.get(method, []), files, folders) for method in spec.methods
    ]
    teacher = {} if facts is None else facts.teacher
    return {
        "id": record.id,
        "name": record.name,
        "status": record.status,
        "task": spec.task if facts is None else facts.task,
        "metric": None if facts is None else facts.metric,
        "student": spec.student,
        "teacher": spec.teacher.ref,
        "teacher_score": teacher.get("main"),
        "teacher_held_out": teacher.get("held_out"),
        "rows": rows,
        "against": AGAINST if AGAINST in spec.methods else None,
        "published": [] if facts is None or spec.own is not None else _published(facts),
        "notes": list(_notes(spec, facts, rows)),
    }


def best_run(runs: Sequence[TaskRun]) -> TaskRun | None:
    """Return the run with the best held-out score, of equal ones the first; None if all failed."""
    succeeded = [run for run in runs if run.error is None]
    return max(succeeded, key=_held_out, default=None)


def interval(values: Sequence[float], metric: str | None = None) -> tuple[float, float] | None:
    """Ends of the 95 % interval of a mean by Student's t; None of fewer than two values.

    Args:
        values: scores.
        metric: whose they are; the ends are then such as its scores can be.
    """
    cell = Cell.of(values) if len(values) > 1 else None
    if cell is None or cell.deviation is None:
        return None
    from scipy.special import stdtrit  # takes half a second to load

    reach = float(stdtrit(len(values) - 1, 0.975)) * cell.deviation / sqrt(len(values))
    low, high = cell.mean - reach, cell.mean + reach
    return (low, high) if metric is None else (max(low, _lowest(metric)), min(high, 1.0))


def _lowest(metric: str) -> float:
    """The lowest score by a metric; R² has none, since what is worse than the mean has no end."""
    if metric == "r2":
        return -inf
    return -1.0 if metric in CORRELATIONS else 0.0


def _held_out(run: TaskRun) -> float:
    return -inf if run.held_out is None else run.held_out


def _row(
    method: str,
    spec: TaskDistillationSpec,
    facts: TaskFacts | None,
    runs: Sequence[TaskRun],
    files: Mapping[str, Files],
    folders: Mapping[tuple[str, int], Path],
) -> dict[str, Any]:
    mains = [run.main for run in runs if run.main is not None]
    held_out = [run.held_out for run in runs if run.held_out is not None]
    mean = fmean(mains) if mains else None
    low, high, over = None, None, None
    if facts is not None and (ends := interval(mains, facts.metric)):
        (low, high), over = ends, "seeds"
    elif facts is not None and (ends := interval_over_examples(files.get(method, {}), facts.task)):
        (low, high), over = ends, "examples"
    best = best_run(runs)
    student = None if best is None else folders[method, best.seed] / STUDENT
    above = facts.teacher.get("main") if facts is not None else None
    compared = None
    if method != AGAINST and facts is not None:
        compared = compare(files.get(method, {}), files.get(AGAINST, {})).get(facts.task)
    return {
        "method": method,
        "planned": len(spec.seeds),
        "num_succeeded": sum(run.error is None for run in runs),
        "num_failed": sum(run.error is not None for run in runs),
        "mean": mean,
        "deviation": Cell.of(mains).deviation if mains else None,
        "low": low,
        "high": high,
        "over": over,
        "held_out": fmean(held_out) if held_out else None,
        "retained": mean / above if mean is not None and above is not None and above > 0 else None,
        "best_seed": None if best is None else best.seed,
        "student": str(student) if student is not None and student.is_dir() else None,
        "against": None if compared is None else asdict(compared),
        "seeds": [
            {
                "seed": run.seed,
                "main": run.main,
                "held_out": run.held_out,
                "chosen": dict(run.chosen),
                "steps": run.steps,
                "seconds": run.seconds,
                "error": run.error,
            }
            for run in runs
        ],
    }


def _files(
    facts: TaskFacts | None, runs: Sequence[TaskRun], folders: Mapping[tuple[str, int], Path]
) -> Files:
    """Predictions of a method that lie on this machine."""
    if facts is None:
        return {}
    places = {run.seed: folders[run.method, run.seed] / PREDICTIONS_FILE for run in runs}
    return {
        (facts.task, run.seed): _kept(places[run.seed], run, facts.metric)
        for run in runs
        if run.main is not None and places[run.seed].is_file()
    }


def _kept(path: Path, run: TaskRun, metric: str) -> Kept:
    """A file of predictions; the score is that of the first evaluation set, or the mean of all."""
    first = tuple(run.metrics)[:1]
    of_first = bool(first) and run.metrics[first[0]].get(metric) == run.main
    return Kept(path, run.main or 0.0, metric, first if of_first else tuple(run.metrics))


def _published(facts: TaskFacts) -> list[dict[str, Any]]:
    """Rows of the paper's tables with a score on the task by the metric that counts here."""
    rows = []
    for result in published(paper=PAPER):
        scores = map(result.score, PUBLISHED_NAMES.get(facts.task, (facts.task,)))
        score = next(filter(None, scores), None)
        if score is not None and score.metric in (None, METRIC_NAMES[facts.metric]):
            rows.append(
                {
                    "table": result.table,
                    "about": result.about,
                    "split": result.split,
                    "model": result.model,
                    "teacher": result.teacher,
                    "method": result.method,
                    "ours": OURS.get(result.method),
                    "metric": score.metric,
                    "score": round(score.value / 100, 6),
                }
            )
    return rows


def _notes(
    spec: TaskDistillationSpec, facts: TaskFacts | None, rows: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What a reader of the figures should know, a sentence each."""
    if facts is not None:
        yield from facts.warnings
    for row in rows:
        for seed in row["seeds"]:
            if seed["error"] is not None:
                yield f"{row['method']} with seed {seed['seed']} failed: {seed['error']}"
    if any(row["over"] == "examples" for row in rows):
        yield (
            "intervals of a single seed are over other examples; how other seeds would turn out "
            "takes more of them"
        )
    if any(row["against"] and row["num_succeeded"] > 1 for row in rows):
        yield (
            "intervals and p of differences go by other examples, not by other seeds, which may "
            "differ by more"
        )
    if spec.grid is not None and GRID_SEED in spec.seeds and len(spec.seeds) > 1:
        yield (
            f"the run with seed {GRID_SEED} is the trial that a grid chose by its held-out score, "
            "so that this score and means with it are too good"
        )
    left = sum(row["planned"] - row["num_succeeded"] - row["num_failed"] for row in rows)
    if left:
        yield f"{left} of {len(spec.methods) * len(spec.seeds)} runs are not done yet"
    if len(spec.methods) > 1 and AGAINST not in spec.methods:
        yield f"{AGAINST} is not among the methods, so none is compared with it"
