"""What happens, as it happens: Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, cast

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from api.http.dependencies import AccessDep, DatabaseDep
from api.http.errors import problem
from api.http.event_hub import MOST_STREAMS, EventHub
from api.http.schemas import Text
from api.http.security import client_of
from kdnas.db.engine import Database
from kdnas.db.repository import events, jobs

LARGEST_ID = 2**63 - 1

router = APIRouter(tags=["events"])


class EventStream(StreamingResponse):
    """A stream whose lines the hub has made.

    FastAPI's own response for event streams would make them anew for each client.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        lines: AsyncIterator[bytes],
        status_code: int = 200,  # which FastAPI looks for here
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(lines, status_code, headers)
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream, and then do what is to be done at the end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._at_end()


class EventQuery(BaseModel):
    """Which events; another parameter is refused, or everything would come instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: int | None = Field(None, ge=0, le=LARGEST_ID, description="Those after this number.")
    job: Text | None = Field(None, description="Id or name of a job; with those of its parts.")


@router.get("/events", response_class=EventStream)
async def stream_events(
    request: Request,
    database: DatabaseDep,
    access: AccessDep,
    query: Annotated[EventQuery, Query()],
    last_event_id: Annotated[
        int | None, Header(ge=0, le=LARGEST_ID, description="Counts more than `since`.")
    ] = None,
) -> Response:
    """Stream events: those after a number, then each as it happens."""

    async def is_let_in() -> bool:
        await access.issued.refresh()
        return access.user_of_request(request) is not None

    known = query.since if last_event_id is None else last_event_id
    job_id, position = await asyncio.to_thread(_beginning, database, query.job, known)
    hub = cast(EventHub, request.app.state.events)
    who = getattr(request.state.user, "name", None) or client_of(request)
    if not hub.take_place(who):
        return problem(
            429, f"{who} has {MOST_STREAMS} streams of events already; close some of them"
        )
    lines = hub.listen(job_id, position, is_let_in)
    return EventStream(lines, at_end=lambda: hub.leave_place(who))


def _beginning(database: Database, job: str | None, known: int | None) -> tuple[str | None, int]:
    """Id of the job that the stream is about, and the event after which it begins."""
    with database.read() as session:
        job_id = None if job is None else jobs.id_of(session, job)
        return job_id, events.last_event_id(session) if known is None else known
