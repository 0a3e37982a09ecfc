"""The look-up table of losses: every state that was ever trained, by context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import insert, locked
from kdnas.db.models import DistillationLoss, MiniKDContext
from kdnas.db.records import record_of
from kdnas.records import KnownLosses, Losses, MiniKDResult

_VALUES_A_STATEMENT = 10_000  # SQLite takes 32 766 at most, PostgreSQL 65 535


def save_context(session: Session, context: records.MiniKDContext) -> str:
    """Write down what a context's fingerprint means; returns the fingerprint."""
    name = context.fingerprint
    row = _locked_context(session, name)
    if row.content is None:
        row.content = asdict(context)
    return name


def known_losses(
    session: Session, context: str, architectures: Sequence[Architecture]
) -> dict[str, KnownLosses]:
    """Losses of the first repeat: architecture text → losses, of those that are known."""
    wanted = sorted({str(architecture) for architecture in architectures})
    known: dict[str, KnownLosses] = {}
    for start in range(0, len(wanted), _VALUES_A_STATEMENT):
        query = select(DistillationLoss).where(
            DistillationLoss.context == context,
            DistillationLoss.repeat == 1,
            DistillationLoss.architecture.in_(wanted[start : start + _VALUES_A_STATEMENT]),
        )
        known.update(
            (row.architecture, record_of(row, KnownLosses)) for row in session.scalars(query)
        )
    return known


def add_losses(session: Session, context: str, result: MiniKDResult, losses: Losses) -> int:
    """Store a student's losses as the next repeat of its state.

    The row of the context is locked meanwhile, so that two searches that end the same state at
    once do not claim the same repeat.

    Returns:
        The id of the row.
    """
    _locked_context(session, context)
    architecture = str(result.architecture)
    last = session.scalar(
        select(func.max(DistillationLoss.repeat)).where(
            DistillationLoss.context == context, DistillationLoss.architecture == architecture
        )
    )
    row = DistillationLoss(
        context=context,
        architecture=architecture,
        repeat=(last or 0) + 1,
        losses=losses,
        loss_start=result.loss_start,
        curve=[astuple(point) for point in result.curve],
        num_steps=result.steps,
        train_seconds=result.train_seconds,
    )
    session.add(row)
    session.flush()
    return row.id


def _locked_context(session: Session, fingerprint: str) -> MiniKDContext:
    new = insert(session, MiniKDContext).values(fingerprint=fingerprint)
    session.execute(new.on_conflict_do_nothing())
    row = locked(session, MiniKDContext, fingerprint)
    assert row is not None  # just written, or there before
    return row
