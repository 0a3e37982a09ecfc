"""What is removed of evaluations that nobody goes on with."""

from __future__ import annotations

import os
import time
from pathlib import Path

from api.jobs.files import (
    ABANDONED_DAYS,
    evaluation_checkpoints,
    evaluation_folder,
    grid_folder,
    remove_abandoned_files,
)
from kdnas.evaluation.finetuning.run import KEPT_MODEL
from kdnas.settings import Settings


def touched(folder: Path, days_ago: float) -> Path:
    """A folder with a checkpoint in it, both of some days ago."""
    inner = folder / "checkpoint-5"
    inner.mkdir(parents=True)
    moment = time.time() - days_ago * 24 * 3600
    for path in (inner, folder):
        os.utime(path, (moment, moment))
    return folder


def test_files_that_nobody_went_on_with_are_removed(tmp_path: Path) -> None:
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    assert remove_abandoned_files(settings) == []
    old = touched(evaluation_checkpoints(settings, "old"), ABANDONED_DAYS + 1)
    young = touched(evaluation_checkpoints(settings, "young"), ABANDONED_DAYS - 1)
    at_work = touched(evaluation_checkpoints(settings, "at-work"), ABANDONED_DAYS + 1)
    (at_work / "checkpoint-6").mkdir()
    trials = touched(grid_folder(settings, "grid-1"), ABANDONED_DAYS + 1)
    teacher = touched(settings.task_teachers / "one" / "checkpoints", ABANDONED_DAYS + 1).parent
    taught = touched(settings.task_teachers / "two" / "checkpoints", ABANDONED_DAYS - 1).parent
    for folder in (teacher, taught):
        os.utime(folder, (time.time() - 90 * 24 * 3600,) * 2)
    (evaluation_folder(settings, "old") / "predictions.jsonl").touch()
    kept = touched(evaluation_folder(settings, "old") / KEPT_MODEL, ABANDONED_DAYS + 1)
    draft = touched(kept.with_name(f".{KEPT_MODEL}.draft"), ABANDONED_DAYS + 1)
    saved = touched(evaluation_folder(settings, "young") / KEPT_MODEL, ABANDONED_DAYS - 1)
    assert sorted(remove_abandoned_files(settings)) == sorted([old, trials, kept, draft, teacher])
    assert taught.is_dir()
    assert young.is_dir()
    assert saved.is_dir()
    assert at_work.is_dir()
    assert (evaluation_folder(settings, "old") / "predictions.jsonl").is_file()
