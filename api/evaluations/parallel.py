"""An evaluation with several fine-tunings beside each other, each in a process of a cluster.

A thread here looks after each pair of task and seed: its lease, its row, its progress. What is told
to the caller is told in his own thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from api.evaluations.prepare import PlannedTask, PreparedEvaluation
from api.evaluations.run import (
    EvaluationOutcome,
    FineTune,
    FinishedPair,
    OnProgress,
    evaluate_pair,
    find_pair,
    hyper_parameters,
    run_evaluation,
    stopped_status,
    take,
    unchanged_data,
)
from api.jobs.files import remove_abandoned_files
from api.jobs.work import at_work
from kdnas.cpu import available_cores
from kdnas.db.engine import Database
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.settings import Settings

POLL_SECONDS = 0.2
GOODBYE_SECONDS = 10.0
"""So long workers may write checkpoints when somebody wants the end at once."""
WORTH_STEPS = 300
"""With fewer steps in all, a cluster takes longer to start than it saves."""

OnFinished = Callable[[FinishedPair], None]
Pair = tuple[PlannedTask, int]


def evaluate_with_jobs(
    prepared: PreparedEvaluation,
    database: Database,
    settings: Settings,
    jobs: int | None,
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
        on_finished: is told the figures of each pair of task and seed; first those that are known.
        should_stop: asked a few times a second; True ends all of them after a checkpoint.

    Raises:
        ConflictError: another process works on one of them.
        TaskDataError: data have changed meanwhile.
        KdnasError: a fine-tuning failed, and its row says why; the others have written checkpoints
            and are gone on with the next time.
    """
    remove_abandoned_files(settings)
    pairs = [(p, seed) for p in prepared.tasks for seed in p.seeds(prepared.spec.seeds)]
    found = [find_pair(prepared, planned, seed, database) for planned, seed in pairs]
    todo = [pair for pair, known in zip(pairs, found, strict=True) if known is None]
    trained = [pair for pair in todo if pair[0].task.fine_tuned]
    jobs = jobs or _room(prepared, settings, trained)
    if min(jobs, len(trained)) < 2:
        return run_evaluation(prepared, database, settings, on_progress, on_finished, should_stop)
    done = {(p.result.task, p.result.seed): p for p in found if p is not None}
    for pair in done.values():
        on_finished(pair)

    def note(pair: FinishedPair) -> None:
        done[pair.result.task, pair.result.seed] = pair
        on_finished(pair)

    _evaluate(prepared, todo, jobs, database, settings, on_progress, note, should_stop)
    order = [(planned.task.name, seed) for planned, seed in pairs]
    return EvaluationOutcome(
        tuple(done[key] for key in order if key in done), stopped=len(done) < len(order)
    )


def _room(prepared: PreparedEvaluation, settings: Settings, pairs: Sequence[Pair]) -> int:
    """Return for how many pairs there is room; Ray, which takes seconds, is loaded for several."""
    threads = prepared.spec.threads or 1
    lonely = prepared.device == "cpu" and available_cores() < 2 * threads
    short = sum(map(_steps, pairs)) < WORTH_STEPS
    if len(pairs) < 2 or short or (settings.ray_address is None and lonely):
        return 1
    from workers.finetuning import room_for

    room = room_for(settings.ray_address, prepared.model, prepared.device, threads)
    return min(len(pairs), room)


def _steps(pair: Pair) -> float:
    """Steps of a fine-tuning, about: contexts may be several windows."""
    planned, settings = pair[0], pair[0].settings
    steps = planned.train_examples / settings.batch_size * settings.epochs
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def _evaluate(
    prepared: PreparedEvaluation,
    todo: Sequence[Pair],
    jobs: int,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    on_finished: OnFinished,
    should_stop: Callable[[], bool],
) -> None:
    """Do pairs in their order, the next one as soon as one has ended."""
    from workers.cluster import cluster

    with cluster(settings.ray_address):
        crew = _Crew(prepared, jobs, database, settings, on_progress, on_finished, should_stop)
        try:
            for planned, seed in todo:
                crew.wait(crew.has_room)
                if not crew.begin(planned, seed):
                    break
            crew.wait(crew.is_idle)
        finally:
            crew.end()
    if crew.error is not None:
        raise crew.error


