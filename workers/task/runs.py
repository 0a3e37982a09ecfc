"""Runs of a task that is ready: students learn by methods, alone or beside each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.numerics import derived_seed
from kdnas.errors import TrainingError
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.finetuning.run import tidy_process
from kdnas.evaluation.finetuning.text import mean_number
from kdnas.taskspecific.grid import GRID_SEED
from kdnas.taskspecific.methods.base import Method
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.networks import TaskStudent
from kdnas.taskspecific.stages import Hyperparameters
from kdnas.taskspecific.student_run import StudentRun
from kdnas.taskspecific.teacher_outputs import TeacherOutputs, run_over
from kdnas.taskspecific.training import HeldOut, RunProgress, Training
from workers.task.ready import (
    OnProgress,
    ReadyTask,
    ShouldStop,
    TaskProgress,
    TaskStoppedError,
)
from workers.task.scoring import FinishedTaskRun, save_student, scored_run
from workers.task.students import StudentPlan, network_of

KEPT_MODEL = "model"
"""Folder of a run's student, in the run's own."""
CHECKPOINTS, ASSISTANT = "checkpoints", "assistant"
"""Folders beside it: from where a run goes on, and of `takd` the network between."""
MOST_BESIDE = 4
"""Students that learn beside each other: more of them take more memory, and save little more."""


Outcome = FinishedTaskRun | TrainingError
"""What a run comes to."""


def groups_of(ready: ReadyTask) -> list[tuple[str, ...]]:
    """Say which methods' runs of a seed are done at once: those for which the teacher is run.

    It then runs once a batch for all of them. A method whose grid chooses its batches is alone, and
    one that learns from an assistant of its own.

    Returns:
        Each method of the request once, in its order as far as that goes.
    """
    alone: list[tuple[str, ...]] = []
    sharing: list[str] = []
    for name in ready.spec.methods:
        kind = method_named(name)
        if ready.spec.grid is not None or kind.assisted or ready.is_kept_for(kind):
            alone.append((name,))
        else:
            sharing.append(name)
    starts = range(0, len(sharing), MOST_BESIDE)
    groups = [*alone, *(tuple(sharing[start : start + MOST_BESIDE]) for start in starts)]
    return sorted(groups, key=lambda group: ready.spec.methods.index(group[0]))


def do_run(
    ready: ReadyTask,
    method: str,
    seed: int,
    folder: Path,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
    hyper: Hyperparameters | None = None,
) -> FinishedTaskRun | None:
    """Let a student learn by a method, and score it; arguments and errors as of :func:`do_runs`.

    Raises:
        TrainingError: training diverged.
    """
    outcomes = do_runs(ready, {method: folder}, seed, on_progress, should_stop, hyper)
    if outcomes is None:
        return None
    outcome = outcomes[method]
    if isinstance(outcome, TrainingError):
        raise outcome
    return outcome


def do_runs(
    ready: ReadyTask,
    folders: Mapping[str, Path],
    seed: int,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
    hyper: Hyperparameters | None = None,
) -> dict[str, Outcome] | None:
    """Let a student learn by each of some methods, beside each other, and score them.

    The same inputs give the same students on the same machine, interrupted or not, and on a CPU
    whichever methods are beside.

    Args:
        ready: the task.
        folders: method → folder of its run alone: checkpoints (of all of them in the first one's),
            by which the same is come to again without a step until :func:`let_go`; the student in
            ``model``.
        seed: of what is fresh, of the order and of dropout.
        on_progress: is told how it goes.
        should_stop: asked between steps; True ends it after a checkpoint.
        hyper: other hyper-parameters than those of the request.

    Returns:
        Method → what it has come to; None if it was stopped.

    Raises:
        StoreError: the disk is full or not writable.
    """
    used = hyper or ready.checked.hyper
    with tidy_process(ready.spec.threads):
        learned = _learned(ready, folders, seed, on_progress, should_stop, used, keeps_end=True)
        if learned is None:
            return None
        outcomes: dict[str, Outcome] = {}
        for method, one in learned.items():
            if one.run.error is not None:
                outcomes[method] = one.run.error
                continue
            finished = scored_run(ready, one.student, one.run, seed, used, one.seconds)
            outcomes[method] = finished
            save_student(ready, one.student, finished.run, folders[method] / KEPT_MODEL, used)
    return outcomes


def let_go(folder: Path) -> None:
    """Remove that with which a run would go on, once what it came to is kept elsewhere.

    Args:
        folder: of the run; its student stays.
    """
    for path in (folder / ASSISTANT, *folder.glob(f"{CHECKPOINTS}*")):
        shutil.rmtree(path, ignore_errors=True)


def try_out(
    ready: ReadyTask,
    method: str,
    folder: Path,
    on_progress: OnProgress = lambda _: None,
    should_stop: ShouldStop = lambda: False,
    *,
    hyper: Hyperparameters,
) -> StudentRun | None:
    """Let a student learn by a method with the seed of grids, up to its best epoch.

    Nothing but the held-out examples is scored. What is left in the folder is all that
    :func:`do_run` needs there to take this run for its own, without a further step.

    Args:
        ready: the task.
        method: its name.
        folder: of this run alone.
        on_progress: is told how it goes.
        should_stop: asked between steps; True ends it after a checkpoint.
        hyper: what is tried.

    Returns:
        How it went; None if it was stopped.

    Raises:
        TrainingError: training diverged.
        StoreError: the disk is full or not writable.
    """
    with tidy_process(ready.spec.threads):
        learned = _learned(
            ready, {method: folder}, GRID_SEED, on_progress, should_stop, hyper, keeps_end=True
        )
    if learned is None:
        return None
    run = learned[method].run
    if run.error is not None:
        raise run.error
    return run


@dataclass(frozen=True)
class _Learned:
    """A student at its best epoch, or in ruins.

    Attributes:
        student: the model.
        run: how it went.
        seconds: that its training took, its assistant's included.
    """

    student: TaskModel
    run: StudentRun
    seconds: float


def _checkpoints(folders: Mapping[str, Path]) -> Path:
    """Where runs keep checkpoints that are theirs alone."""
    first, *others = folders
    return folders[first] / "+".join([CHECKPOINTS, *others])


def _assistant_folder(folders: Mapping[str, Path]) -> Path:
    return next(iter(folders.values())) / ASSISTANT


def _learned(
    ready: ReadyTask,
    folders: Mapping[str, Path],
    seed: int,
    on_progress: OnProgress,
    should_stop: ShouldStop,
    hyper: Hyperparameters,
    *,
    keeps_end: bool = False,
) -> dict[str, _Learned] | None:
    """Train a student by each method to its best epoch, after its assistant where it has one."""
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    kinds = [method_named(method) for method in folders]
    teacher, before = ready.teacher_of(kinds), 0.0
    if ready.checked.assistant is not None and any(kind.assisted for kind in kinds):
        vanilla = method_named("vanilla-kd")
        helped = _trained(
            ready,
            ready.checked.assistant,
            [vanilla],
            seed,
            hyper,
            ready.teacher_of([vanilla]),
            _assistant_folder(folders),
            on_progress,
            should_stop,
            "assistant",
            keeps_end=True,
        )
        if helped is None:
            return None
        (assistant,) = helped
        if assistant.run.error is not None:
            told = f"the assistant of {' and '.join(folders)} failed: {assistant.run.error}"
            assistant.run.error = TrainingError(told)
            return dict.fromkeys(folders, assistant)

        def tell(done: int, total: int) -> None:
            phase = f"running the assistant of {' and '.join(folders)} seed {seed} over train"
            on_progress(TaskProgress(phase, done, total))
            if should_stop():
                raise TaskStoppedError

        try:
            teacher = _taught_by(ready, assistant.student, folders, tell)
        except TaskStoppedError:
            return None
        before = assistant.seconds
    trained = _trained(
        ready,
        ready.checked.student,
        kinds,
        seed,
        hyper,
        teacher,
        _checkpoints(folders),
        on_progress,
        should_stop,
        " and ".join(folders),
        keeps_end=keeps_end,
    )
    if trained is None:
        return None
    return {
        method: replace(one, seconds=before + one.seconds)
        for method, one in zip(folders, trained, strict=True)
    }


def _taught_by(
    ready: ReadyTask,
    assistant: TaskModel,
    folders: Mapping[str, Path],
    on_batch: Callable[[int, int], None],
) -> TeacherOutputs:
    """An assistant as a teacher, of whom nothing but the logits is asked."""
    network = network_of(assistant)
    network.model.eval().requires_grad_(False)
    running = replace(ready.teacher, network=network, classifiers=None, reads_states=False)
    if ready.spec.cache == "never":
        return running
    return run_over(running, ready.train.tokens, next(iter(folders.values())), on_batch)


def _trained(
    ready: ReadyTask,
    plan: StudentPlan,
    kinds: Sequence[type[Method]],
    seed: int,
    hyper: Hyperparameters,
    teacher: TeacherOutputs,
    folder: Path,
    on_progress: OnProgress,
    should_stop: ShouldStop,
    called: str,
    *,
    keeps_end: bool,
) -> list[_Learned] | None:
    """Train a student by each of some methods, all from one teacher, to its best epoch."""
    checked = ready.checked
    made = [plan.build(hyper.dropout, derived_seed("student", seed) % 2**31) for _ in kinds]
    runs = [
        _student_run(ready, student, kind, seed, hyper, teacher)
        for student, kind in zip(made, kinds, strict=True)
    ]
    examples = ready.held_out.examples
    training = Training(
        runs,
        ready.train.tokens,
        HeldOut(
            ready.held_out.tokens,
            [example.id for example in examples],
            lambda logits: ready.judged.main(examples, logits),
            ready.seen,
        ),
        seed,
        checked.device,
        Checkpoints(str(folder)),
        keeps_end=keeps_end,
    )

    def tell(progress: RunProgress) -> None:
        phase = f"{called} seed {seed}: stage {progress.stage}, epoch {progress.epoch}"
        on_progress(TaskProgress(phase, progress.done, progress.total, progress.loss))

    if not training.run(tell, should_stop):
        return None
    for run in runs:
        if run.error is None:
            run.take_best()
    seconds = training.seconds / len(runs)
    return [_Learned(student, run, seconds) for student, run in zip(made, runs, strict=True)]


def _student_run(
    ready: ReadyTask,
    made: TaskModel,
    kind: type[Method],
    seed: int,
    hyper: Hyperparameters,
    teacher: TeacherOutputs,
) -> StudentRun:
    """A student and its method at their start."""
    checked, network = ready.checked, network_of(made)
    setting = replace(
        checked.setting(checked.teacher_shape, hyper.beta, derived_seed("method", seed)),
        student=network.shape,
    )
    student = TaskStudent(
        network,
        setting.space.size,
        classifies_layers=kind.needs_student_layers,
        reads_states=kind.needs_teacher_states,
        seed=derived_seed("student-layers", seed),
        centre=mean_number(checked.tuning),
    )
    return StudentRun(student, kind(setting), teacher, hyper, seed, checked.device, checked.dtype)
