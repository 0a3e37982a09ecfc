"""The grid of a task: done once for all seeds, kept trial by trial, taken up after a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from api.evaluations.prepare import PlannedTask, PreparedEvaluation
from api.jobs.files import grid_folder
from api.jobs.grids import GridName, Keep, ShouldStop, chosen_once
from kdnas.db.engine import Database
from kdnas.db.queue.leases import LeaseOwner
from kdnas.errors import NoRoomError
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.grid import Trial, best_trial, grid_points
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.evaluation.tasks.examples import TaskData
from kdnas.settings import Settings

OnProgress = Callable[[FinetuneProgress], None]


def chosen_trial(
    prepared: PreparedEvaluation,
    planned: PlannedTask,
    data: TaskData,
    database: Database,
    settings: Settings,
    on_progress: OnProgress,
    should_stop: ShouldStop,
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
    tuning = for_tuning(data)  # too few examples are better told before anything is started
    points = grid_points(planned.settings, len(tuning.train))
    name = GridName(planned.grid_key(prepared.model), prepared.spec.model.ref, planned.task.name)

    def choose(known: Sequence[Any], keep: Keep, stops: ShouldStop) -> dict[str, Any] | None:
        trials = [Trial.from_json(values) for values in known]

        def tell() -> None:
            on_progress(FinetuneProgress("trials of the grid", len(trials), len(points)))

        def waits(text: str) -> None:
            if text:
                on_progress(FinetuneProgress(text, 0, 1, waits=True))
            else:
                tell()

        def on_trial(trial: Trial) -> None:
            trials.append(trial)
            keep(trial.to_json())
            tell()

        if not {trial.point for trial in trials} >= set(points):
            from workers.cluster import cluster  # Ray is loaded where work is done
            from workers.finetuning import carried_to, room_for
            from workers.grid import GridWork, try_grid

            tell()
            address, threads = settings.ray_address, prepared.spec.threads or 1
            with cluster(address):
                work = GridWork(
                    points=points,
                    device=prepared.device,
                    threads=threads,
                    at_once=room_for(address, prepared.model, prepared.device, threads),
                    carried=carried_to(address, prepared.model, data, settings.store_url),
                    settings=planned.settings,
                )
                folder = grid_folder(settings, name.key)
                if not try_grid(work, tuple(trials), folder, on_trial, stops, waits):
                    return None
        return best_trial(trials).to_json()

    def wait() -> None:
        if for_service:
            raise NoRoomError(
                f"another evaluation tries the grid of {planned.task.name} at present; this one "
                "goes on when that has ended"
            )
        on_progress(FinetuneProgress("waiting for the grid of another process", 0, 1))

    owner = LeaseOwner.of_this_process("service" if for_service else "cli")
    chosen = chosen_once(database, name, owner, choose, wait, should_stop)
    return None if chosen is None else Trial.from_json(chosen)
