"""Events as they happen, for any number of listeners.

One task of the process reads new events from the database while anybody listens, and keeps the
newest in a window. A listener has a position of its own and no queue: it takes from the window what
lies behind its position, and from the database what the window does not hold, be it that it asked
for the past or that it was too slow. So nothing is lost or repeated, and nothing grows.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import takewhile

import structlog

from api.http.schemas import EventShape
from kdnas.db.engine import Database
from kdnas.db.records import EventRecord
from kdnas.db.repository.events import events_since, last_event_id
from kdnas.errors import DatabaseError

POLL_SECONDS = 0.1
RETRY_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0
LET_IN_SECONDS = 1.0
PAGE = 500
WINDOW = 2000
MOST_STREAMS = 1000
"""Of one user, or of one address where nobody is asked for a token: a tenth of the connections."""

HELLO = b": kdnas\nretry: 2000\n\n"
KEEP_ALIVE = b": still here\n\n"

log = structlog.get_logger("kdnas.events")


async def _everybody() -> bool:
    return True


class EventHub:
    """Reads events once and gives them to all who listen; lives on one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._window: deque[tuple[EventRecord, bytes]] = deque()
        self._floor = self._last = 0  # the window holds all events above the one, up to the other
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._closed = False
        self._streams: Counter[str] = Counter()
        self.num_listeners = 0

    def take_place(self, who: str) -> bool:
        """Whether somebody may listen once more; if so he has to :meth:`leave_place` again."""
        if self._streams[who] >= MOST_STREAMS:
            return False
        self._streams[who] += 1
        return True

    def leave_place(self, who: str) -> None:
        """Have somebody listen once less."""
        self._streams[who] -= 1
        if not self._streams[who]:
            del self._streams[who]

    async def listen(
        self,
        job_id: str | None,
        position: int,
        is_let_in: Callable[[], Awaitable[bool]] = _everybody,
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a stream until the hub is closed, or the listener may hear no more.

        A stream also ends when the database is out of reach for what the window does not hold;
        its client comes back with the number of the last event that it got.

        Args:
            job_id: the job that the listener wants to hear of, with its parts; None is everything.
            position: number of the last event that it knows.
            is_let_in: whether the listener may hear still; asked every second.
        """
        loop = asyncio.get_running_loop()
        self.num_listeners += 1
        try:
            yield HELLO
            silent_until = loop.time() + KEEP_ALIVE_SECONDS
            while not self._closed and await is_let_in():
                self._see_to_polling()
                news = self._news
                if position < self._floor:
                    lines, position = await self._stored(job_id, position)
                else:
                    lines, position = self._fresh(job_id, position)
                if not lines and loop.time() >= silent_until:
                    lines = KEEP_ALIVE
                if lines:
                    yield lines
                    silent_until = loop.time() + KEEP_ALIVE_SECONDS
                elif position >= self._last:
                    await _wait(news, min(silent_until, loop.time() + LET_IN_SECONDS))
        except DatabaseError as error:
            log.warning("a stream of events was ended", error=str(error))
        finally:
            self.num_listeners -= 1

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    async def wait_closed(self) -> None:
        """End all streams and the reading."""
        self.close()
        if self._poller is not None:
            await asyncio.wait([self._poller])

    def _see_to_polling(self) -> None:
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="events")

    async def _poll(self) -> None:
        """Read new events while anybody listens."""
        begun = False
        while not self._closed and self.num_listeners:
            try:
                if not begun:
                    newest = await asyncio.to_thread(self._newest)
                    # Only now: who listens meanwhile still goes by the old window and its bounds.
                    self._window.clear()
                    self._floor = self._last = newest
                    begun = True
                    self._wake()
                page = await asyncio.to_thread(self._read, None, self._last)
            except DatabaseError as error:
                log.warning("events cannot be read; trying again", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._append(page)
            if len(page) < PAGE:
                await asyncio.sleep(POLL_SECONDS)

    def _append(self, page: list[EventRecord]) -> None:
        for event in page:
            self._window.append((event, _line(event)))
            self._last = event.id
        while len(self._window) > WINDOW:
            self._floor = self._window.popleft()[0].id
        if page:
            self._wake()

    def _fresh(self, job_id: str | None, position: int) -> tuple[bytes, int]:
        """What the window holds behind a position, and the position after it."""
        behind = takewhile(lambda item: item[0].id > position, reversed(self._window))
        about = (line for event, line in behind if job_id is None or _is_about(event, job_id))
        return b"".join(reversed([*about])), max(position, self._last)

    async def _stored(self, job_id: str | None, position: int) -> tuple[bytes, int]:
        """A page of what the database holds behind a position, and the position after it."""
        known = self._last  # everything up to here was committed before the page is read
        page = await asyncio.to_thread(self._read, job_id, position)
        lines = b"".join(map(_line, page))
        if len(page) == PAGE:
            return lines, page[-1].id
        return lines, max(known, page[-1].id if page else position)

    def _read(self, job_id: str | None, position: int) -> list[EventRecord]:
        with self._database.read() as session:
            return events_since(session, position, job_id=job_id, limit=PAGE)

    def _newest(self) -> int:
        with self._database.read() as session:
            return last_event_id(session)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


async def _wait(news: asyncio.Event, until: float) -> None:
    """Wait for news, but not longer than a line may stay silent."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await news.wait()


def _is_about(event: EventRecord, job_id: str) -> bool:
    """Whether who follows a job is told; its own end it does not outlive, but a page of it does."""
    if event.type.endswith("_deleted") and event.payload.get("job") == job_id:
        return True
    return job_id in {event.job_id, event.root_job_id}


def _line(event: EventRecord) -> bytes:
    data = EventShape.model_validate(event).model_dump_json()
    return f"id: {event.id}\nevent: {event.type}\ndata: {data}\n\n".encode()
