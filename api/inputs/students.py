"""Students that requests name by the distillation that made them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from kdnas.db.engine import Database, Session
from kdnas.db.records import DistillationRecord
from kdnas.db.repository import distillations
from kdnas.errors import ConflictError
from kdnas.reach import Reach
from kdnas.settings import Settings

DISTILLATION: Final = "distillation:"
"""Before the id or name of a distillation whose student is meant."""


def names_distillation(text: str) -> bool:
    """Whether a distillation is named, and not a model."""
    return text.startswith(DISTILLATION)


def distillation_with_student(session: Session, text: str) -> tuple[DistillationRecord, str]:
    """Find the distillation that is named, and the folder of its student.

    A student may lie where a request may not look; one that is named by its run may be read.

    Args:
        session: of any transaction.
        text: ``distillation:`` and an id or a name.

    Raises:
        NotFoundError: no such distillation.
        ConflictError: it has no student yet.
    """
    found = distillations.get_distillation(session, text.removeprefix(DISTILLATION))
    if found.status != "succeeded" or found.output_path is None:
        comes = found.status in ("queued", "running")
        way = "wait until it has succeeded" if comes else "name one that has succeeded"
        raise ConflictError(
            f"distillation {found.name!r} is {found.status} and has no student yet; {way}"
        )
    return found, found.output_path


def reach_with_students(folders: Collection[str], database: Database, settings: Settings) -> Reach:
    """Say what a request may lead to: beside the data roots students of the command line.

    One that was named by its run may be read wherever the command has put it.

    Args:
        folders: that stand where students are named.
        database: that knows which distillation has put what where.
        settings: of the process that does the work.
    """
    reach = settings.reach
    if not reach.limited:
        return reach

    def made_here(session: Session) -> list[str]:
        return [one for one in folders if distillations.is_output_of_command(session, one)]

    for folder in database.ask(made_here):
        reach = reach.and_folder(Path(folder))
    return reach
