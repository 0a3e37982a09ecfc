from __future__ import annotations

import socket

import pytest

from api.http.server import listen
from kdnas.errors import WorkError


def test_small_answers_are_not_held_back() -> None:
    with (
        listen("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(WorkError, match=f"127.0.0.1:{port}: Address already in use"):
            listen("127.0.0.1", port)
