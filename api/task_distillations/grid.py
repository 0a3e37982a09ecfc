"""The grid of a method: done once for all seeds, kept trial by trial, taken up after a kill."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from api.jobs.context import JobContext, StoppedError
from api.jobs.files import grid_folder, task_run_folder
from api.jobs.grids import GridName, Keep, ShouldStop, chosen_once
from kdnas.db.queue.leases import LeaseOwner
from kdnas.taskspecific.grid import GRID_SEED, TaskPoint, TaskTrial, best_task_trial
from kdnas.taskspecific.stages import Hyperparameters

if TYPE_CHECKING:
    from workers.task.ready import ReadyTask


@dataclass(frozen=True, slots=True)
class GridProgress:
    """How far the grid of a method is.

    Attributes:
        method: whose grid.
        done: trials that have ended.
        total: that there are.
        last: the trial that has just ended, if one has.
        waits: for whom this one waits, in words; empty if it does not.
    """

    method: str
    done: int
    total: int
    last: TaskTrial | None = None
    waits: str = ""


def chosen_hyper(
    context: JobContext,
    ready: ReadyTask,
    method: str,
    seed: int,
    on_progress: Callable[[GridProgress], None],
) -> Hyperparameters | None:
    """Return what a run is trained with by its method's grid; None where there is no grid.

    Two who want the same grid at once do not both work on it: one does, and the other waits. It
    does so for the service too, unlike an evaluation: all that the teacher says is in memory by
    now, and would have to be computed again.

    The run of the seed that trials have takes over the best trial, if its files are on this
    machine, and is not trained again.

    Args:
        context: of the job; the training lock is not held.
        ready: the task.
        method: of the run.
        seed: of the run.
        on_progress: is told how many trials have ended.

    Raises:
        StoppedError: it was to stop.
        TrainingError: all trials diverged.
        BackendError: no cluster, or a trial that failed in a way that is no answer.
    """
    grid = ready.facts.grids.get(method)
    if grid is None:
        return None
    settings, spec = context.settings, ready.spec
    folder = grid_folder(settings, grid["key"])
    tried_here = False

    def choose(known: Sequence[Any], keep: Keep, stops: ShouldStop) -> dict[str, Any] | None:
        nonlocal tried_here
        trials = [TaskTrial.from_json(values) for values in known]

        def waits(text: str) -> None:
            on_progress(GridProgress(method, len(trials), grid["points"], waits=text))

        def on_trial(trial: TaskTrial) -> None:
            trials.append(trial)
            keep(trial.to_json())
            on_progress(GridProgress(method, len(trials), grid["points"], trial))

        if not {trial.point for trial in trials} >= set(ready.checked.points(method)):
            from workers.task.grid import try_task_grid  # Ray is loaded where work is done

            on_progress(GridProgress(method, len(trials), grid["points"]))
            tried_here = True
            tried = try_task_grid(
                ready,
                method,
                tuple(trials),
                on_trial,
                stops,
                trials_folder=folder / "trials",
                scratch=folder / "ray",
                address=settings.ray_address,
                store_url=settings.store_url,
                on_wait=waits,
            )
            if not tried:
                return None
        return best_task_trial(method, trials).to_json()

    chosen = chosen_once(
        context.database,
        GridName(grid["key"], f"{spec.student} by {method}", ready.facts.task),
        LeaseOwner.of_this_process("service" if context.claimed else "cli"),
        choose,
        lambda: on_progress(
            GridProgress(method, 0, grid["points"], waits="another process works on it")
        ),
        context.should_stop,
    )
    if chosen is None:
        raise StoppedError
    best = TaskTrial.from_json(chosen).point
    if seed == GRID_SEED:
        run = task_run_folder(settings, context.id, method, seed)
        _take_over(folder / "trials", best, run)
    # Who has tried it may want the best trial, and is a moment behind who waited for that.
    if seed == GRID_SEED or (tried_here and GRID_SEED not in spec.seeds):
        _remove(folder)
    return best.applied_to(ready.checked.hyper)


def _remove(folder: Path) -> None:
    """Remove what a grid has left; who takes something over meanwhile gets all of it or none."""
    doomed = folder.with_name(f".{folder.name}-{uuid4().hex}")
    with suppress(FileNotFoundError):  # nothing was tried here, or another job was quicker
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _take_over(trials: Path, best: TaskPoint, run: Path) -> None:
    """Let a run go on with what the best trial has left, where it would begin anew."""
    if run.exists():
        return
    run.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):  # tried on another machine, or another job was quicker
        (trials / best.as_file_name).rename(run)
