"""A real web server that a webhook tells, for tests: it keeps what it heard."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class Heard:
    """A request: its path with the query, its headers and its body."""

    path: str
    headers: Message
    body: bytes

    @property
    def name(self) -> str:
        """Name of the search that it tells of."""
        return str(json.loads(self.body)["search"]["name"])


@dataclass
class HookServer:
    """What was heard, and what is answered next.

    Attributes:
        url: where it listens.
        answers: status codes, the next one first; 204 when there are none.
        heard: what came, in order, before it was answered.
        answering: nothing is answered while it is not set.
    """

    url: str
    port: int
    answers: list[int] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    answering: threading.Event = field(default_factory=threading.Event)

    @property
    def names(self) -> list[str]:
        """Names of the searches that it was told of, in order."""
        return [one.name for one in self.heard]

    def wait_for(self, count: int) -> None:
        """Wait until so much was heard."""
        wait_until(lambda: len(self.heard) >= count)


@contextmanager
def hook_server(
    host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[HookServer]:
    """Run one in a thread; its connections are kept alive if the client wants that.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        tls: it speaks TLS with this.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.heard.append(Heard(self.path, self.headers, body))
            made.answering.wait(WAIT_SECONDS)
            self.send_response(made.answers.pop(0) if made.answers else 204)
            self.send_header("Location", f"{made.url}/elsewhere")  # heeded with a 3xx only
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            made.heard.append(Heard(self.path, self.headers, b""))
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that goes away, as one that is killed does, is nothing to speak of."""

    server = Server((host, port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if tls is None else "https"
    made = HookServer(f"{scheme}://{host}:{server.server_port}", server.server_port)
    made.answering.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.answering.set()
        server.shutdown()
        server.server_close()
        thread.join()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that is about to be so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {WAIT_SECONDS:g} seconds")
        time.sleep(0.02)
