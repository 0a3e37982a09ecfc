"""What a model said about each example, beside the report of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from api.evaluations.command import folder_name
from api.inputs.results import prediction_files
from kdnas.artefact import write_atomically
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.settings import Settings


def put_predictions(
    folder: Path, records: Sequence[EvaluationRecord], database: Database, settings: Settings
) -> int:
    """Write a file of predictions for each task and seed, ``MODEL/TASK-seedN.jsonl``.

    Args:
        folder: for them; it is made if there are some.
        records: evaluations that have succeeded, of any models.
        database: that they are from.
        settings: of this process; predictions lie where they were made.

    Returns:
        How many files there are.
    """
    count = 0
    for model in dict.fromkeys(record.model for record in records):
        own = [record for record in records if record.model == model]
        with database.read() as session:
            found = prediction_files(session, own, settings)
        place = folder / folder_name(Path(model).name)
        for (task, seed), kept in sorted(found.items()):
            place.mkdir(parents=True, exist_ok=True)
            write_atomically(
                place / f"{folder_name(task)}-seed{seed}.jsonl", kept.path.read_bytes()
            )
            count += 1
    return count
