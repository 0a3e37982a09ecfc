"""The look-up table of losses: every state that was ever trained, by context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import insert, locked
from kdnas.db.models import Candidate, DistillationLoss, MiniKDContext
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


def newest_losses(session: Session) -> int:
    """Id of the newest row of the look-up table, or 0: while it is the same, the table is."""
    return session.scalar(select(func.max(DistillationLoss.id))) or 0


def losses_by_seed(session: Session, search_id: str) -> dict[str, list[Losses]]:
    """Losses of all states that were trained as a search's are, be it with another seed.

    Of a seed the first repeat counts: on a CPU the others are the same to the bit, which would pass
    for a training without noise.

    Args:
        session: to read with.
        search_id: of a search; one that has no losses yet, or whose context nobody has
            written down, finds nothing.

    Returns:
        Architecture → losses, one for each seed.
    """
    own = context_of(session, search_id)
    if own is None:
        return {}
    known = session.execute(select(MiniKDContext.fingerprint, MiniKDContext.content))
    alike = [name for name, content in known if content and _seedless(content) == _seedless(own)]
    query = (
        select(DistillationLoss)
        .where(DistillationLoss.context.in_(alike), DistillationLoss.repeat == 1)
        .order_by(DistillationLoss.id)
    )
    found: dict[str, list[Losses]] = {}
    for row in session.scalars(query):
        found.setdefault(row.architecture, []).append(row.losses)
    return found


def context_of(session: Session, search_id: str) -> Mapping[str, Any] | None:
    """What decides the losses of a search beside architectures, as plain JSON.

    None if it has no losses yet, or if nobody has written the context down.
    """
    row = session.get(MiniKDContext, _context_name(session, search_id) or "")
    return None if row is None else row.content


def _context_name(session: Session, search_id: str) -> str | None:
    """The context of a search: that of any of its students, trained or looked up."""
    trained = (
        select(DistillationLoss.context)
        .join(Candidate, Candidate.distillation_loss_id == DistillationLoss.id)
        .where(Candidate.search_id == search_id)
    )
    figures = ("architecture", "loss_training", "loss_mean", "loss_relative", "loss_output")
    looked_up = (
        select(DistillationLoss.context)
        .join(
            Candidate,
            and_(*(getattr(Candidate, f) == getattr(DistillationLoss, f) for f in figures)),
        )
        .where(Candidate.search_id == search_id, Candidate.reused)
    )
    return session.scalar(trained.limit(1)) or session.scalar(looked_up.limit(1))


def _seedless(content: Mapping[str, Any]) -> dict[str, Any]:
    """A context without its seed, and without epochs where steps are what counts."""
    proxy = dict(content["proxy"])
    left_out = {"seed", "epochs"} if proxy.get("steps") is not None else {"seed"}
    return {**content, "proxy": {k: v for k, v in proxy.items() if k not in left_out}}


def _locked_context(session: Session, fingerprint: str) -> MiniKDContext:
    new = insert(session, MiniKDContext).values(fingerprint=fingerprint)
    session.execute(new.on_conflict_do_nothing())
    row = locked(session, MiniKDContext, fingerprint)
    assert row is not None  # just written, or there before
    return row
