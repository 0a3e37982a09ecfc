"""Connections that say nothing: they end in time, and make room for those that do."""

from __future__ import annotations

import asyncio
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import pytest
import uvicorn
from structlog.testing import capture_logs

from api.http.connections import (
    LINE_SECONDS,
    MOST_CONNECTIONS,
    MOST_HEAD_BYTES,
    Connection,
    Waiting,
    connections_of,
    make_room,
)

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
LARGE = 32 * 1024**2
"""Bytes, more than the system keeps for who does not read."""
SOON = 10.0
SLOW = 1.5
"""More than anything here takes; a wait that ends only then has failed."""


at_work = threading.Event()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body, once all of it is there; `/slow` takes its time, `/large` its room."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    if scope["path"] == "/slow":
        at_work.set()
        await asyncio.sleep(SLOW)
    if scope["path"] == "/large":
        body = bytes(LARGE) + body
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(waiting: Waiting) -> Iterator[tuple[str, int]]:
    config = uvicorn.Config(
        echo, http=connections_of(waiting), lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    at_work.clear()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(SOON)
            assert not thread.is_alive()


def opened(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    return stack.enter_context(socket.create_connection(address, SOON))


def answers(connection: socket.socket, request: bytes = REQUEST) -> bool:
    connection.sendall(request)
    return is_answered(connection)


def is_answered(connection: socket.socket) -> bool:
    """Wait for the answer's last byte, or the end."""
    answer = b""
    while not answer.endswith(b"body") and (part := connection.recv(4096)):
        answer += part
    return answer.endswith(b"body")


def is_closed(connection: socket.socket) -> bool:
    """Wait for what the server does with it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_those_that_wait_longest_make_room() -> None:
    with serving(Waiting(most=5, seconds=60)) as address, ExitStack() as stack:
        busy = opened(stack, address)
        assert answers(busy)
        idle = [opened(stack, address) for _ in range(12)]
        assert is_closed(busy)  # it has been silent for longer than the others
        assert all(is_closed(connection) for connection in idle[:7])
        assert answers(idle[-1])
        assert answers(opened(stack, address))


def test_one_that_is_being_answered_does_not_make_room() -> None:
    with serving(Waiting(most=3, seconds=60)) as address, ExitStack() as stack:
        busy = opened(stack, address)
        busy.sendall(REQUEST.replace(b"POST /", b"POST /slow"))
        assert at_work.wait(SOON)  # its request has been read, and not only sent
        idle = [opened(stack, address) for _ in range(5)]
        assert is_closed(idle[0])
        assert is_answered(busy)


@pytest.mark.parametrize("said", [b"", b"POST / HT", REQUEST[:-1]])
def test_a_request_has_to_be_there_in_time(said: bytes) -> None:
    with (
        serving(Waiting(most=5, seconds=1.0)) as address,
        ExitStack() as stack,
        capture_logs() as lines,
    ):
        connection = opened(stack, address)
        connection.sendall(said)
        assert is_closed(connection)
        later = opened(stack, address)
        assert answers(later)
        later.sendall(said or b"P")  # as in its first request, so in its second
        assert is_closed(later)
    assert [(line["count"], line["the_last_one"]) for line in lines] == [(1, "no request in 1 s")]


def test_a_long_answer_is_not_cut_off() -> None:
    with serving(Waiting(most=5, seconds=SLOW / 2)) as address, ExitStack() as stack:
        assert answers(opened(stack, address), REQUEST.replace(b"POST /", b"POST /slow"))


def asks_for_much(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    """Ask for an answer that is not read."""
    connection = opened(stack, address)
    connection.sendall(REQUEST.replace(b"POST /", b"POST /large"))
    assert connection.recv(1)  # it is being answered
    return connection


def comes_to_an_end(connection: socket.socket) -> bytes:
    """Wait for the end of a connection, and return the last bytes of what it said."""
    said = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(2**20):
            said = (said + part)[-1000:]
    return said


def test_an_answer_has_to_be_read() -> None:
    waiting = Waiting(most=5, seconds=60, unread_seconds=0.3)
    with serving(waiting) as address, ExitStack() as stack, capture_logs() as lines:
        connection = asks_for_much(stack, address)
        until = time.monotonic() + SOON
        while not lines:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not comes_to_an_end(connection).endswith(b"body")
    assert [line["the_last_one"] for line in lines] == ["an answer not read in 0.3 s"]


def test_who_reads_slowly_gets_it_all() -> None:
    waiting = Waiting(most=5, seconds=60, unread_seconds=4.0)
    with serving(waiting) as address, ExitStack() as stack:
        connection = asks_for_much(stack, address)
        for _ in range(12):  # for longer than nothing may be read
            time.sleep(0.5)
            left = 2**20
            while left > 0:
                part = connection.recv(left)
                assert part
                left -= len(part)
        assert comes_to_an_end_of_body(connection)


def comes_to_an_end_of_body(connection: socket.socket) -> bool:
    said = b""
    while not said.endswith(b"body") and (part := connection.recv(2**20)):
        said = part[-4:] if len(part) >= 4 else (said + part)[-4:]
    return said == b"body"


def test_those_that_do_not_read_make_room() -> None:
    with serving(Waiting(most=3, seconds=60)) as address, ExitStack() as stack:
        deaf = [asks_for_much(stack, address) for _ in range(3)]
        for _ in range(3):
            assert answers(opened(stack, address))
        assert not comes_to_an_end(deaf[0]).endswith(b"body")


@pytest.mark.parametrize("begins", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nEndless: "])
def test_what_comes_before_a_body_is_bounded(begins: bytes) -> None:
    with (
        serving(Waiting(most=5, seconds=60)) as address,
        ExitStack() as stack,
        capture_logs() as lines,
    ):
        connection = opened(stack, address)
        connection.sendall(begins)
        sent = 0
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"a" * 2**13)
            sent += 2**13
            assert sent <= 2**20
        assert connection.recv(2**16).startswith(b"HTTP/1.1 431 ")
        assert is_closed(connection)
    assert lines[0]["the_last_one"] == "line and headers of the request are above 64 KiB"


def test_headers_of_many_requests_are_counted_each_by_itself() -> None:
    long = REQUEST.replace(b"Host: x", b"Host: x\r\nLong: " + b"a" * (MOST_HEAD_BYTES - 2**12))
    with serving(Waiting(most=5, seconds=60)) as address, ExitStack() as stack:
        connection = opened(stack, address)
        for _ in range(3):
            for start in range(0, len(long), 2**13):
                connection.sendall(long[start : start + 2**13])
                time.sleep(0.002)
            assert is_answered(connection)


def test_one_line_a_minute_counts_them_all() -> None:
    now = 0.0
    waiting = Waiting(most=1, clock=lambda: now)
    with capture_logs() as lines:
        for _ in range(1000):
            waiting.note_closed("too many are open")
        now = LINE_SECONDS
        waiting.note_closed("too many are open")
    assert [line["count"] for line in lines] == [1, 1000]


def test_who_waits_anew_waits_behind_the_others() -> None:
    waiting = Waiting(most=1)
    first, second = cast(Connection, object()), cast(Connection, object())
    waiting.add(first)
    waiting.add(second)
    assert waiting.longest() is first
    waiting.add(first)
    assert waiting.longest() is second
    waiting.remove(second)
    waiting.remove(first)
    waiting.remove(first)
    assert waiting.longest() is None


@pytest.mark.parametrize(
    ("limits", "wanted", "set_to"),
    [
        ((1024, 1_000_000), (MOST_CONNECTIONS, 2048), 1_000_000),
        ((20_000, 20_000), (MOST_CONNECTIONS, 2048), None),
        ((256, 1024), (512, 256), 1024),
        ((256, resource.RLIM_INFINITY), (7048, 2048), 14_096),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (7048, 2048), None),
    ],
)
def test_room_is_made_of_all_descriptors(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: tuple[int, int],
    set_to: int | None,
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: made.append(pair))
    room = make_room()
    assert (room.connections, room.backlog) == wanted
    assert made == ([] if set_to is None else [(set_to, limits[1])])


def test_a_system_that_gives_fewer_than_it_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert (make_room().connections, make_room().backlog) == (128, 64)
