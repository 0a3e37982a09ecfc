"""Pipelines as REST and the command line show them: a page of their list."""

from __future__ import annotations

from api.http.rendering import sorting
from api.pipelines.schemas import PipelineQuery
from kdnas.db.engine import Session
from kdnas.db.lists import pipeline_pages
from kdnas.db.lists.pages import PageOf


def read_page(session: Session, query: PipelineQuery) -> PageOf[pipeline_pages.Row]:
    """Read a page of pipelines; each row is a :class:`~api.pipelines.schemas.PipelineShape`.

    Raises:
        RequestError: the cursor is that of another list.
    """
    sort, descending = sorting(query.sort)
    return pipeline_pages.list_pipeline_page(
        session,
        query.filter(),
        sort=sort,
        descending=descending,
        limit=query.limit,
        cursor=query.cursor,
    )
