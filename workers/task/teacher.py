"""The teacher of a task: given with a head that has learned it, or fine-tuned here, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from kdnas.errors import TeacherError
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.identity import data_fingerprint, evaluation_key
from kdnas.evaluation.finetuning.run import finetune
from kdnas.evaluation.finetuning.saving import SavedTask
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.settings import FinetuneSettings, published_settings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.evaluation.untrained.own_head import only_numbered, simple_name
from kdnas.models.heads import SEVERAL_LABELS, kind_of_head
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.specs.task_distillation import TaskTeacherSpec
from kdnas.store import MADE_OF, Store

KIND = "task-teacher"
"""Kind of teachers that were fine-tuned for a task, in the store."""
HEAD = "ForSequenceClassification"
"""End of the name of an architecture that answers classifications and regressions."""
OF_FINE_TUNING = ("learning_rate", "epochs", "batch_size", "max_steps")
"""Entries of a request that say how a teacher is fine-tuned."""
FINE_TUNED_FIRST = (
    "an encoder without a head, which is fine-tuned first, or have this one fine-tuned by "
    "`teacher.fine_tune: always`"
)
WAIT_SECONDS = 0.5
"""Between looks at whether somebody who waits for another process is to stop."""


def has_head(handle: TeacherHandle) -> bool:
    """Whether a model has a head for classifications or regressions."""
    names = handle.config.architectures or ()
    return any(name.endswith(HEAD) for name in names)


def in_order_of_head(handle: TeacherHandle, data: TaskData, saved: SavedTask | None) -> TaskData:
    """Return the data with labels in the order of a teacher's head.

    Args:
        handle: the teacher.
        data: of the task.
        saved: what the folder that was named says of its fine-tuning.

    Raises:
        TeacherError: the head is of another task: it has other labels, or another number of them.
    """
    task, labels = data.task, data.labels or ()
    if saved is not None and saved.task != task.name:
        raise TeacherError(
            f"teacher {handle.ref!r} was fine-tuned on {saved.task}, not on {task.name}; give one "
            f"that has learned {task.name}, or {FINE_TUNED_FIRST}"
        )
    config: Any = handle.config
    if kind_of_head(config) == "multilabel":
        raise TeacherError(
            f"teacher {handle.ref!r} has a head whose outputs each say yes or no for themselves "
            f"({SEVERAL_LABELS}), and an example of {task.name} has one answer; give a teacher "
            f"that has learned {task.name}, or {FINE_TUNED_FIRST}"
        )
    wanted = len(labels) or 1
    if config.num_labels != wanted:
        asked = f"{wanted} labels ({_listed(labels)})" if labels else "one number"
        raise TeacherError(
            f"teacher {handle.ref!r} has a head of {config.num_labels} outputs, and {task.name} "
            f"has {asked}; give a teacher that has learned {task.name}, or {FINE_TUNED_FIRST}"
        )
    if not labels:
        return data
    names = tuple(str(config.id2label[i]) for i in range(wanted))
    if set(names) == set(labels):
        return replace(data, labels=names)
    known = {simple_name(label): label for label in labels}
    if {simple_name(name) for name in names} == known.keys() and len(known) == wanted:
        return replace(data, labels=tuple(known[simple_name(name)] for name in names))
    if names == tuple(f"LABEL_{i}" for i in range(wanted)):
        return replace(data, notes=(*data.notes, only_numbered(names, labels)))
    raise TeacherError(
        f"teacher {handle.ref!r} has a head for the labels {_listed(names)}, and {task.name} has "
        f"{_listed(labels)}; give a teacher that has learned {task.name}, or {FINE_TUNED_FIRST}"
    )


def _listed(labels: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def settings_of(
    spec: TaskTeacherSpec, data: TaskData, max_length: int, dtype: Literal["float32", "bfloat16"]
) -> FinetuneSettings:
    """Return how a teacher is fine-tuned: as published for the task, unless told otherwise."""
    wanted = {name: value for name in OF_FINE_TUNING if (value := getattr(spec, name)) is not None}
    return replace(published_settings(data.task), **wanted, max_length=max_length, dtype=dtype)


def tuned_teacher(
    origin: TeacherHandle,
    data: TaskData,
    settings: FinetuneSettings,
    seed: int,
    store: Store,
    work: Path,
    *,
    device: str,
    threads: int | None,
    on_progress: Callable[[FinetuneProgress], None],
    should_stop: Callable[[], bool],
) -> TeacherHandle | None:
    """Return a teacher fine-tuned for a task: from the store, or by fine-tuning it now.

    What epochs of students are chosen by is kept from it, too. Who wants the same teacher at the
    same time waits for the first.

    Args:
        origin: the encoder.
        data: of the task.
        settings: of the fine-tuning.
        seed: of it.
        store: where it is kept.
        work: folder for checkpoints, the same each time.
        device: ``cpu`` or ``cuda``.
        threads: intra-op threads on a CPU.
        on_progress: is told how it goes.
        should_stop: asked between steps.

    Returns:
        None if it was stopped, after a checkpoint, or while another process was at it.

    Raises:
        TaskDataError, TrainingError, StoreError, TeacherError: see ``finetune``.
    """
    tuning = for_tuning(data)
    learned = replace(data, train=tuning.train, evaluations=tuning.evaluations)
    key = evaluation_key(
        origin.fingerprint, data.task.name, data_fingerprint(learned), settings, seed, KIND
    )
    known = store.recall(KIND, key)
    if known is None:
        folder = work / key
        folder.mkdir(parents=True, exist_ok=True)
        with _turn(work / f".{key}.lock", on_progress, should_stop) as is_ours:
            if not is_ours:
                return None
            known = store.recall(KIND, key)
            if known is None:
                kept = folder / "model"
                result = finetune(
                    origin,
                    learned,
                    settings,
                    seed,
                    folder / "checkpoints",
                    device=device,
                    threads=threads,
                    keep=kept,
                    on_progress=on_progress,
                    should_stop=should_stop,
                )
                if result is None:
                    return None
                known = _stored(kept, origin, data, store)
                store.remember(KIND, key, known)
        shutil.rmtree(folder, ignore_errors=True)
    made = prepare_teacher(str(store.fetch(KIND, known)))
    return replace(made, ref=f"{origin.ref} fine-tuned on {data.task.name}")


@contextmanager
def _turn(
    lock: Path, on_progress: Callable[[FinetuneProgress], None], should_stop: Callable[[], bool]
) -> Iterator[bool]:
    """Hold a lock for the time of a ``with`` block; False where it was to stop before."""
    held = FileLock(lock)
    while not _taken(held):
        if should_stop():
            yield False
            return
        on_progress(FinetuneProgress("another process is at it", 0, 1, waits=True))
    try:
        yield True
    finally:
        held.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        return False
    return True


def _stored(folder: Path, origin: TeacherHandle, data: TaskData, store: Store) -> str:
    name = prepare_teacher(str(folder)).fingerprint
    if not store.has(KIND, name):
        with store.create(KIND) as draft:
            shutil.copytree(folder, draft.folder, dirs_exist_ok=True)
            about = {"ref": origin.ref, "task": data.task.name}
            draft.publish(name, {**about, MADE_OF: [origin.fingerprint]})
    return name
