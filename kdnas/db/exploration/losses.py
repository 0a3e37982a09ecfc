"""The look-up table of losses: every state that was ever trained, by context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import utc_now
from kdnas.db.models import DistillationLoss, MiniKDContext
from kdnas.db.records import LossRecord
from kdnas.db.repository.upsert import insert
from kdnas.errors import NotFoundError
from kdnas.records import CurvePoint, KnownLosses, Losses, MiniKDResult

_VALUES_A_STATEMENT = 10_000  # SQLite takes 32 766 at most, PostgreSQL 65 535


def save_context(session: Session, context: records.MiniKDContext) -> str:
    """Write down what a context's fingerprint means; returns the fingerprint."""
    name = context.fingerprint
    row = _locked_context(session, name)
    if row.content is None:
        row.content = asdict(context)
        session.flush()
    return name


def get_context(session: Session, fingerprint: str) -> Mapping[str, Any] | None:
    """What a fingerprint means as plain JSON, None if nobody has said it.

    Raises:
        NotFoundError: the fingerprint was never used.
    """
    row = session.get(MiniKDContext, fingerprint)
    if row is None:
        raise NotFoundError(f"there is no context {fingerprint!r}; no loss was stored under it")
    return row.content


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
            (row.architecture, KnownLosses(_losses(row), row.loss_start))
            for row in session.scalars(query)
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
        loss_training=losses.training,
        loss_mean=losses.mean,
        loss_relative=losses.relative,
        loss_output=losses.output,
        loss_start=result.loss_start,
        curve=[[p.step, p.loss, p.learning_rate] for p in result.curve],
        num_steps=result.steps,
        train_seconds=result.train_seconds,
    )
    session.add(row)
    session.flush()
    return row.id


def list_losses(
    session: Session, context: str, architecture: Architecture | None = None
) -> list[LossRecord]:
    """All repeats of a context, or of one architecture in it, in order."""
    query = (
        select(DistillationLoss)
        .where(DistillationLoss.context == context)
        .order_by(DistillationLoss.architecture, DistillationLoss.repeat)
    )
    if architecture is not None:
        query = query.where(DistillationLoss.architecture == str(architecture))
    return [_record(row) for row in session.scalars(query)]


def _locked_context(session: Session, fingerprint: str) -> MiniKDContext:
    session.execute(
        insert(session, MiniKDContext)
        .values(fingerprint=fingerprint, created_at=utc_now())
        .on_conflict_do_nothing()
    )
    return session.scalars(
        select(MiniKDContext)
        .where(MiniKDContext.fingerprint == fingerprint)
        .with_for_update(key_share=True)
    ).one()


def _losses(row: DistillationLoss) -> Losses:
    return Losses(
        training=row.loss_training,
        mean=row.loss_mean,
        relative=row.loss_relative,
        output=row.loss_output,
    )


def _record(row: DistillationLoss) -> LossRecord:
    return LossRecord(
        context=row.context,
        architecture=Architecture.parse(row.architecture),
        repeat=row.repeat,
        losses=_losses(row),
        curve=tuple(CurvePoint(*point) for point in row.curve),
        steps=row.num_steps,
        train_seconds=row.train_seconds,
        created_at=row.created_at,
        loss_start=row.loss_start,
    )
