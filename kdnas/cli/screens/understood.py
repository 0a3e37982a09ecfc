"""How data were understood, before anything is trained on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kdnas.cli.screens.console import bar, say_each, show_results
from kdnas.cli.tables.answers import print_json
from kdnas.errors import TaskDataError
from kdnas.paths import expanded

if TYPE_CHECKING:
    from kdnas.specs.evaluation import EvaluationPlanSpec


def show_understood(spec: EvaluationPlanSpec, as_json: bool) -> None:
    """Read the data of a request's tasks, and say what was understood.

    Tasks that were named must have data; of a whole suite those that have some are shown.

    Raises:
        SpecError: an unknown suite or task.
        TaskDataError: data that are not there or cannot be read.
    """
    from kdnas.evaluation.data.choosing import chosen_tasks
    from kdnas.evaluation.data.loading import left_out, load_task, what_is_amiss, without_plain
    from kdnas.evaluation.data.understood import understood

    found: dict[str, dict[str, Any]] = {}
    absent: dict[str, TaskDataError] = {}
    tasks = chosen_tasks(spec)
    folder = expanded(spec.data_dir) if spec.data_dir else None
    with bar("reading data", unit="tasks") as shown:
        for number, task in enumerate(tasks):
            shown.at(number, note=task.name)
            try:
                found[task.name] = understood(load_task(task, folder))
            except TaskDataError as error:
                if spec.tasks or len(tasks) == 1:
                    raise
                absent[task.name] = error
    if not found:
        raise what_is_amiss(tasks, absent)
    read = [task for task in tasks if task.name in found]
    absent = left_out(read, absent)
    if not spec.tasks:
        found = {task.name: found[task.name] for task in without_plain(read)}
    if as_json:
        print_json({"tasks": list(found.values())})
        return
    say_each(f"left out   {str(why).partition(': looked for')[0]}" for why in absent.values())
    for one in found.values():
        show_results(as_json)("\n".join(_lines(one)))


def _many(examples: int) -> str:
    return f"{examples} example{'' if examples == 1 else 's'}"


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    split = "" if one["official_split"] else "; not the official split"
    yield f"task       {one['task']}: {one['kind']}, by {', '.join(one['metrics'])}{split}"
    for file in one["files"]:
        about = f"; {file['about']}" if file["about"] else ""
        yield f"read       {file['source']}: {file['part']}, {_many(file['examples'])}{about}"
    for part in one["parts"]:
        labels = ", ".join(f"{label} {count:g}" for label, count in part["labels"].items())
        yield f"{part['part']:10} {_many(part['examples'])}" + (f": {labels}" if labels else "")
        for example in part["first"]:
            yield f"           {example}"
    for note in one["notes"]:
        yield f"note       {note}"
