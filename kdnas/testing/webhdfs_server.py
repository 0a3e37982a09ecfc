"""A store on another machine, for tests: WebHDFS over a folder, as fsspec's client speaks it.

It can be told to answer errors, or late; see the REST API of Hadoop, "WebHDFS REST API".
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

PREFIX = "/webhdfs/v1"


@dataclass
class StoreServer:
    """A store that runs.

    Attributes:
        url: what ``KDNAS_STORE`` is set to.
        folder: where its files are.
        status: answered to everything while it is set, with an exception as Hadoop words it.
        seconds_late: every answer waits for so long.
        asked: operations that came, in order.
    """

    url: str
    folder: Path
    status: int | None = None
    seconds_late: float = 0.0
    asked: list[str] = field(default_factory=list)


@contextmanager
def store_server(folder: Path) -> Iterator[StoreServer]:
    """Run one in a thread, on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            address, body = urlsplit(self.path), self._body()
            query = dict(parse_qsl(address.query))
            made.asked.append(query.get("op", ""))
            time.sleep(made.seconds_late)
            if made.status is not None:
                self._say(made.status, _exception("RetriableException", "the store is in trouble"))
                return
            path = folder / unquote(address.path).removeprefix(PREFIX).lstrip("/")
            try:
                self._do(query, path, body)
            except (FileNotFoundError, NotADirectoryError):
                self._say(404, _exception("FileNotFoundException", f"no {path.name}"))

        def do_GET(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def _do(self, query: dict[str, str], path: Path, body: bytes) -> None:
            match query["op"]:
                case "GETFILESTATUS":
                    self._say(200, {"FileStatus": _about(path, "")})
                case "LISTSTATUS":
                    children = path.iterdir() if path.is_dir() else iter([path])
                    found = [_about(one, one.name) for one in sorted(children)]
                    self._say(200, {"FileStatuses": {"FileStatus": found}})
                case "MKDIRS":
                    path.mkdir(parents=True, exist_ok=True)
                    self._say(200, {"boolean": True})
                case "DELETE":
                    there = path.exists()
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                    self._say(200, {"boolean": there})
                case "OPEN":
                    data, offset = path.read_bytes(), int(query.get("offset", 0))
                    self._say(200, data[offset : offset + int(query.get("length", len(data)))])
                case "CREATE" | "APPEND" if "data" not in query:
                    # Whoever asked sends the bytes in a second request, to where they lie.
                    where = f"http://{self.headers['Host']}{self.path}&data=true"
                    self._say(307, b"", Location=where)
                case "CREATE":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(body)
                    self._say(201, b"")
                case "APPEND":
                    with path.open("ab") as file:
                        file.write(body)
                    self._say(200, b"")
                case other:
                    self._say(400, _exception("IllegalArgumentException", f"no such op: {other}"))

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _say(self, status: int, answer: Any, **headers: str) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that goes away, as one that is killed does, is nothing to speak of."""

    folder.mkdir(parents=True, exist_ok=True)
    server = Server(("127.0.0.1", 0), Handler)
    made = StoreServer(f"webhdfs://127.0.0.1:{server.server_port}/store", folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _about(path: Path, name: str) -> dict[str, Any]:
    found = path.stat()
    return {
        "pathSuffix": name,
        "type": "DIRECTORY" if path.is_dir() else "FILE",
        "length": 0 if path.is_dir() else found.st_size,
        "modificationTime": int(found.st_mtime * 1000),
    }


def _exception(name: str, message: str) -> dict[str, Any]:
    return {"RemoteException": {"exception": name, "message": message}}
