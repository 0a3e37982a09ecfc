"""Sweeps: create, what was found out, and their states one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from kdnas.architecture import Architecture
from kdnas.db.exploration import losses
from kdnas.db.models import Sweep, SweepState
from kdnas.db.readings import reading_of, reading_row
from kdnas.db.records import OwnerKind, record_of
from kdnas.db.repository.jobs import add_job, get_job, locked_job
from kdnas.records import (
    JobRecord,
    LossName,
    MiniKDContext,
    MiniKDResult,
    SweepFacts,
    SweptState,
)


def create_sweep(
    session: Session,
    spec: Mapping[str, Any],
    *,
    name: str | None = None,
    owner_kind: OwnerKind = "cli",
) -> JobRecord:
    """Write a queued sweep, with an event.

    Raises:
        ConflictError: the name is taken.
    """
    row = add_job(session, Sweep, spec, name=name, owner_kind=owner_kind)
    return record_of(row, JobRecord)


def get_sweep(session: Session, reference: str) -> JobRecord:
    """Read a sweep by id or name.

    Raises:
        NotFoundError: there is neither.
    """
    return record_of(get_job(session, reference, Sweep), JobRecord)


def sweep_facts(session: Session, sweep_id: str) -> SweepFacts | None:
    """Return what preparing a sweep has found out; None before."""
    found = session.scalar(select(Sweep.facts).where(Sweep.id == sweep_id))
    return None if found is None else SweepFacts(**found)


def set_sweep_facts(session: Session, sweep_id: str, facts: SweepFacts) -> None:
    """Write down what preparing a sweep has found out; it goes on with that.

    States that failed are forgotten if a user has resumed it since it was prepared the last time.

    Raises:
        NotFoundError: no such sweep.
    """
    row = locked_job(session, sweep_id, Sweep)
    if row.facts is not None and SweepFacts(**row.facts).try_again:
        failed = _of(delete(SweepState), sweep_id).where(SweepState.error.is_not(None))
        session.execute(failed)
    row.facts = facts.to_json()


def add_state(
    session: Session,
    sweep_id: str,
    seed: int,
    index: int,
    result: MiniKDResult,
    context: str | None,
) -> None:
    """Write down what a state came to; one that is there is left as it is.

    Args:
        session: of a write transaction.
        sweep_id: of the sweep.
        seed: of its training.
        index: of the state in the space.
        result: what the worker said of it.
        context: fingerprint of its mini-KD context, in whose look-up table the losses of a whole
            training go as well; None of one that was only read.

    Raises:
        NotFoundError: no such sweep.
    """
    locked_job(session, sweep_id)
    if session.get(SweepState, (sweep_id, seed, index)) is not None:
        return
    session.add(
        SweepState(
            sweep_id=sweep_id,
            seed=seed,
            state_index=index,
            architecture=str(result.architecture),
            readings=[reading_row(reading) for reading in result.readings],
            error=result.error,
            train_seconds=result.train_seconds,
        )
    )
    known = context and losses.known_losses(session, context, [result.architecture])
    if context is not None and not known and result.succeeded and result.losses is not None:
        losses.add_losses(session, context, result, result.losses)


def swept(session: Session, sweep_id: str) -> set[tuple[int, int]]:
    """Seed and index of every state that is done."""
    query = select(SweepState.seed, SweepState.state_index)
    return {(seed, index) for seed, index in session.execute(_of(query, sweep_id))}


def swept_states(session: Session, sweep_id: str) -> Iterator[SweptState]:
    """What every state that is done came to, by index and seed."""
    query = select(
        SweepState.state_index,
        SweepState.architecture,
        SweepState.seed,
        SweepState.readings,
        SweepState.error,
        SweepState.train_seconds,
    ).order_by(SweepState.state_index, SweepState.seed)
    for row in session.execute(_of(query, sweep_id)):
        index, architecture, seed, readings, error, seconds = row
        read = tuple(reading_of(*values) for values in readings)
        yield SweptState(index, Architecture.parse(architecture), seed, read, error, seconds)


def known_starts(
    session: Session, context: MiniKDContext, loss: LossName
) -> dict[Architecture, float]:
    """Losses before the first step that sweeps have read of students that start alike.

    Args:
        session: to read with.
        context: of the trainings that would follow.
        loss: which of the losses.
    """
    found: dict[Architecture, float] = {}
    facts = select(Sweep.id, Sweep.facts).where(Sweep.facts.is_not(None)).order_by(Sweep.id)
    for sweep_id, known in session.execute(facts):
        there = MiniKDContext(**SweepFacts(**known).context)
        proxy = {**there.proxy, "seed": context.proxy["seed"]}
        if replace(there, proxy=proxy).start != context.start:
            continue
        for state in swept_states(session, sweep_id):
            if state.seed == context.proxy["seed"] and state.readings[:1]:
                first = state.readings[0]
                if first.step == 0:
                    found[state.architecture] = first.losses.named(loss)
    return found


def _of(query: Any, sweep_id: str) -> Any:
    return query.where(SweepState.sweep_id == sweep_id)
