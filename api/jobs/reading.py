"""Jobs as REST and the command line show them: a page of their list, and one in full."""

from __future__ import annotations

from typing import Any

from api.http.rendering import sorting
from api.jobs.kind import JobKind
from api.jobs.registry import kind_named, kinds
from api.jobs.schemas import JobQuery
from kdnas.db.engine import Session
from kdnas.db.lists import job_pages
from kdnas.db.lists.pages import PageOf
from kdnas.db.repository import jobs


def read_page(session: Session, query: JobQuery) -> PageOf[job_pages.Row]:
    """Read a page of jobs of any kind; each row is a :class:`~api.jobs.schemas.JobShape`.

    Raises:
        SpecError: there is no such kind.
        NotFoundError: there is no such parent.
        RequestError: the cursor is that of another list.
    """
    for name in query.kind:
        kind_named(name)
    sort, descending = sorting(query.sort)
    parent = None if query.parent is None else jobs.get_job(session, query.parent).id
    return job_pages.list_jobs(
        session,
        query.filter(parent),
        sort=sort,
        descending=descending,
        limit=query.limit,
        cursor=query.cursor,
    )


def read_job(session: Session, job_id: str) -> dict[str, Any]:
    """Read one job, which has to be there, as a :class:`~api.jobs.schemas.JobDetail`."""
    row = job_pages.read_job(session, job_id)
    return {**row, "href": page_of(kinds().get(row["kind"]), job_id)}


def page_of(kind: JobKind | None, job_id: str) -> str:
    """Return where the dashboard shows a job: on its kind's own page, or among all jobs."""
    return f"/{kind.path}/{job_id}" if kind is not None and kind.has_page else f"/jobs/{job_id}"
