"""Fine-tuned models of an evaluation, put into a folder of the user's."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from api.evaluations.prepare import PlannedTask, PreparedEvaluation
from api.evaluations.run import FinishedPair, OnProgress
from api.jobs.files import evaluation_checkpoints, remove_evaluation_checkpoints
from api.jobs.lease import held_lease
from kdnas.db.engine import Database
from kdnas.db.models import Evaluation
from kdnas.db.queue.leases import LeaseOwner
from kdnas.errors import ConflictError, RequestError, StoreError
from kdnas.evaluation.finetuning.run import KEPT_MODEL, finetune
from kdnas.latency.device_lock import training_lock
from kdnas.settings import Settings

Which = Literal["best", "each"]


def check_saving(prepared: PreparedEvaluation, folder: Path) -> None:
    """Refuse, before any work, what could not be saved after it.

    Raises:
        RequestError: the model is scored in int8, or without fine-tuning.
        ConflictError: the folder cannot be made, or has something else in a model's place.
    """
    if prepared.spec.int8:
        raise RequestError(
            "a model in int8 has no Hugging Face folder; leave out --int8 to save the fine-tuned "
            "model, or leave out --save-models"
        )
    if not any(planned.task.fine_tuned for planned in prepared.tasks):
        raise RequestError(
            f"suite {prepared.spec.suite!r} trains nothing, so there is no model to save; leave "
            "out --save-models"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConflictError(
            f"folder {folder} cannot be made ({error.strerror}); name another with --save-models"
        ) from None


def save_models(
    prepared: PreparedEvaluation,
    finished: Sequence[FinishedPair],
    folder: Path,
    which: Which,
    database: Database,
    settings: Settings,
    on_progress: OnProgress = lambda *_: None,
    on_retrain: Callable[[FinishedPair], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[Path] | None:
    """Write the fine-tuned model of each task, one that was not kept after training it again.

    Args:
        prepared: the evaluation.
        finished: its pairs of task and seed.
        folder: gets a folder for each task, named by it; of each seed, by task and seed.
        which: the ``best`` seed of a task by its score, or ``each``.
        database: where the figures are stored.
        settings: of this process.
        on_progress: is told how a fine-tuning goes.
        on_retrain: is told of a pair whose figures are known, but whose model was not kept.
        should_stop: asked between steps.

    Returns:
        The folders, or None if it was stopped.

    Raises:
        ConflictError: another process works on one of the pairs.
        KdnasError: a fine-tuning failed, or a model cannot be written.
    """
    written = []
    for planned in (one for one in prepared.tasks if one.task.fine_tuned):
        pairs = [pair for pair in finished if pair.result.task == planned.task.name]
        if which == "best":
            pairs = sorted(pairs, key=lambda pair: -pair.result.main)[:1]
        for pair in pairs:
            kept = _kept(pair, settings)
            if not kept.is_dir():
                on_retrain(pair)
                if not _trained(
                    prepared, planned, pair, database, settings, on_progress, should_stop
                ):
                    return None
            seed = f"-seed{pair.result.seed}" if which == "each" else ""
            written.append(_moved(kept, folder / f"{folder_name(planned.task.name)}{seed}"))
    for pair in finished:
        shutil.rmtree(_kept(pair, settings), ignore_errors=True)
    return written


def _kept(pair: FinishedPair, settings: Settings) -> Path:
    return evaluation_checkpoints(settings, pair.record.id).with_name(KEPT_MODEL)


def folder_name(task: str) -> str:
    """Name a task's folder: ``SQuAD 2.0`` is ``SQuAD-2.0``."""
    return re.sub(r"[^\w.-]+", "-", task).strip("-.") or "task"


def _trained(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    pair: FinishedPair,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
) -> bool:
    """Do a fine-tuning again, to keep its model; False if it was stopped.

    The row has ended, and a coordinator removes checkpoints of those that nobody holds.
    """
    owner = LeaseOwner.of_this_process("cli")
    with held_lease(database, Evaluation, pair.record.id, owner) as lost, training_lock():
        done = finetune(
            prepared.model,
            prepared.unchanged_data(planned),
            pair.result.settings,
            pair.result.seed,
            evaluation_checkpoints(settings, pair.record.id),
            keep=_kept(pair, settings),
            device=prepared.device,
            threads=prepared.spec.threads,
            on_progress=lambda progress: on_progress(planned, pair.result.seed, progress),
            should_stop=lambda: lost.is_set() or should_stop(),
        )
        if done is not None:
            remove_evaluation_checkpoints(settings, pair.record.id)
    return done is not None


def _moved(kept: Path, target: Path) -> Path:
    """Move a model, over an older one of the same name; all of it or nothing."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(kept, draft)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    except OSError as error:
        raise StoreError(
            f"the fine-tuned model could not be written to {target} ({error.strerror or error}); "
            "free space there and run the same command again"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target
