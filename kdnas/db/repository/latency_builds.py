"""Latency tables that somebody asked the service for: how far their building is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy.orm import Session

from kdnas.db.models import LatencyBuild
from kdnas.db.records import LatencyBuildRecord
from kdnas.db.repository.jobs import change_status, get_job, locked_job
from kdnas.db.repository.names import add_job
from kdnas.records import SearchStatus


def create_build(session: Session, spec: Mapping[str, Any]) -> LatencyBuildRecord:
    """Write a queued build; ``spec`` has ``teacher``, ``latency`` and perhaps ``space``."""
    return _record(add_job(session, LatencyBuild, spec, stem="latency"))


def get_build(session: Session, build_id: str) -> LatencyBuildRecord:
    """Read a build.

    Raises:
        NotFoundError: no such build.
    """
    return _record(get_job(session, build_id, LatencyBuild))


def set_built(session: Session, build_id: str, profile_id: str) -> None:
    """Write down that a build has succeeded, and which table came out.

    Raises:
        NotFoundError: no such build.
    """
    row = locked_job(session, build_id, LatencyBuild)
    row.profile_id, row.done, row.total = profile_id, 100, 100
    change_status(session, row, "succeeded")


def _record(row: LatencyBuild) -> LatencyBuildRecord:
    return LatencyBuildRecord(
        id=row.id,
        spec=row.spec,
        status=cast(SearchStatus, row.status),
        share=(row.done or 0) / (row.total or 100),
        profile_id=row.profile_id,
        error=row.error,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )
