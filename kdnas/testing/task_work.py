"""The work on distillations for a task, made up: no model, no data, no time.

What puts it together, stores it and shows it is tried with it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from api.task_distillations.request import check_task
from kdnas.errors import TrainingError
from kdnas.reach import ANYWHERE, Reach
from kdnas.records import TaskFacts
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.store import Store
from kdnas.taskspecific.grid import TaskEnding, TaskPoint, TaskTrial, task_points
from kdnas.taskspecific.stages import Hyperparameters
from kdnas.testing.demo_tasks import result_of, task_facts, task_run

HYPER = Hyperparameters(20, 10, 16, 2e-5, 0.5)
WITH_BETA = ("pkd", "universal-kd-il")


@dataclass(frozen=True)
class Progress:
    """As the work says how far it is."""

    phase: str
    done: int
    total: int
    loss: float | None = None


@dataclass
class TaskWork:
    """What stands in for the modules of ``workers.task``.

    Attributes:
        facts: what preparing finds out.
        fails: runs that cannot be trained.
        begun: runs that were begun, in order.
        trained_with: what each of these was trained with, where a grid has chosen it.
        tried: points that were tried, in order.
        scores: what a trial at a point comes to; None diverges.
        prepared: how often it was prepared.
        before: called when a run begins.
        reached: how it was told to open what the request names.
        groups: of methods that are done beside each other; empty does one at a time.
    """

    TaskProgress: ClassVar = Progress

    facts: TaskFacts = field(default_factory=task_facts)
    fails: set[tuple[str, int]] = field(default_factory=set)
    begun: list[tuple[str, int]] = field(default_factory=list)
    trained_with: list[TaskPoint | None] = field(default_factory=list)
    tried: list[tuple[str, TaskPoint]] = field(default_factory=list)
    scores: Callable[[TaskPoint], float | None] = lambda point: point.learning_rate
    prepared: int = 0
    before: Callable[[str, int], None] = lambda method, seed: None
    groups: list[tuple[str, ...]] = field(default_factory=list)
    reached: Reach = ANYWHERE

    @classmethod
    def installed(cls, patch: pytest.MonkeyPatch) -> TaskWork:
        """Take the place of the module until the end of the test."""
        work = cls()
        for name in ("ready", "request", "runs", "grid"):
            patch.setitem(sys.modules, f"workers.task.{name}", work)
        return work

    def check_task(self, spec: TaskDistillationSpec, store: Store, reach: Reach) -> None:
        """Look at what the service looks at before it stores a request."""
        check_task(spec, reach)

    def prepare_for_task(
        self,
        spec: TaskDistillationSpec,
        settings: Settings,
        on_progress: Callable[[Any], None],
        should_stop: Callable[[], bool],
        reach: Reach,
    ) -> MadeUpTask | None:
        """Prepare it at once; None if it was to stop."""
        self.prepared += 1
        self.reached = reach
        on_progress(Progress("fine-tuning the teacher", 3, 10, 0.5))
        if should_stop():
            return None
        pinned = spec.teacher.model_copy(update={"fingerprint": "made-up-teacher"})
        ready = MadeUpTask(spec.model_copy(update={"teacher": pinned}), self.facts, self)
        if spec.grid is not None:
            grids = {
                str(name): {"key": f"task-grid-{name}", "points": len(ready.checked.points(name))}
                for name in spec.methods
            }
            ready.facts = replace(self.facts, grids=grids)
        return ready

    def try_task_grid(
        self,
        ready: MadeUpTask,
        method: str,
        known: Sequence[TaskTrial],
        on_trial: Callable[[TaskTrial], None],
        should_stop: Callable[[], bool],
        *,
        trials_folder: Path,
        **_: Any,
    ) -> bool:
        """Try what is not known, one after the other; each leaves a file in a folder."""
        seen = {trial.point for trial in known}
        for point in ready.checked.points(method):
            if point not in seen:
                if should_stop():
                    return False
                self.tried.append((method, point))
                score = self.scores(point)
                folder = trials_folder / point.as_file_name
                folder.mkdir(parents=True)
                (folder / "left").write_text(str(point))
                ending: TaskEnding = "diverged" if score is None else "finished"
                on_trial(TaskTrial(point, ending, score, () if score is None else (score,)))
        return True

    def let_go(self, folder: Path) -> None:
        """Remove checkpoints, as is done once a result is stored."""
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)

    def groups_of(self, ready: MadeUpTask) -> list[tuple[str, ...]]:
        """Say which methods are done beside each other."""
        return self.groups or [(method,) for method in ready.spec.methods]

    def do_runs(
        self,
        ready: MadeUpTask,
        folders: Mapping[str, Path],
        seed: int,
        on_progress: Callable[[Any], None],
        should_stop: Callable[[], bool],
        hyper: Hyperparameters | None = None,
    ) -> dict[str, Any] | None:
        """Do one run after the other; None if one was to stop."""
        outcomes = {}
        for method, folder in folders.items():
            outcomes[method] = ready.run(method, seed, folder, on_progress, should_stop, hyper)
            if outcomes[method] is None:
                return None
        return outcomes


@dataclass
class MadeUpTask:
    """A task that was prepared."""

    spec: TaskDistillationSpec
    facts: TaskFacts
    work: TaskWork

    @property
    def checked(self) -> SimpleNamespace:
        """What was checked, as far as grids ask for it."""
        return SimpleNamespace(hyper=HYPER, points=self._points)

    def _points(self, method: str) -> tuple[TaskPoint, ...]:
        assert self.spec.grid is not None
        return task_points(self.spec.grid, uses_beta=method in WITH_BETA)

    def run(
        self,
        method: str,
        seed: int,
        folder: Path,
        on_progress: Callable[[Any], None],
        should_stop: Callable[[], bool],
        hyper: Hyperparameters | None,
    ) -> SimpleNamespace | TrainingError | None:
        """Come to what :func:`~kdnas.testing.demo_tasks.task_run` says.

        A run that was to stop has left a checkpoint, and comes to its end the next time.
        """
        self.work.begun.append((method, seed))
        self.work.trained_with.append(
            None if hyper is None else TaskPoint(hyper.batch_size, hyper.learning_rate, hyper.beta)
        )
        self.work.before(method, seed)
        checkpoint = folder / "checkpoints" / "10"
        is_new = not checkpoint.exists()
        checkpoint.mkdir(parents=True, exist_ok=True)
        on_progress(Progress(f"{method} seed {seed}: stage 1", 10, 20, 0.4))
        if should_stop() and is_new:
            return None
        if (method, seed) in self.work.fails:
            return TrainingError("the loss is no number at step 12")
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model" / "weights").write_text(f"{method} {seed}")
        run = task_run(method, seed)
        return SimpleNamespace(run=run, result=result_of(run))
