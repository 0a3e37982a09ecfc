"""Latency tables: entries by profile, family and teacher."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import insert, utc_now
from kdnas.db.models import Latency, LatencyBuild, LatencyProfile
from kdnas.db.repository.jobs import change_status, locked_job
from kdnas.records import LatencyEntry, LatencyTable

_UNFINISHED = ", unfinished"
"""Added to the family of a table that is being measured: apart from a whole one of the same key,
whose ratios would be wrong with entries of another build in it."""


def save_latency_table(session: Session, table: LatencyTable) -> str:
    """Write a whole table and mark it complete; entries that were there before are replaced.

    Entries of other states stay, scaled to the new time of the teacher: every ratio is the one to
    the teacher of its own build.

    Returns:
        The id of its profile.
    """
    key = (table.profile.fingerprint, table.family, table.teacher_fingerprint)
    known = find_profile(session, *key, lock=True)
    if known is not None:
        others = Latency.profile_id == known.id
        if known.teacher_ms is None:  # unfinished, of an earlier version
            session.execute(delete(Latency).where(others))
        elif known.teacher_ms != table.teacher_ms:
            scale = table.teacher_ms / known.teacher_ms
            scaled = {
                "latency_ms": Latency.latency_ms * scale,
                "spread_ms": Latency.spread_ms * scale,
            }
            session.execute(update(Latency).where(others).values(scaled))
    row = _write(
        session, table.profile, table.family, table.teacher_fingerprint, table.entries.values()
    )
    unfinished = find_profile(session, key[0], table.family + _UNFINISHED, key[2])
    if unfinished is not None:
        session.delete(unfinished)  # with its entries
    row.node = table.profile.node
    row.teacher_ms, row.build_seconds = table.teacher_ms, table.seconds
    row.quality, row.completed_at = dict(table.quality), utc_now()
    return row.id


def save_latency_entries(
    session: Session,
    profile: records.LatencyProfile,
    family: str,
    teacher_fingerprint: str,
    entries: Iterable[LatencyEntry],
) -> str:
    """Write some entries of a table that is being built, so that the build can be resumed.

    Returns:
        The id of the profile that they are kept under until :func:`save_latency_table`.
    """
    return _write(session, profile, family + _UNFINISHED, teacher_fingerprint, entries).id


def _write(
    session: Session,
    profile: records.LatencyProfile,
    family: str,
    teacher_fingerprint: str,
    entries: Iterable[LatencyEntry],
) -> LatencyProfile:
    session.execute(
        insert(session, LatencyProfile)
        .values(
            fingerprint=profile.fingerprint,
            family=family,
            teacher_fingerprint=teacher_fingerprint,
            device=profile.device,
            runtime=profile.runtime,
            num_threads=profile.threads,
            dtype=profile.dtype,
            length_tokens=profile.length,
            node=profile.node,
        )
        .on_conflict_do_nothing()
    )
    row = find_profile(session, profile.fingerprint, family, teacher_fingerprint)
    assert row is not None
    rows = [
        {
            "profile_id": row.id,
            "architecture": str(entry.architecture),
            "latency_ms": entry.latency_ms,
            "spread_ms": entry.spread_ms,
            "measured": entry.measured,
        }
        for entry in entries
    ]
    if rows:
        statement = insert(session, Latency)
        measured = ("latency_ms", "spread_ms", "measured")
        values = {name: statement.excluded[name] for name in measured}
        key = ["profile_id", "architecture"]
        session.execute(statement.on_conflict_do_update(index_elements=key, set_=values), rows)
    return row


def load_latency_table(
    session: Session, profile_fingerprint: str, family: str, teacher_fingerprint: str
) -> LatencyTable | None:
    """Read a complete table; None if there is none, or if its build is not finished."""
    row = find_profile(session, profile_fingerprint, family, teacher_fingerprint)
    if row is None or row.teacher_ms is None:
        return None
    return LatencyTable(
        profile=row.profile,
        family=row.family,
        teacher_fingerprint=row.teacher_fingerprint,
        teacher_ms=row.teacher_ms,
        entries=_entries(session, row.id),
        quality=row.quality,
        seconds=row.build_seconds or 0.0,
    )


def load_latency_entries(
    session: Session, profile_fingerprint: str, family: str, teacher_fingerprint: str
) -> dict[str, LatencyEntry]:
    """Entries so far of a table that is being built: architecture text → entry."""
    row = find_profile(session, profile_fingerprint, family + _UNFINISHED, teacher_fingerprint)
    return {} if row is None else _entries(session, row.id)


def find_profile(
    session: Session, fingerprint: str, family: str, teacher_fingerprint: str, lock: bool = False
) -> LatencyProfile | None:
    """Find a table, be it complete or not; ``lock`` keeps it from other writers."""
    query = select(LatencyProfile).where(
        LatencyProfile.fingerprint == fingerprint,
        LatencyProfile.family == family,
        LatencyProfile.teacher_fingerprint == teacher_fingerprint,
    )
    return session.scalar(query.with_for_update() if lock else query)


def _entries(session: Session, profile_id: str) -> dict[str, LatencyEntry]:
    query = select(
        Latency.architecture, Latency.latency_ms, Latency.spread_ms, Latency.measured
    ).where(Latency.profile_id == profile_id)
    return {
        text: LatencyEntry(Architecture.parse(text), latency_ms, spread_ms, measured)
        for text, latency_ms, spread_ms, measured in session.execute(query)
    }


def set_built(session: Session, build_id: str, profile_id: str) -> None:
    """Write down that a build has succeeded, and which table came out.

    Raises:
        NotFoundError: no such build.
    """
    row = locked_job(session, build_id, LatencyBuild)
    row.profile_id, row.done, row.total = profile_id, 100, 100
    change_status(session, row, "succeeded")
