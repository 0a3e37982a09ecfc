"""Connections that say nothing: they end in time, and make room for those that do."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pytest
import uvicorn
from structlog.testing import capture_logs

from api.http.connections import (
    LINE_SECONDS,
    MOST_CONNECTIONS,
    Connection,
    Waiting,
    connections_of,
    make_room,
)

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
SOON = 10.0
"""More than anything here takes; a wait that ends only then has failed."""


at_work = threading.Event()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body, once all of it is there; `/slow` takes its time."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    if scope["path"] == "/slow":
        at_work.set()
        await asyncio.sleep(0.5)
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
        serving(Waiting(most=5, seconds=0.3)) as address,
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
    assert [(line["count"], line["the_last_one"]) for line in lines] == [(1, "no request in 0.3 s")]


def test_a_long_answer_is_not_cut_off() -> None:
    with serving(Waiting(most=5, seconds=0.2)) as address, ExitStack() as stack:
        assert answers(opened(stack, address), REQUEST.replace(b"POST /", b"POST /slow"))


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
