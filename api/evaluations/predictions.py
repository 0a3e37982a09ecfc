"""What a model said about each example, and class by class, beside the report of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from api.inputs.results import prediction_files
from api.jobs.files import folder_name
from kdnas.artefact import write_atomically
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.evaluation.reports.classes import class_tables, classes_as_markdown
from kdnas.evaluation.reports.picture import draw_confusion
from kdnas.evaluation.scoring.paired import Kept
from kdnas.settings import Settings

MOST_DRAWN = 60
"""Classes of a picture; more cannot be read."""


def put_predictions(
    folder: Path, records: Sequence[EvaluationRecord], database: Database, settings: Settings
) -> int:
    """Write what each model said on each task.

    In a folder a model that is ``TASK-seedN.jsonl``, and of a task with classes
    ``TASK-classes.md`` over all seeds and pictures ``TASK-SET-confusion.png``.

    Args:
        folder: for them; it is made if there are some.
        records: evaluations that have succeeded, of any models.
        database: that they are from.
        settings: of this process; predictions lie where they were made.

    Returns:
        How many files of predictions there are.
    """
    count = 0
    models = list(dict.fromkeys(record.model for record in records))
    short = [folder_name(Path(model).name) for model in models]
    for model, name in zip(models, short, strict=True):
        own = [record for record in records if record.model == model]
        found = database.ask(partial(prediction_files, records=own, settings=settings))
        # Folders of several models may end alike.
        place = folder / (name if short.count(name) == 1 else folder_name(model))
        for task, keys in groupby(sorted(found), key=lambda key: key[0]):
            files = {seed: found[task, seed] for _, seed in keys}
            place.mkdir(parents=True, exist_ok=True)
            _put_task(place, task, files)
            count += len(files)
    return count


def _put_task(place: Path, task: str, files: Mapping[int, Kept]) -> None:
    name = folder_name(task)
    for seed, kept in files.items():
        write_atomically(place / f"{name}-seed{seed}.jsonl", kept.path.read_bytes())
    tables = class_tables([kept.path for kept in files.values()])
    if not tables:
        return
    text = classes_as_markdown(task, list(files), tables)
    write_atomically(place / f"{name}-classes.md", text.encode())
    for table in tables:
        if table.confusion is not None and len(table.confusion.labels) <= MOST_DRAWN:
            picture = draw_confusion(table.confusion, f"{task}, {table.part}")
            write_atomically(place / f"{name}-{folder_name(table.part)}-confusion.png", picture)
