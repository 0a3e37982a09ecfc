"""Where work keeps its files; loads no torch, since the service removes them as well."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from kdnas.distill.checkpoint import Checkpoints, absolute_place, place_below
from kdnas.evaluation.scoring.paired import PREDICTIONS_FILE
from kdnas.reach import ANYWHERE, Reach
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec

_OF_EVALUATIONS = ("*/checkpoints", "*/model", "*/.model.draft")
"""What evaluations would go on with: checkpoints, and models that were to be saved elsewhere."""

ABANDONED_DAYS = 30
"""So long files of an evaluation are kept that nobody goes on with."""


JOBS = "jobs"
"""Folder of what every job has, whatever its kind: in the home, and in the store."""


def job_folder(settings: Settings, job_id: str) -> Path:
    """Return where a job of any kind keeps what every job has, such as its log."""
    return settings.home / JOBS / job_id


def checkpoints_of(spec: DistillationSpec, settings: Settings, distillation_id: str) -> Checkpoints:
    """Return a distillation's checkpoints: where its spec keeps them, or under KDNAS_HOME."""
    place = spec.training.checkpoints
    if place:
        return Checkpoints(
            place_below(place, distillation_id), reach_of_checkpoints(place, settings)
        )
    return Checkpoints(str(run_folder(settings, distillation_id) / "checkpoints"))


def checkpoints_in_store(settings: Settings) -> str:
    """Return where runs on a cluster keep their checkpoints: all of its nodes reach the store."""
    return absolute_place(place_below(settings.store_url, "checkpoints"))


def reach_of_checkpoints(place: str, settings: Settings) -> Reach:
    """Say how checkpoints are opened: where they were asked for, or in a store of our own."""
    return ANYWHERE if place == checkpoints_in_store(settings) else settings.reach


def run_folder(settings: Settings, distillation_id: str) -> Path:
    """Return where a distillation keeps its files while it goes on."""
    return settings.home / "distillations" / distillation_id


def remove_run_files(spec: DistillationSpec, settings: Settings, distillation_id: str) -> None:
    """Remove checkpoints and events of a run that is over."""
    checkpoints_of(spec, settings, distillation_id).remove()
    shutil.rmtree(run_folder(settings, distillation_id), ignore_errors=True)


def output_folder(settings: Settings, spec: DistillationSpec, distillation_id: str) -> Path:
    """Return where the student goes: as asked, or a folder named by the run."""
    return Path(spec.output) if spec.output else settings.home / "students" / distillation_id


def evaluation_folder(settings: Settings, evaluation_id: str) -> Path:
    """Return where an evaluation keeps its checkpoints, and later its predictions."""
    return settings.home / "evaluations" / evaluation_id


def evaluation_checkpoints(settings: Settings, evaluation_id: str) -> Path:
    """Return where an evaluation keeps its checkpoints while it goes on."""
    return evaluation_folder(settings, evaluation_id) / "checkpoints"


def task_run_folder(settings: Settings, job_id: str, method: str, seed: int) -> Path:
    """Return where a run of distillations for a task keeps its files.

    While it goes on its checkpoints, later its predictions and its student.
    """
    return settings.home / "task-distillations" / job_id / f"{method}-seed{seed}"


def remove_unfinished_runs(settings: Settings, job_id: str) -> None:
    """Remove what runs of distillations for a task would have gone on with.

    Runs that are done have predictions, and keep their files.
    """
    for folder in (settings.home / "task-distillations" / job_id).glob("*/"):
        if not (folder / PREDICTIONS_FILE).is_file():
            shutil.rmtree(folder, ignore_errors=True)


def grid_folder(settings: Settings, key: str) -> Path:
    """Return where the trials of a grid keep their files while they go on."""
    return settings.home / "grids" / key


def remove_evaluation_checkpoints(settings: Settings, evaluation_id: str) -> None:
    """Remove what an evaluation that has ended would have gone on with."""
    shutil.rmtree(evaluation_checkpoints(settings, evaluation_id), ignore_errors=True)


def remove_abandoned_files(settings: Settings) -> list[Path]:
    """Remove what fine-tuning would go on with, if nobody has for ``ABANDONED_DAYS``.

    That is what evaluations and grids keep, and teachers of a task that are not done. Models go as
    well that were kept to be saved and never were. Whoever works on one writes there much more
    often: into the checkpoints of a fine-tuning, or among the files of a grid's trials. What is
    taken up later all the same begins anew.

    Returns:
        Folders that are gone.
    """
    oldest, removed = time.time() - ABANDONED_DAYS * 24 * 3600, []
    evaluations = settings.home / "evaluations"
    found = [folder for pattern in _OF_EVALUATIONS for folder in evaluations.glob(pattern)]
    shared = [*(settings.home / "grids").glob("*/"), *settings.task_teachers.glob("*/")]
    for folder in (*found, *shared):
        try:
            inner = [*folder.iterdir(), *folder.glob("checkpoints/*")]
            newest = max(path.stat().st_mtime for path in (folder, *inner))
        except FileNotFoundError:  # somebody else has just removed it
            continue
        if newest < oldest:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def folder_name(task: str) -> str:
    """Name a task's folder: ``SQuAD 2.0`` is ``SQuAD-2.0``."""
    return re.sub(r"[^\w.-]+", "-", task).strip("-.") or "task"
