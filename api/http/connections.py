"""How many connections are open at a time, and how long one may take to say what it wants.

A connection costs its file descriptor from the moment it is taken, and whoever opens thousands and
says nothing would leave none for anybody else. So a request has to be there in whole within a time,
and its answer has to be read; and where there are too many connections, the one that has said
nothing for the longest makes room, or else the one that has not read its answer for the longest.
What comes before a body is bounded as well, since nobody else would count it.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 10_000
MOST_ACCEPTED = 2048
"""Connections that may wait to be taken, all of which the event loop takes at one go."""
REQUEST_SECONDS = 30.0
"""From a connection, or the first byte of a later request, to the last byte of it."""
UNREAD_SECONDS = 60.0
"""Without a piece of an answer being read that waits to be."""
MOST_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers; a first piece that arrives at one go may be larger."""
LINE_SECONDS = 60.0
"""Between two lines of the log about closed connections: a flood must not fill the disk."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Room:
    """How many connections there is room for.

    Attributes:
        connections: that are open at a time.
        backlog: that wait to be taken.
    """

    connections: int
    backlog: int


def make_room() -> Room:
    """Let this process have as many file descriptors as it may, and share them out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = MOST_CONNECTIONS + 2 * MOST_ACCEPTED
    if soft == resource.RLIM_INFINITY:
        return _shared_out(enough)
    wanted = max(soft, enough) if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS promises any number, and has a limit of its own
            wanted = soft
    return _shared_out(wanted)


def _shared_out(descriptors: int) -> Room:
    return Room(min(MOST_CONNECTIONS, descriptors // 2), min(MOST_ACCEPTED, descriptors // 4))


class Waiting:
    """The connections that have no whole request or do not read, those that wait longest first.

    Args:
        most: connections that may be open.
        seconds: until a request is there.
        unread_seconds: until some of an answer is read.
        clock: to tell the time.
    """

    def __init__(
        self,
        most: int,
        seconds: float = REQUEST_SECONDS,
        unread_seconds: float = UNREAD_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.most = most
        self.seconds = seconds
        self.unread_seconds = unread_seconds
        self._clock = clock
        self._connections: dict[Connection, None] = {}
        self._unread: dict[Connection, None] = {}
        self._closed = 0
        self._last_line: float | None = None

    def add(self, connection: Connection) -> None:
        """Have a connection wait, from now on."""
        self.remove(connection)
        self._connections[connection] = None

    def remove(self, connection: Connection) -> None:
        """Have it wait no longer, if it did."""
        self._connections.pop(connection, None)

    def add_unread(self, connection: Connection) -> None:
        """Note that a connection does not read its answer, from now on."""
        self._unread[connection] = None

    def remove_unread(self, connection: Connection) -> None:
        """Note that it reads, or is gone."""
        self._unread.pop(connection, None)

    def longest(self) -> Connection | None:
        """Which waits longest; None if all are being answered, and read that."""
        return next(itertools.chain(self._connections, self._unread), None)

    def note_closed(self, reason: str) -> None:
        """Count a connection that was closed; at most one line a minute says how many were."""
        self._closed += 1
        now = self._clock()
        if self._last_line is None or now - self._last_line >= LINE_SECONDS:
            log.warning("connections closed", count=self._closed, the_last_one=reason)
            self._closed, self._last_line = 0, now


class Connection(HttpToolsProtocol):
    """One connection of HTTP/1.1, which is closed when it waits too long or room is wanted.

    So it is when what comes before its body is too long, but with an answer.
    """

    waiting: Waiting

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._late: asyncio.TimerHandle | None = None
        self._not_read: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection; of too many the one goes that waits longest."""
        super().connection_made(transport)
        self._expect_request()
        if len(self.connections) > self.waiting.most:
            (self.waiting.longest() or self).close("too many are open")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop_waiting()
        self._stop_not_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the first one begins its time."""
        if self._late is None and self._is_between_requests():
            self._expect_request()
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse_head()
        elif not self._is_between_requests() and not self.cycle.more_body:
            self._stop_waiting()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Count no more: what follows is a body, which is bounded elsewhere."""
        self._in_head = False
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Have so much of an answer waiting that no more is taken until some is read."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Go on: some of it was read."""
        self._stop_not_reading()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Wait for a next request, as long as connections are kept alive."""
        super().on_response_complete()
        if self._is_between_requests() and self in self.connections:  # it is there still
            self._stop_waiting()
            self.waiting.add(self)

    def close(self, reason: str) -> None:
        """Close it without an answer: nobody has asked for one, or nobody reads it."""
        self._stop_waiting()
        self._stop_not_reading()
        self.connections.discard(self)
        self.waiting.note_closed(reason)
        self.transport.abort()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_request(self) -> None:
        self.waiting.add(self)
        seconds = self.waiting.seconds
        self._late = self.loop.call_later(seconds, self.close, f"no request in {seconds:g} s")

    def _expect_reading(self) -> None:
        """Look later whether less is left, which may be long before there is room for more."""
        self.waiting.add_unread(self)
        self._not_read = self.loop.call_later(
            self.waiting.unread_seconds, self._look_whether_read, self._unread_bytes()
        )

    def _look_whether_read(self, before: int) -> None:
        self._stop_not_reading()
        if self._unread_bytes() < before:
            self._expect_reading()
        else:
            self.close(f"an answer not read in {self.waiting.unread_seconds:g} s")

    def _unread_bytes(self) -> int:
        return int(self.transport.get_write_buffer_size())

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            said = f"line and headers of the request are above {MOST_HEAD_BYTES // 1024} KiB"
            self.transport.write(
                f"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                f"content-type: text/plain\r\ncontent-length: {len(said)}\r\n\r\n{said}".encode()
            )
            self.waiting.note_closed(said)
            self.transport.close()

    def _stop_not_reading(self) -> None:
        self.waiting.remove_unread(self)
        if self._not_read is not None:
            self._not_read.cancel()
            self._not_read = None

    def _stop_waiting(self) -> None:
        self.waiting.remove(self)
        if self._late is not None:
            self._late.cancel()
            self._late = None


def connections_of(waiting: Waiting) -> type[asyncio.Protocol]:
    """The class of a server's connections, which share what waits."""
    return cast(type[asyncio.Protocol], type("Connection", (Connection,), {"waiting": waiting}))
