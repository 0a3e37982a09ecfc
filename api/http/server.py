"""The web server around the application: where it listens, and how it ends."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from api.http.connections import MOST_ACCEPTED, Waiting, connections_of, make_room
from kdnas.errors import WorkError

REQUESTS_END_SECONDS = 3
"""How long requests may go on once the service is asked to stop."""

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept: longer than proxies and clients do, or one that takes it
again at the moment of its end has a request fail."""


def listen(host: str, port: int) -> socket.socket:
    """Open the socket.

    Raises:
        WorkError: the address is taken, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=MOST_ACCEPTED)
    except OSError as error:
        raise WorkError(
            f"cannot listen on {host}:{port}: {_reason(error)}; choose another with --host or "
            "--port"
        ) from None
    # Connections inherit it. Without it a small answer waits 40 ms for the client's delayed
    # acknowledgement; asyncio sets it only on sockets that were made with a protocol's number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _reason(error: OSError) -> str:
    """What went wrong, without the address; names that nobody knows have numbers of their own."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)


def run(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM; the second of them ends open requests at once."""
    # What is loaded by now stays. Else each full garbage collection would go through all of it
    # anew, a quarter of a second in which nobody is answered.
    gc.collect()
    gc.freeze()
    room = make_room()
    config = uvicorn.Config(
        app,
        http=connections_of(Waiting(room.connections)),
        backlog=room.backlog,
        log_config=None,  # ours are configured
        access_log=False,
        proxy_headers=False,  # uvicorn believes everybody on this machine; see api.http.forwarded
        server_header=False,
        loop="asyncio",  # uvloop does not go with Ray
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=REQUESTS_END_SECONDS,
    )
    _Server(config, app).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Ends streams of events before it waits for open requests, and leaves with code 0."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop in good order."""
        self._app.state.events.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Catch the signals, without raising them again afterwards as the original does."""
        caught = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