@dataclass(frozen=True)
class _Ready:
    """A task that can be worked on: its data, its hyper-parameters, and who trains."""

    task: str
    data: TaskData
    hyper: FinetuneSettings
    fine_tune: FineTune


class _Crew:
    """Threads that look after a pair each; the arguments are those of the evaluation.

    Attributes:
        error: the first one of any pair.
    """

    def __init__(
        self,
        prepared: PreparedEvaluation,
        jobs: int,
        database: Database,
        settings: Settings,
        on_progress: OnProgress,
        on_finished: OnFinished,
        should_stop: Callable[[], bool],
    ) -> None:
        self._prepared, self._jobs = prepared, jobs
        self._database, self._settings = database, settings
        self._on_progress, self._on_finished = on_progress, on_finished
        self._should_stop, self._stopping = should_stop, threading.Event()
        self._told: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._ready: _Ready | None = None
        self.error: Exception | None = None

    def has_room(self) -> bool:
        """Whether another pair may begin, or none will."""
        return self._is_ending() or self._at_work() < self._jobs

    def is_idle(self) -> bool:
        """Whether everybody has ended."""
        self._is_ending()  # the wish to stop is passed on
        return self._at_work() == 0

    def _is_ending(self) -> bool:
        if self._should_stop():
            self._stopping.set()
        return self._stopping.is_set()

    def _at_work(self) -> int:
        return sum(thread.is_alive() for thread in self._threads)

    def begin(self, planned: PlannedTask, seed: int) -> bool:
        """Start on a pair; False if nothing more is to be begun."""
        ready = None if self._is_ending() else self._made_ready(planned)
        if ready is None:
            return False
        thread = threading.Thread(
            target=self._look_after, args=(planned, seed, ready), name=f"seed-{seed}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return True

    def _made_ready(self, planned: PlannedTask) -> _Ready | None:
        """Read a task's data and try its grid, once for all of its seeds."""
        if self._ready is not None and self._ready.task == planned.task.name:
            return self._ready
        from workers.finetuning import finetune_on_cluster, handed_over, threads_each

        prepared, settings = self._prepared, self._settings
        data = unchanged_data(prepared, planned)
        hyper = hyper_parameters(
            prepared, planned, data, self._database, settings, self._on_progress, self._is_ending
        )
        if hyper is None:
            return None
        address, device = settings.ray_address, prepared.device
        fine_tune = partial(
            finetune_on_cluster,
            handed_over(address, prepared.model, data, settings.store_url),
            device=device,
            threads=prepared.spec.threads or threads_each(address, device, self._jobs),
        )
        self._ready = _Ready(planned.task.name, data, hyper, fine_tune)
        return self._ready

    def _look_after(self, planned: PlannedTask, seed: int, ready: _Ready) -> None:
        def tell(planned: PlannedTask, seed: int, progress: FinetuneProgress) -> None:
            self._told.put(partial(self._on_progress, planned, seed, progress))

        stop, database = self._stopping.is_set, self._database
        try:
            record = take(self._prepared, planned, seed, database)
            with at_work(
                database, self._settings, record.id, None, stop, stopped_status(record)
            ) as work:
                pair = evaluate_pair(
                    record, self._prepared, planned, ready.data, database, self._settings, tell,
                    work, ready.hyper, ready.fine_tune,
                )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            self.error = self.error or error
            self._stopping.set()
            return
        if pair is None:
            self._stopping.set()
        else:
            self._told.put(partial(self._on_finished, pair))

    def wait(self, until: Callable[[], bool]) -> None:
        """Pass on what is told until something holds."""
        while True:
            holds = until()
            while not self._told.empty():
                self._told.get()()
            if holds:
                return
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """See that nobody works when the cluster goes."""
        self._stopping.set()
        deadline = time.monotonic() + GOODBYE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
