"""The grid of a task: done once for all seeds, kept trial by trial, taken up after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event

from api.evaluations.prepare import PlannedTask, PreparedEvaluation
from api.jobs.files import grid_folder
from api.jobs.lease import held_lease
from kdnas.db.engine import Database
from kdnas.db.models import Grid
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import grids
from kdnas.errors import ConflictError, NoRoomError
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.grid import GridPoint, Trial, best_trial, grid_points
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.settings import Settings

WAIT_SECONDS = 1.0

OnProgress = Callable[[FinetuneProgress], None]


def chosen_trial(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
    *,
    for_service: bool = False,
) -> Trial | None:
    """Return the best trial of a task's grid: known from before, or after all others were tried.

    Two who want the same grid at once do not both work on it: one does, and the other waits.

    Args:
        prepared: the evaluation, with the model.
        planned: a task whose settings have a grid.
        data: of the task.
        database: where trials are kept, and what was chosen.
        settings: of this process.
        on_progress: is told how many trials have ended.
        should_stop: asked a few times a second.
        for_service: raise instead of waiting, so that a coordinator has other work done meanwhile.

    Returns:
        The trial whose learning rate and epochs are taken; None if this run was to stop.

    Raises:
        NoRoomError: somebody else works on the grid, and it is for the service.
        TaskDataError: there are too few examples to hold some out.
        TrainingError: all trials diverged.
        BackendError: no cluster, or a trial that failed in a way that is no answer.
    """
    key = planned.grid_key(prepared.model)
    owner = LeaseOwner.of_this_process("service" if for_service else "cli")
    tuning = for_tuning(data)  # too few examples are better told before anything is started
    points = grid_points(planned.settings, len(tuning.train))

    def opened() -> Grid:
        name = prepared.spec.model.ref
        with database.write() as session:
            return grids.open_grid(session, key, model=name, task=planned.task.name)

    while not should_stop():
        record = opened()
        if record.chosen is not None:
            return Trial.from_json(record.chosen)
        with _held(database, key, owner) as lost:
            if lost is not None:
                record = opened()  # somebody may have been quicker between a look and the lease
                trials = _tried(
                    prepared, planned, data, points, record, database, settings, on_progress,
                    lambda: lost.is_set() or should_stop(),
                )  # fmt: skip
                if trials is not None and not lost.is_set():
                    with database.write() as session:
                        stands = grids.choose(session, key, best_trial(trials).to_json())
                    return Trial.from_json(stands)
                continue
        if for_service:
            raise NoRoomError(
                f"another evaluation tries the grid of {planned.task.name} at present; this one "
                "goes on when that has ended"
            )
        on_progress(FinetuneProgress("waiting for the grid of another process", 0, 1))
        time.sleep(WAIT_SECONDS)
    return None


@contextmanager
def _held(database: Database, key: str, owner: LeaseOwner) -> Iterator[Event | None]:
    """Hold a grid; yields None if somebody else does, else an event that tells of its loss."""
    with ExitStack() as stack:
        try:
            lost = stack.enter_context(held_lease(database, Grid, key, owner))
        except ConflictError:
            lost = None
        yield lost


def _tried(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    points: Sequence[GridPoint],
    record: Grid,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
) -> list[Trial] | None:
    """Try the points that are not known; returns all trials, or None if it was stopped."""
    if record.chosen is not None:
        return [Trial.from_json(record.chosen)]
    trials = [Trial.from_json(values) for values in record.trials]
    if {trial.point for trial in trials} >= set(points):
        return trials

    def tell() -> None:
        on_progress(FinetuneProgress("trials of the grid", len(trials), len(points)))

    def keep(trial: Trial) -> None:
        trials.append(trial)
        with database.write() as session:
            grids.add_trial(session, record.id, trial.to_json())
        tell()

    from workers.cluster import cluster  # Ray is loaded where work is done
    from workers.finetuning import carried_to, room_for
    from workers.grid import GridWork, run_trials

    tell()
    address, threads = settings.ray_address, prepared.spec.threads or 1
    with cluster(address):
        work = GridWork(
            carried_to(address, prepared.model, data, settings.store_url),
            planned.settings,
            tuple(points),
            prepared.device,
            threads,
            room_for(address, prepared.model, prepared.device, threads),
        )
        folder = grid_folder(settings, record.id)
        ended = run_trials(work, tuple(trials), folder, keep, should_stop=should_stop)
    return trials if ended else None
