"""What happens, as it happens: Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, cast

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.http.dependencies import DatabaseDep
from api.http.event_hub import EventHub, Subject
from kdnas.db.engine import Database
from kdnas.db.repository import distillations, events, pipelines, searches
from kdnas.errors import RequestError

LARGEST_ID = 2**63 - 1

router = APIRouter(tags=["events"])


class EventStream(StreamingResponse):
    """A stream whose lines the hub has made.

    FastAPI's own response for event streams would make them anew for each client.
    """

    media_type = "text/event-stream"


EventNumber = Annotated[int | None, Query(ge=0, le=LARGEST_ID)]


@router.get("/events", response_class=EventStream)
async def stream_events(
    request: Request,
    database: DatabaseDep,
    since: EventNumber = None,
    search: Annotated[str | None, Query(description="Id or name.")] = None,
    distillation: Annotated[str | None, Query(description="Id or name.")] = None,
    pipeline: Annotated[
        str | None, Query(description="Id or name; with the events of all its parts.")
    ] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=LARGEST_ID, description="Counts more than `since`.")
    ] = None,
) -> Response:
    """Stream events: those after a number, then each as it happens."""
    known = since if last_event_id is None else last_event_id
    given = {"search": search, "distillation": distillation, "pipeline": pipeline}
    subject, position = await asyncio.to_thread(_beginning, database, given, known)
    hub = cast(EventHub, request.app.state.events)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(hub.listen(subject, position), headers=headers)


def _beginning(
    database: Database, given: Mapping[str, str | None], known: int | None
) -> tuple[Subject, int]:
    """What the stream is about, and the event after which it begins."""
    subjects = [(name, text) for name, text in given.items() if text is not None]
    if len(subjects) > 1:
        named = " and ".join(f"{name}={text}" for name, text in subjects)
        raise RequestError(f"a stream is about one subject, not {named}; give one")
    with database.read() as session:
        subject = Subject()
        for name, text in subjects:
            if name == "search":
                subject = Subject(search_id=searches.get_search(session, text).id)
            elif name == "distillation":
                found = distillations.get_distillation(session, text)
                subject = Subject(distillation_id=found.id)
            else:
                subject = Subject(pipeline_id=pipelines.get_pipeline(session, text).id)
        return subject, events.last_event_id(session) if known is None else known
