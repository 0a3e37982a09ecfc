"""Latency tables, their entries and their builds as lists."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from kdnas.architecture import Architecture
from kdnas.db.lists.job_pages import Listing, Row
from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Latency, LatencyBuild, LatencyProfile
from kdnas.errors import NotFoundError

SORTS: Final[dict[str, InstrumentedAttribute[Any]]] = {
    "latency_ms": Latency.latency_ms,
    "architecture": Latency.architecture,
}

_MEASURED: Final[tuple[Any, ...]] = (
    Latency.latency_ms,
    Latency.spread_ms,
    Latency.measured,
    (Latency.latency_ms / func.nullif(LatencyProfile.teacher_ms, 0)).label("latency_ratio"),
)


def list_tables(session: Session, *, limit: int = 50, cursor: str | None = None) -> PageOf[Row]:
    """Read a page of latency tables without their entries, the newest first.

    Raises:
        RequestError: the cursor is that of another list.
    """
    order = Order(LatencyProfile.created_at, LatencyProfile.id, descending=True)
    query = select(*_table_columns())
    return as_dicts(read_page(session, query, order, {"list": "tables"}, limit, cursor))


def read_table(session: Session, table_id: str) -> Row:
    """Read one latency table without its entries.

    Raises:
        NotFoundError: there is none with this id.
    """
    known = "\0" not in table_id  # no text to PostgreSQL
    query = select(*_table_columns()).where(LatencyProfile.id == table_id)
    row = session.execute(query).one_or_none() if known else None
    if row is None:
        raise NotFoundError(
            f"there is no latency table {table_id!r}; GET /api/v1/latency-tables lists all"
        )
    return dict(row._mapping)


def list_entries(
    session: Session,
    table_id: str,
    *,
    sort: str = "latency_ms",
    descending: bool = False,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[Row]:
    """Read a page of a table's entries.

    Args:
        session: to read with.
        table_id: the table.
        sort: one of :data:`SORTS`.
        descending: from the largest down.
        limit: length of the page.
        cursor: of the page before.

    Raises:
        RequestError: the cursor is that of another list.
    """
    query = (
        select(Latency.architecture, *_MEASURED)
        .join(LatencyProfile, LatencyProfile.id == Latency.profile_id)
        .where(Latency.profile_id == table_id)
    )
    scope = {"list": "entries", "table": table_id, "sort": sort, "descending": descending}
    order = Order(SORTS[sort], Latency.architecture, descending)
    return as_dicts(read_page(session, query, order, scope, limit, cursor))


def known_latencies(session: Session, architecture: Architecture) -> list[Row]:
    """What every table says of an architecture, the newest table first."""
    query = (
        select(
            LatencyProfile.id.label("latency_table_id"),
            LatencyProfile.device,
            LatencyProfile.runtime,
            LatencyProfile.num_threads.label("threads"),
            LatencyProfile.dtype,
            LatencyProfile.length_tokens.label("length"),
            LatencyProfile.family,
            LatencyProfile.teacher_ms,
            *_MEASURED,
        )
        .join(Latency, Latency.profile_id == LatencyProfile.id)
        .where(Latency.architecture == str(architecture))
        .order_by(LatencyProfile.id.desc())
    )
    return [dict(row._mapping) for row in session.execute(query)]


def _table_columns() -> list[Any]:
    entries = (
        select(func.count())
        .select_from(Latency)
        .where(Latency.profile_id == LatencyProfile.id)
        .correlate(LatencyProfile)
        .scalar_subquery()
    )
    return [
        LatencyProfile.id,
        LatencyProfile.device,
        LatencyProfile.runtime,
        LatencyProfile.num_threads.label("threads"),
        LatencyProfile.dtype,
        LatencyProfile.length_tokens.label("length"),
        LatencyProfile.node,
        LatencyProfile.family,
        LatencyProfile.teacher_fingerprint,
        LatencyProfile.teacher_ms,
        LatencyProfile.quality,
        LatencyProfile.completed_at.is_not(None).label("complete"),
        entries.label("num_entries"),
        LatencyProfile.build_seconds,
        LatencyProfile.created_at,
        LatencyProfile.completed_at,
    ]


BUILDS: Final = Listing(
    LatencyBuild,
    columns={"latency_table_id": LatencyBuild.profile_id, "spec": LatencyBuild.spec},
)
"""The list of what was asked for."""
