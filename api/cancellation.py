"""Cancelling a distillation: at once, or by the process that works on it."""

from __future__ import annotations

from dataclasses import dataclass

from api.run_files import remove_run_files
from kdnas.db.engine import Database
from kdnas.db.models import Distillation
from kdnas.db.records import DistillationRecord, LeaseHolder
from kdnas.db.repository import distillations, leases
from kdnas.db.repository.transitions import apply_action
from kdnas.errors import ConflictError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec


@dataclass(frozen=True)
class Cancellation:
    """A cancelled distillation, and who worked on it at that moment, if anybody did."""

    record: DistillationRecord
    holder: LeaseHolder | None


def cancel_stored_distillation(
    reference: str, database: Database, settings: Settings
) -> Cancellation:
    """Cancel a distillation for good and see to it that its checkpoints go.

    A process that works on it stops within seconds and removes them itself; where nobody does,
    they are removed here.

    Args:
        reference: id or name.
        database: where it is stored.
        settings: of the environment.

    Raises:
        NotFoundError: there is no such distillation.
        ConflictError: it has succeeded, or is cancelled already.
    """
    with database.read() as session:
        record = distillations.get_distillation(session, reference)
    try:
        with database.write() as session:
            apply_action(session, Distillation, record.id, "cancel")
            record = distillations.get_distillation(session, record.id)
            holder = leases.holder(session, Distillation, record.id)
    except ConflictError:
        with database.read() as session:
            worked_on = leases.holder(session, Distillation, record.id) is not None
        if not worked_on:
            _remove_files(record, settings)  # a kill may have left them
        raise
    if holder is None:
        _remove_files(record, settings)
    return Cancellation(record, holder)


def _remove_files(record: DistillationRecord, settings: Settings) -> None:
    spec = DistillationSpec.read(dict(record.spec), f"distillation {record.name!r}")
    remove_run_files(spec, settings, record.id)
