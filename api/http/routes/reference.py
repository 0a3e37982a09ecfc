"""What the papers report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kdnas.errors import NotFoundError, unknown_name
from kdnas.evaluation.reports.published import PublishedResult, papers, published

router = APIRouter(tags=["reference"])


@router.get("/reference")
def read_reference(
    paper: Annotated[str | None, Query(description="Such as trivedi2023.")] = None,
    table: Annotated[str | None, Query(description="Number of a table, such as 4.")] = None,
    task: Annotated[str | None, Query(description="Only with a figure of it: MNLI.")] = None,
) -> list[PublishedResult]:
    """List published results as the papers print them."""
    if paper is not None and not published(paper=paper):
        raise NotFoundError(unknown_name("paper", paper, papers()))
    return list(published(paper=paper, table=table, task=task))
