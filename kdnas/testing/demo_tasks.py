"""Distillations for one task as they look when all runs are done, on made-up numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kdnas.db.engine import Database
from kdnas.db.repository import jobs, task_distillations
from kdnas.evaluation.results import Prediction, TaskResult
from kdnas.evaluation.scoring.paired import write_predictions
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.registry import find_task
from kdnas.records import TaskFacts, TaskRun
from kdnas.specs.task_distillation import TaskDistillationSpec

TEACHER_LAYERS: Final = 12
STUDENT_LAYERS: Final = 3
EXAMPLES: Final = 277
GAINS: Final = {
    "none": 0.0,
    "vanilla-kd": 0.02,
    "pkd": 0.025,
    "universal-kd-il": 0.05,
    "universal-kd-weighted": 0.035,
}
"""How much more each method comes to than fine-tuning alone."""
WITHOUT_BETA: Final = ("none", "vanilla-kd")
"""Of these, those for which β counts for nothing."""


def task_facts(task: str = "RTE") -> TaskFacts:
    """What preparing has found out: a teacher of twelve layers, the lower ones of little use."""
    scores = [0.53 + 0.15 / (1 + math.exp(-(layer - 6))) for layer in range(1, TEACHER_LAYERS + 1)]
    return TaskFacts(
        task=task,
        kind="classification",
        metric="accuracy",
        labels=("entailment", "not_entailment"),
        examples={"train": 2241, "held-out": 249, "dev": EXAMPLES},
        data="made-up-data",
        teacher={
            "ref": "bert-base-uncased",
            "fingerprint": "made-up-teacher",
            "layers": TEACHER_LAYERS,
            "hidden": 768,
            "parameters": 109_483_778,
            "tuned": True,
            "held_out": 0.691,
            "main": 0.682,
            "metrics": {"dev": _metrics(task, 0.682)},
        },
        layers=tuple(
            {"layer": layer, "held_out": score + 0.006, "main": score}
            for layer, score in enumerate(scores, 1)
        ),
        student={
            "name": "first-layers:3",
            "kind": "transformer",
            "start": "the first 3 layers of the teacher",
            "fingerprint": "made-up-teacher",
            "layers": STUDENT_LAYERS,
            "hidden": 768,
            "parameters": 45_686_018,
            "trainable": 45_686_018,
            "assistant": None,
        },
        settings={
            "epochs": 20,
            "finetune_epochs": 10,
            "batch_size": 16,
            "learning_rate": 2e-5,
            "beta": 0.5,
            "max_steps": None,
        },
        warnings=("the student begins with the teacher's lowest layers",),
    )


def task_run(
    method: str, seed: int, *, task: str = "RTE", epochs: int = 8, samples: int = 12
) -> TaskRun:
    """What a run came to; methods named ``universal`` attend, the more the better a layer."""
    chance = random.Random(f"{method} {seed}")
    right = round((0.59 + GAINS.get(method, 0.01) + chance.gauss(0, 0.008)) * EXAMPLES)
    score = right / EXAMPLES
    stages = [(2, epochs)] if method == "none" else [(1, epochs), (2, epochs // 2 or 1)]
    curve: list[dict[str, Any]] = []
    for stage, length in stages:
        for epoch in range(1, length + 1):
            share = len(curve) / (sum(n for _, n in stages) - 1 or 1)
            curve.append(
                {
                    "stage": stage,
                    "epoch": epoch,
                    "step": 140 * (len(curve) + 1),
                    "loss": round(
                        (1.1 - 0.3 * stage) * math.exp(-share) + chance.gauss(0, 0.01), 4
                    ),
                    "held_out": round(
                        score - 0.06 * math.exp(-3 * share) + chance.gauss(0, 0.004), 4
                    ),
                }
            )
    best = max(curve, key=lambda one: one["held_out"])
    attends = method.startswith("universal")
    return TaskRun(
        method=method,
        seed=seed,
        main=score,
        metrics={"dev": _metrics(task, score)},
        held_out=round(best["held_out"], 4),
        chosen={
            "stage": best["stage"],
            "epoch": best["epoch"],
            "batch_size": 16,
            "learning_rate": 2e-5,
            "beta": None if method in WITHOUT_BETA else 0.5,
        },
        curve=tuple(curve),
        attention=tuple(
            {
                "epoch": epoch,
                "layers": list(range(1, STUDENT_LAYERS + 1)),
                "weights": [
                    _softmax(
                        [(layer - 6) * epoch / 12 * (one + 1) / STUDENT_LAYERS for layer in _T]
                    )
                    for one in range(STUDENT_LAYERS)
                ],
            }
            for epoch in range(1, epochs + 1)
        )
        if attends
        else (),
        samples=tuple(_sample(f"dev-{one}", chance) for one in range(samples)) if attends else (),
        steps=140 * len(curve),
        seconds=61.5 * len(curve),
    )


def _metrics(task: str, score: float) -> dict[str, float]:
    """By each metric of a task; by accuracy the score itself, by others somewhat more."""
    return {name: score + 0.1 * (name != "accuracy") for name in find_task(task).metrics}


_T: Final = range(1, TEACHER_LAYERS + 1)


def _sample(name: str, chance: random.Random) -> dict[str, Any]:
    """An example whose label the layers above a certain one say, and the weights they get."""
    known = chance.uniform(3, 9)
    far = (0.6 - 0.08 * (layer - known) + chance.gauss(0, 0.05) for layer in _T)
    distances = [round(min(1.0, max(0.0, one)), 4) for one in far]
    return {"id": name, "distances": distances, "weights": _softmax([-6 * d for d in distances])}


def _softmax(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [round(power / sum(powers), 4) for power in powers]


def add_task_distillation(
    database: Database,
    name: str,
    *,
    task: str = "RTE",
    seeds: int = 3,
    failed: str | None = None,
) -> str:
    """Write finished distillations by all of :data:`GAINS`; returns their id.

    Args:
        database: migrated.
        name: of the job.
        task: that they are for.
        seeds: of each method.
        failed: a method whose last seed has failed.
    """
    asked = TaskDistillationSpec.model_validate(
        {
            "name": name,
            "task": task,
            "teacher": "bert-base-uncased",
            "methods": tuple(GAINS),
            "seeds": seeds,
        }
    ).to_json()
    with database.write() as session:
        made = task_distillations.create_task_distillation(
            session, asked, name=name, owner_kind="service"
        )
        jobs.resolve(session, made.id, asked)
        task_distillations.set_task_facts(session, made.id, task_facts(task))
        jobs.set_status(session, made.id, "running")
        for method in GAINS:
            for seed in range(seeds):
                run = task_run(method, seed)
                if method == failed and seed == seeds - 1:
                    run = TaskRun(method, seed, error="the loss is no number at step 12")
                task_distillations.add_run(session, made.id, run)
        jobs.note_progress(session, made.id, seeds * len(GAINS), seeds * len(GAINS))
        jobs.set_status(session, made.id, "succeeded")
    return made.id


def result_of(run: TaskRun) -> TaskResult:
    """What a run said about each example, such that it comes to the run's score."""
    task = find_task("RTE")
    assert task.labels is not None
    right = round((run.main or 0.0) * EXAMPLES)
    order = random.Random(run.seed).sample(range(EXAMPLES), EXAMPLES)  # all methods err alike
    predictions = []
    for number, place in enumerate(order):
        truth = task.labels[number % 2]
        said = truth if place < right else task.labels[1 - number % 2]
        predictions.append(Prediction(f"dev-{number}", said, float(said == truth), truth))
    return TaskResult(
        task=task.name,
        suite=task.suite,
        seed=run.seed,
        settings=published_settings(task),
        metrics=run.metrics,
        main=right / EXAMPLES,
        seconds=run.seconds,
        steps=run.steps,
        train_examples=2241,
        official_split=True,
        predictions={"dev": tuple(predictions)},
    )


def keep_predictions(folder: Path, run: TaskRun) -> None:
    """Write what a run said about each example where runs keep it."""
    write_predictions(folder, result_of(run))
