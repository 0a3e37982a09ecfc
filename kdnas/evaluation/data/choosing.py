"""Which tasks an evaluation is about, and whether there is anything to evaluate them on."""

from __future__ import annotations

import re
from dataclasses import replace

from kdnas.errors import SpecError, TaskDataError, told_at, unknown_name
from kdnas.evaluation.data.finding import find_files
from kdnas.evaluation.data.loading import available_tasks
from kdnas.evaluation.tasks.registry import SUITES, TASKS, find_task
from kdnas.evaluation.tasks.task import ColumnChoice, Task, own_task
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.evaluation import (
    OWN_SUITE,
    TASK_NAME_LENGTH,
    EvaluationPlanSpec,
    EvaluationSpec,
    OwnTaskSpec,
)
from kdnas.specs.task_distillation import TaskDistillationSpec


def chosen_tasks(spec: EvaluationPlanSpec) -> tuple[Task, ...]:
    """Return the tasks of a request's suite that it names; all of them if it names none.

    Raises:
        SpecError: an unknown suite, or a task that does not belong to it.
    """
    tasks = (_with_columns(task, spec) for task in _chosen(spec))
    if isinstance(spec, EvaluationSpec) and not spec.training:
        return tuple(replace(t, way="own head") if t.fine_tuned else t for t in tasks)
    return tuple(tasks)


def _chosen(spec: EvaluationPlanSpec) -> tuple[Task, ...]:
    suite = spec.suite
    if suite == OWN_SUITE:
        return (_own(spec),)
    if suite not in SUITES:
        raise SpecError(unknown_name("suite", suite, (*SUITES, OWN_SUITE)), field="suite")
    if not spec.tasks:
        return tuple(find_task(name) for name in SUITES[suite])
    with told_at("tasks"):
        tasks = tuple(dict.fromkeys(find_task(name).name for name in spec.tasks))
    stray = next((name for name in tasks if name not in SUITES[suite]), None)
    if stray is not None:
        raise SpecError(unknown_name(f"task of suite {suite}", stray, SUITES[suite]), field="tasks")
    return tuple(find_task(name) for name in tasks)


def _with_columns(task: Task, spec: EvaluationPlanSpec) -> Task:
    """Return a task whose files are read by the columns that the request names."""
    if spec.columns is None:
        return task
    choice = ColumnChoice(spec.columns.word, spec.columns.tag)
    return replace(task, layout=replace(task.layout, choice=choice))


def _own(spec: EvaluationPlanSpec) -> Task:
    """Return the user's task; by default it is called by its file, or by its folder.

    Of a long name it has the first letters, and blanks for control characters.
    """
    own = spec.own or OwnTaskSpec()
    stem = expanded(spec.data_dir or "").absolute().stem
    with told_at("own"):
        task = own_task(
            own.name or re.sub(r"[\x00-\x1f]", " ", stem)[:TASK_NAME_LENGTH],
            own.kind,
            text=own.text,
            pair=own.pair,
            label=own.label,
            metrics=own.metrics or None,
        )
    if spec.tasks not in ((), (task.name,)):
        raise SpecError(
            f"a task of your own is called {task.name!r}, not {', '.join(spec.tasks)!r}; give it "
            "another name in own.name",
            field="own.name",
        )
    return task


def plan_to_distil(spec: TaskDistillationSpec) -> EvaluationPlanSpec:
    """Return the task of distillations for one task, as an evaluation of it alone names it.

    Raises:
        SpecError: an unknown one, or of a kind that is not learned so.
    """
    if spec.own is not None:
        own = spec.own.model_copy(update={"name": spec.own.name or spec.task})
        return EvaluationPlanSpec(suite=OWN_SUITE, data_dir=spec.data_dir, own=own)
    try:
        task = find_task(spec.task)
    except SpecError:
        names = (task.name for task in TASKS.values() if task.is_distilled_for)
        raise SpecError(
            f"{unknown_name('task', spec.task, names)}; of a table of your own say which columns "
            "it has, with `own.text` and `own.label`",
            field="task",
        ) from None
    if not task.is_distilled_for:
        raise SpecError(
            f"task {task.name} is of kind {task.kind}, and students learn classifications and "
            f"regressions here; evaluate it, as a task of suite {task.suite}",
            field="task",
        )
    return EvaluationPlanSpec(suite=task.suite, tasks=(task.name,), data_dir=spec.data_dir)


def tasks_with_data(spec: EvaluationPlanSpec, reach: Reach = ANYWHERE) -> tuple[Task, ...]:
    """Return those tasks that have data, by the names of files alone; nothing is read.

    Tasks that are named must have data; of a whole suite, those that have some are returned.

    Raises:
        SpecError: an unknown suite or task.
        RequestError: a folder of the data is out of reach.
        TaskDataError: there is nothing for a named task, or for all of the suite.
    """
    tasks = chosen_tasks(spec)
    with told_at("data_dir"):
        return _with_data(tasks, spec, reach)


def _with_data(tasks: tuple[Task, ...], spec: EvaluationPlanSpec, reach: Reach) -> tuple[Task, ...]:
    names = spec.tasks
    if spec.data_dir is None:
        found = tuple(task for task in tasks if task.hub is not None)
        lacking = [task.name for task in tasks if task.hub is None]
        if lacking and (names or not found):
            raise TaskDataError(
                f"the hub has no data set of {', '.join(lacking)}; give a folder as data_dir"
            )
        return found
    data_dir = expanded(spec.data_dir)
    try:
        if not names:
            return tuple(available_tasks(tasks, data_dir, reach))
        for task in tasks:
            find_files(task, data_dir, reach)
    except OSError as error:
        raise TaskDataError(
            f"data folder {str(data_dir)!r} cannot be read: {error.strerror}; check it"
        ) from None
    return tasks
