"""The scores of a student in its own model card."""

from __future__ import annotations

from pathlib import Path

from api.evaluations.prepare import PreparedEvaluation
from kdnas.evaluation.card import is_student, write_scores
from kdnas.evaluation.report import Report


def add_to_card(prepared: PreparedEvaluation, report: Report) -> str | None:
    """Put a report into the card of the model that it is about, if that is a student of kdnas.

    Args:
        prepared: the evaluation.
        report: of it.

    Returns:
        Why the card could not be written, if so: the scores themselves are safe elsewhere.
    """
    folder: Path = prepared.model.folder
    if not prepared.spec.card or prepared.spec.variant or not is_student(folder):
        return None
    try:
        write_scores(folder, report)
    except OSError as error:
        return (
            f"the scores could not be written into the model card of {folder} ({error.strerror}); "
            "make the folder writable and run the same command again, or give --no-card"
        )
    return None
