"""The trials of a grid of distillations for one task: runs of one seed, beside each other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kdnas.taskspecific.grid import TaskPoint, TaskTrial, best_task_trial
from workers.carried import handle_here, put_into_store, this_node
from workers.cluster import cluster
from workers.finetuning import finetunings_at_once
from workers.machine import machine_at
from workers.task.ready import ReadyTask
from workers.task.runs import try_out
from workers.task.students import StudentPlan
from workers.trials import EndedTrial, Report, TrialWork, run_trials

FLOAT_BYTES = 4


@dataclass(frozen=True)
class TaskGridWork(TrialWork[TaskPoint]):
    """What all trials of a method's grid have in common.

    Attributes:
        ready: the task, with its teacher.
        method: by which students learn.
        trials_folder: on the driver's node, where each trial has a folder.
        node: id of the driver's node.
        store_url: where other nodes fetch what students are made of.
    """

    marks = (1,)
    prunes = False
    if_memory_ran_out = "with smaller `grid.batch_sizes`"

    ready: ReadyTask
    method: str
    trials_folder: Path
    node: str
    store_url: str

    def try_point(self, point: TaskPoint, report: Report) -> None:
        """Let a student learn with what is tried, from its checkpoint if there is one."""
        hyper = point.applied_to(self.ready.checked.hyper)
        with self._folder_here(point) as folder:
            run = try_out(self._ready_here(), self.method, folder, hyper=hyper)
        assert run is not None  # nobody asks it to stop
        assert run.best is not None
        report(1, run.best.score, {"curve": [epoch["held_out"] for epoch in run.curve]})

    @contextmanager
    def _folder_here(self, point: TaskPoint) -> Iterator[Path]:
        """The trial's folder; on another node than the driver's one for a while."""
        if this_node() == self.node:
            yield self.trials_folder / point.as_file_name
        else:
            with tempfile.TemporaryDirectory(prefix="kdnas-trial-") as folder:
                yield Path(folder)

    def _ready_here(self) -> ReadyTask:
        """The task with students that are made of what is on this node."""
        checked = self.ready.checked

        def here(plan: StudentPlan) -> StudentPlan:
            return replace(plan, origin=handle_here(plan.origin, self.node, self.store_url))

        assistant = checked.assistant and here(checked.assistant)
        made = replace(checked, student=here(checked.student), assistant=assistant)
        return replace(self.ready, checked=made)


def try_task_grid(
    ready: ReadyTask,
    method: str,
    known: Sequence[TaskTrial],
    on_trial: Callable[[TaskTrial], None],
    should_stop: Callable[[], bool] = lambda: False,
    *,
    trials_folder: Path,
    scratch: Path,
    address: str | None,
    store_url: str,
    on_wait: Callable[[str], None] = lambda _: None,
) -> bool:
    """Try the points of a method's grid that are not known yet.

    Whoever calls must not hold the training lock: each trial takes it on its own node. A trial that
    was killed goes on from its last checkpoint, if it comes to the same node again.

    Args:
        ready: the task, with its teacher.
        method: by which students learn.
        known: trials that have ended before.
        on_trial: is told each trial that ends, in the calling thread; what it raises ends the run.
        should_stop: asked a few times a second; of trials that have not ended then only checkpoints
            are left.
        trials_folder: of this grid alone: the best trial leaves what a run of its seed goes on
            with, in a folder that is called like its point.
        scratch: folder for Ray Tune's files.
        address: of a running cluster; None starts one on this machine.
        store_url: of the store.
        on_wait: is told for whom trials wait, if they do, and nothing when it is over.

    Returns:
        Whether all points are known now; False if it was stopped.

    Raises:
        BackendError: no cluster, or a trial that failed in a way that is no answer.
        StoreError: a trial's disk is full or not writable.
    """
    trials = list(known)

    def ended(trial: EndedTrial[TaskPoint]) -> None:
        found = _task_trial(trial)
        on_trial(found)
        trials.append(found)
        _keep_best(method, trials, trials_folder)

    threads = ready.spec.threads or 1
    with cluster(address):
        plans = [ready.checked.student, ready.checked.assistant]
        for origin in {plan.origin.fingerprint: plan.origin for plan in plans if plan}.values():
            if address is not None:
                put_into_store(origin, store_url)
        work = TaskGridWork(
            points=ready.checked.points(method),
            device=ready.checked.device,
            threads=threads,
            at_once=_room(address, ready, method, threads),
            ready=ready.for_trials(method, threads),
            method=method,
            trials_folder=trials_folder,
            node=this_node(),
            store_url=store_url,
        )
        again = [EndedTrial(one.point, one.ending, ()) for one in known]
        return run_trials(work, again, scratch, ended, should_stop=should_stop, on_wait=on_wait)


def _task_trial(ended: EndedTrial[TaskPoint]) -> TaskTrial:
    if ended.ending == "diverged":
        return TaskTrial(ended.point, "diverged", None)
    return TaskTrial(ended.point, "finished", ended.scores[-1], tuple(ended.more["curve"]))


def _keep_best(method: str, trials: Sequence[TaskTrial], folder: Path) -> None:
    """Remove the files of trials that have ended, but for the best one so far."""
    finished = [trial for trial in trials if trial.ending == "finished"]
    best = best_task_trial(method, finished).point if finished else None
    for trial in trials:
        if trial.point != best:
            shutil.rmtree(folder / trial.point.as_file_name, ignore_errors=True)


def _room(address: str | None, ready: ReadyTask, method: str, threads: int) -> int:
    """Say how many trials have room beside each other, each with all that it is given."""
    facts, states = ready.facts, ready.for_trials(method, threads).learned.states
    kept = 0 if states is None else states.numel()
    return finetunings_at_once(
        machine_at(address, ready.checked.device),
        ready.checked.device,
        threads,
        FLOAT_BYTES * facts.student["parameters"],
        FLOAT_BYTES * (facts.teacher["parameters"] + kept),
    )
