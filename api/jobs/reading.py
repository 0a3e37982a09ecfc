"""Jobs as REST and the command line show them: a page of their list, and some in full."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from api.http.rendering import sorting
from api.jobs.kind import JobKind
from api.jobs.registry import kind_named, kinds
from api.jobs.schemas import JobQuery, KindQuery
from kdnas.db.engine import Session
from kdnas.db.lists import job_pages
from kdnas.db.lists.job_pages import Listing, Row
from kdnas.db.lists.pages import PageOf
from kdnas.db.models import Job
from kdnas.db.repository import jobs

ANY: Final = JobKind(table=Job, plural="jobs", run=None, query=JobQuery)
"""Jobs of every kind, shown alike."""


def read_page(session: Session, query: KindQuery, kind: JobKind = ANY) -> PageOf[Row]:
    """Read a page of jobs; each row is of the shape that its kind has.

    Raises:
        SpecError: there is no such kind.
        NotFoundError: a job that the query names is not there.
        RequestError: the cursor is that of another list.
    """
    for name in getattr(query, "kind", ()):
        kind_named(name)
    sort, descending = sorting(query.sort)
    return job_pages.list_jobs(
        session,
        query.given,
        _listing(kind),
        sort=sort,
        descending=descending,
        limit=query.limit,
        cursor=query.cursor,
    )


def read_job(session: Session, reference: str, kind: JobKind = ANY) -> Row:
    """Read one job by id or name, in the detail that its kind has.

    Raises:
        NotFoundError: there is none; says which name is nearest.
        ConflictError: jobs of several kinds have the name.
    """
    (row,) = read_jobs(session, [jobs.id_of(session, reference, kind.table)], kind)
    return row


def read_jobs(session: Session, ids: Collection[str], kind: JobKind = ANY) -> list[Row]:
    """Read jobs in the detail that their kind has, in the order given."""
    rows = job_pages.read_in_full(session, ids, _listing(kind))
    return [{**row, "href": page_of(kinds().get(row["kind"]), row["id"])} for row in rows]


def page_of(kind: JobKind | None, job_id: str) -> str:
    """Return where the dashboard shows a job: on its kind's own page, or among all jobs."""
    return f"/{kind.path}/{job_id}" if kind is not None and kind.has_page else f"/jobs/{job_id}"


def _listing(kind: JobKind) -> Listing:
    return kind.listing or Listing(kind.table)
