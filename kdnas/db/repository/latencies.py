"""Latency tables: entries by profile, family and teacher."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from kdnas import records
from kdnas.architecture import Architecture
from kdnas.db.base import new_id, utc_now
from kdnas.db.models import Latency, LatencyProfile
from kdnas.db.records import LatencyProfileRecord
from kdnas.db.repository.upsert import insert
from kdnas.records import LatencyEntry, LatencyTable

_ROWS_A_STATEMENT = 500  # five values a row; SQLite takes 32 766 values in a statement


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
    known = _find(session, *key, lock=True)
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
    unfinished = _find(session, key[0], table.family + _UNFINISHED, key[2])
    if unfinished is not None:
        session.execute(delete(Latency).where(Latency.profile_id == unfinished.id))
        session.delete(unfinished)
    row.node = table.profile.node
    row.teacher_ms, row.build_seconds = table.teacher_ms, table.seconds
    row.quality, row.completed_at = dict(table.quality), utc_now()
    session.flush()
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
            id=new_id(),
            fingerprint=profile.fingerprint,
            family=family,
            teacher_fingerprint=teacher_fingerprint,
            device=profile.device,
            runtime=profile.runtime,
            num_threads=profile.threads,
            dtype=profile.dtype,
            length_tokens=profile.length,
            node=profile.node,
            quality={},
            created_at=utc_now(),
        )
        .on_conflict_do_nothing()
    )
    row = _find(session, profile.fingerprint, family, teacher_fingerprint)
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
    for start in range(0, len(rows), _ROWS_A_STATEMENT):
        statement = insert(session, Latency).values(rows[start : start + _ROWS_A_STATEMENT])
        session.execute(
            statement.on_conflict_do_update(
                index_elements=["profile_id", "architecture"],
                set_={
                    name: statement.excluded[name]
                    for name in ("latency_ms", "spread_ms", "measured")
                },
            )
        )
    return row


def load_latency_table(
    session: Session, profile_fingerprint: str, family: str, teacher_fingerprint: str
) -> LatencyTable | None:
    """Read a complete table; None if there is none, or if its build is not finished."""
    row = _find(session, profile_fingerprint, family, teacher_fingerprint)
    if row is None or row.teacher_ms is None:
        return None
    return LatencyTable(
        profile=_profile(row),
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
    row = _find(session, profile_fingerprint, family + _UNFINISHED, teacher_fingerprint)
    return {} if row is None else _entries(session, row.id)


def list_latency_profiles(session: Session) -> list[LatencyProfileRecord]:
    """All tables without their entries, the newest first."""
    query = (
        select(LatencyProfile, func.count(Latency.architecture))
        .outerjoin(Latency, Latency.profile_id == LatencyProfile.id)
        .group_by(LatencyProfile.id)
        .order_by(LatencyProfile.id.desc())
    )
    return [
        LatencyProfileRecord(
            id=row.id,
            profile=_profile(row),
            family=row.family,
            teacher_fingerprint=row.teacher_fingerprint,
            teacher_ms=row.teacher_ms,
            quality=row.quality,
            num_entries=num_entries,
            complete=row.completed_at is not None,
            created_at=row.created_at,
        )
        for row, num_entries in session.execute(query)
    ]


def _find(
    session: Session, fingerprint: str, family: str, teacher_fingerprint: str, lock: bool = False
) -> LatencyProfile | None:
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


def _profile(row: LatencyProfile) -> records.LatencyProfile:
    return records.LatencyProfile(
        device=row.device,
        runtime=row.runtime,
        threads=row.num_threads,
        dtype=row.dtype,
        length=row.length_tokens,
        node=row.node,
    )
