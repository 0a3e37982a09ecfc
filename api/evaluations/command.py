"""An evaluation of the command line: every task with every seed, one by one or several at once.

Of several each goes in a process of a cluster, and a thread here looks after it: its lease, its
row, its progress. What is told to the caller is told in his own thread.
"""

from __future__ import annotations

import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

from api.evaluations.prepare import PlannedTask, PreparedEvaluation
from api.evaluations.run import Evaluator, FinishedPair, OnProgress, Ready
from api.jobs.files import (
    evaluation_checkpoints,
    folder_name,
    remove_abandoned_files,
    remove_evaluation_checkpoints,
)
from api.jobs.lease import held_lease
from kdnas.cpu import available_cores
from kdnas.db.engine import Database
from kdnas.db.models import Evaluation
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import evaluations
from kdnas.errors import ConflictError, RequestError, StoreError
from kdnas.evaluation.finetuning.run import KEPT_MODEL, finetune
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.finetuning.waiting import StoppedWaitingError, training_when_free
from kdnas.evaluation.results import TaskResult
from kdnas.settings import Settings

POLL_SECONDS = 0.2
GOODBYE_SECONDS = 10.0
"""So long workers may write checkpoints when somebody wants the end at once."""
WORTH_STEPS = 300
"""With fewer steps in all, a cluster takes longer to start than it saves."""

Which = Literal["best", "each"]
OnFinished = Callable[[FinishedPair], None]
Pair = tuple[PlannedTask, int]


@dataclass(frozen=True, slots=True)
class EvaluationOutcome:
    """How an evaluation ended.

    Attributes:
        finished: all pairs that have figures.
        stopped: whether pairs are left because this run was to stop.
    """

    finished: tuple[FinishedPair, ...]
    stopped: bool


