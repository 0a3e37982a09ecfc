"""Latency tables that somebody asked the service for: how far their building is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import update
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import FINAL_STATUSES, LatencyBuild
from kdnas.db.records import LatencyBuildRecord
from kdnas.db.repository.events import ROW_LOCK
from kdnas.errors import NotFoundError
from kdnas.records import SearchStatus


def create_build(session: Session, spec: Mapping[str, Any]) -> LatencyBuildRecord:
    """Write a queued build; ``spec`` has ``teacher``, ``latency`` and perhaps ``space``."""
    row = LatencyBuild(spec=dict(spec), status="queued")
    session.add(row)
    session.flush()
    return _record(row)


def get_build(session: Session, build_id: str) -> LatencyBuildRecord:
    """Read a build.

    Raises:
        NotFoundError: no such build.
    """
    row = session.get(LatencyBuild, build_id)
    if row is None:
        raise NotFoundError(_unknown(build_id))
    return _record(row)


def locked_build(session: Session, build_id: str) -> LatencyBuild:
    """The row of a build, kept from other writers until the end of the transaction.

    Raises:
        NotFoundError: no such build.
    """
    row = session.get(LatencyBuild, build_id, with_for_update=ROW_LOCK, populate_existing=True)
    if row is None:
        raise NotFoundError(_unknown(build_id))
    return row


def set_build_status(
    session: Session,
    build_id: str,
    status: SearchStatus,
    error: str | None = None,
    *,
    profile_id: str | None = None,
) -> None:
    """Change a build's status; ``profile_id`` names the table that came out.

    Raises:
        NotFoundError: no such build.
    """
    row = locked_build(session, build_id)
    now = utc_now()
    row.status, row.error = status, error
    if status == "running" and row.started_at is None:
        row.started_at = now
    row.finished_at = now if status in FINAL_STATUSES else None
    if profile_id is not None:
        row.profile_id, row.share = profile_id, 1.0
    session.flush()


def note_build_share(session: Session, build_id: str, share: float) -> None:
    """Note how far a build is, from 0 to 1."""
    session.execute(update(LatencyBuild).where(LatencyBuild.id == build_id).values(share=share))


def _record(row: LatencyBuild) -> LatencyBuildRecord:
    return LatencyBuildRecord(
        id=row.id,
        spec=row.spec,
        status=cast(SearchStatus, row.status),
        share=row.share,
        profile_id=row.profile_id,
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _unknown(build_id: str) -> str:
    return f"there is no latency build {build_id!r}"
