"""Which tasks an evaluation is about, and whether there is anything to evaluate them on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kdnas.errors import SpecError, TaskDataError, unknown_name
from kdnas.evaluation.data import available_tasks
from kdnas.evaluation.finding import find_files
from kdnas.evaluation.task import Task
from kdnas.evaluation.tasks import SUITES, find_task


def chosen_tasks(suite: str, names: Sequence[str]) -> tuple[Task, ...]:
    """Return the tasks of a suite that are named; all of them if none is.

    Raises:
        SpecError: an unknown suite, or a task that does not belong to it.
    """
    if suite not in SUITES:
        raise SpecError(unknown_name("suite", suite, SUITES))
    if not names:
        return tuple(find_task(name) for name in SUITES[suite])
    tasks = tuple(dict.fromkeys(find_task(name).name for name in names))
    stray = next((name for name in tasks if name not in SUITES[suite]), None)
    if stray is not None:
        raise SpecError(unknown_name(f"task of suite {suite}", stray, SUITES[suite]))
    return tuple(find_task(name) for name in tasks)


def tasks_with_data(suite: str, names: Sequence[str], data_dir: Path | None) -> tuple[Task, ...]:
    """Return those tasks that have data, by the names of files alone; nothing is read.

    Args:
        suite: name of the suite.
        names: tasks that must have data; without any, those of the suite that have some.
        data_dir: folder with the tasks' files; None takes the data sets of the hub.

    Raises:
        SpecError: an unknown suite or task.
        TaskDataError: there is nothing for a named task, or for all of the suite.
    """
    tasks = chosen_tasks(suite, names)
    if data_dir is None:
        found = tuple(task for task in tasks if task.hub is not None)
        lacking = [task.name for task in tasks if task.hub is None]
        if lacking and (names or not found):
            raise TaskDataError(
                f"the hub has no data set of {', '.join(lacking)}; give a folder as data_dir"
            )
        return found
    try:
        if not names:
            return tuple(available_tasks(tasks, data_dir))
        for task in tasks:
            find_files(task, data_dir)
    except OSError as error:
        raise TaskDataError(
            f"data folder {str(data_dir)!r} cannot be read: {error.strerror}; check it"
        ) from None
    return tasks
