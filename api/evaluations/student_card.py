"""The scores of a student in its own model card."""

from __future__ import annotations

from pathlib import Path

from api.evaluations.prepare import PreparedEvaluation
from kdnas.errors import RequestError
from kdnas.evaluation.reports.card import is_student, write_scores
from kdnas.evaluation.reports.report import Report
from kdnas.reach import ANYWHERE


def add_to_card(prepared: PreparedEvaluation, report: Report) -> str | None:
    """Put a report into the card of the model that it is about, if that is a student of kdnas.

    Args:
        prepared: the evaluation.
        report: of it.

    Returns:
        Why the card could not be written, if so: the scores themselves are safe elsewhere.
    """
    source = prepared.model.source
    folder: Path = source or prepared.model.folder
    reach = prepared.reach if source else ANYWHERE
    if not prepared.spec.card or prepared.spec.variant:
        return None
    try:
        if is_student(folder, reach):
            write_scores(folder, report, reach)
    except RequestError as error:
        return f"the scores could not be written into a model card: {error}"
    except OSError as error:
        return (
            f"the scores could not be written into the model card of {folder} ({error.strerror}); "
            "make the folder writable and run the same command again, or give --no-card"
        )
    return None