def run_evaluation(
    prepared: PreparedEvaluation,
    database: Database,
    settings: Settings,
    jobs: int | None = 1,
    on_progress: OnProgress = lambda *_: None,
    on_finished: OnFinished = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> EvaluationOutcome:
    """Fine-tune and score a model on every planned task with every seed, several at a time.

    Args:
        prepared: model and tasks.
        database: where figures are stored, and looked up.
        settings: of this process; the cluster is the one that they name, else one of this machine.
        jobs: fine-tunings at a time; one is done in this process, without a cluster. None takes as
            many as there is room for.
        on_progress: is told how fine-tunings go.
        on_finished: is told the figures of each pair; first those that are known.
        should_stop: asked between steps; True ends all of them after a checkpoint.

    Raises:
        ConflictError: another process works on one of them.
        TaskDataError: data have changed meanwhile.
        KdnasError: a fine-tuning failed, and its row says why; finished ones are kept, and others
            that have written checkpoints are gone on with the next time.
    """
    remove_abandoned_files(settings)
    done: dict[tuple[str, int], FinishedPair] = {}

    def note(pair: FinishedPair) -> None:
        done[pair.result.task, pair.result.seed] = pair
        on_finished(pair)

    pairs = [(p, seed) for p in prepared.tasks for seed in p.seeds(prepared.spec.seeds)]
    todo = []
    for planned, seed in pairs:
        key = prepared.what_decides(planned, seed)[evaluations.KEY]
        find = partial(evaluations.find_finished, key=key, task=planned.task.name, seed=seed)
        found = database.ask(find)
        if found is None:
            todo.append((planned, seed))
        else:
            note(FinishedPair(found, TaskResult.from_json(found.metrics), known=True))
    trained = [pair for pair in todo if pair[0].task.fine_tuned]
    jobs = jobs or _room(prepared, settings, trained)
    evaluator = Evaluator(prepared, database, settings, on_progress, should_stop)
    if min(jobs, len(trained)) < 2:
        _one_by_one(evaluator, todo, note)
    else:
        _beside_each_other(evaluator, todo, jobs, note)
    order = [(planned.task.name, seed) for planned, seed in pairs]
    return EvaluationOutcome(
        tuple(done[key] for key in order if key in done), stopped=len(done) < len(order)
    )


def _room(prepared: PreparedEvaluation, settings: Settings, pairs: Sequence[Pair]) -> int:
    """Return for how many pairs there is room; Ray, which takes seconds, is loaded for several."""
    threads = prepared.spec.threads or 1
    lonely = prepared.device == "cpu" and available_cores() < 2 * threads
    short = sum(planned.steps for planned, _ in pairs) < WORTH_STEPS
    if len(pairs) < 2 or short or (settings.ray_address is None and lonely):
        return 1
    from workers.finetuning import room_for

    room = room_for(settings.ray_address, prepared.model, prepared.device, threads)
    return min(len(pairs), room)


def _one_by_one(evaluator: Evaluator, todo: Sequence[Pair], on_finished: OnFinished) -> None:
    """Do pairs in their order, in this process, until one was stopped."""
    for planned, pairs in groupby(todo, key=itemgetter(0)):
        ready = evaluator.made_ready(planned)
        for _, seed in pairs:
            pair = None if ready is None else evaluator.take_and_do(planned, seed, ready)
            if pair is None:
                return
            on_finished(pair)


def _beside_each_other(
    evaluator: Evaluator, todo: Sequence[Pair], jobs: int, on_finished: OnFinished
) -> None:
    """Do pairs in their order on a cluster, the next one as soon as one has ended."""
    from workers.cluster import cluster

    crew = _Crew(evaluator, jobs, on_finished)
    with cluster(evaluator.settings.ray_address):
        crew.work(todo)
    if crew.error is not None:
        raise crew.error


class _Crew:
    """Threads that look after a pair each.

    Attributes:
        error: the first one of any pair.
    """

    def __init__(self, evaluator: Evaluator, jobs: int, on_finished: OnFinished) -> None:
        self._evaluator, self._jobs, self._on_finished = evaluator, jobs, on_finished
        self._stopping = threading.Event()
        self._told: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.error: Exception | None = None

    def work(self, todo: Sequence[Pair]) -> None:
        """Do pairs until one was stopped or has failed, and see that nobody works after that."""
        try:
            for planned, pairs in groupby(todo, key=itemgetter(0)):
                self._wait(self._jobs - 1)
                ready = None if self._stopping.is_set() else self._made_ready(planned)
                for _, seed in pairs:
                    self._wait(self._jobs - 1)
                    if ready is not None and not self._stopping.is_set():
                        thread = threading.Thread(
                            target=self._look_after,
                            args=(planned, seed, ready),
                            name=f"seed-{seed}",
                            daemon=True,
                        )
                        self._threads.append(thread)
                        thread.start()
            self._wait(0)
        finally:
            self._stopping.set()
            deadline = time.monotonic() + GOODBYE_SECONDS
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, most: int) -> None:
        """Pass on what is told, and the wish to stop, until at most so many are at work."""
        at_work = most + 1
        while at_work > most:
            at_work = sum(thread.is_alive() for thread in self._threads)
            if self._evaluator.should_stop():
                self._stopping.set()
            while not self._told.empty():
                self._told.get()()
            if at_work > most:
                time.sleep(POLL_SECONDS)

    def _made_ready(self, planned: PlannedTask) -> Ready | None:
        """Read a task's data and try its grid, once for all of its seeds."""
        from workers.finetuning import finetune_on_cluster, handed_over, threads_each

        asked, stopping = self._evaluator.should_stop, self._stopping.is_set
        evaluator = replace(self._evaluator, should_stop=lambda: asked() or stopping())
        ready = evaluator.made_ready(planned)
        if ready is None:
            return None
        prepared, settings = evaluator.prepared, evaluator.settings
        address, device = settings.ray_address, prepared.device
        fine_tune = partial(
            finetune_on_cluster,
            handed_over(address, prepared.model, ready.data, settings.store_url),
            device=device,
            threads=prepared.spec.threads or threads_each(address, device, self._jobs),
        )
        return replace(ready, fine_tune=fine_tune)

    def _look_after(self, planned: PlannedTask, seed: int, ready: Ready) -> None:
        tell = self._evaluator.on_progress
        evaluator = replace(
            self._evaluator,
            on_progress=lambda *told: self._told.put(partial(tell, *told)),
            should_stop=self._stopping.is_set,
        )
        try:
            pair = evaluator.take_and_do(planned, seed, ready)
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error, pair = self.error or error, None
        if pair is None:
            self._stopping.set()
        else:
            self._told.put(partial(self._on_finished, pair))


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

    def tell(progress: FinetuneProgress) -> None:
        on_progress(planned, pair.result.seed, progress)

    with held_lease(database, Evaluation, pair.record.id, owner) as lost:

        def is_over() -> bool:
            return lost() or should_stop()

        try:
            with training_when_free(tell, is_over):
                done = finetune(
                    prepared.model,
                    prepared.unchanged_data(planned),
                    pair.result.settings,
                    pair.result.seed,
                    evaluation_checkpoints(settings, pair.record.id),
                    keep=_kept(pair, settings),
                    device=prepared.device,
                    threads=prepared.spec.threads,
                    on_progress=tell,
                    should_stop=is_over,
                )
        except StoppedWaitingError:
            return False
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
