"""A model hub on this machine that takes what is pushed to it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_good"
FORBIDDEN_OWNER = "theirs"


@dataclass
class StubHub:
    """What the hub was given.

    It knows the token ``TOKEN``, which may write anywhere but to ``FORBIDDEN_OWNER``.

    Attributes:
        url: its address.
        files: repository → path → content.
        private: repository → whether it was asked to be private.
        messages: of the commits.
    """

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Answer a request of a known token: status and JSON."""
        parts = path.partition("?")[0].strip("/").split("/")
        if parts == ["api", "whoami-v2"]:
            return 200, {"type": "user", "name": "somebody", "orgs": []}
        if parts == ["api", "validate-yaml"]:
            return 200, {"errors": [], "warnings": []}
        if parts == ["api", "repos", "create"]:
            wanted = json.loads(body)
            repo = f"{wanted['organization']}/{wanted['name']}"
            if wanted["organization"] == FORBIDDEN_OWNER:
                return 403, {"error": "You don't have the rights to create a model here"}
            self.private[repo] = wanted.get("visibility") == "private" or bool(
                wanted.get("private")
            )
            self.files.setdefault(repo, {})
            return 200, {"url": f"{self.url}/{repo}", "name": repo}
        if parts[:2] == ["api", "models"] and len(parts) > 4 and method == "POST":
            repo = "/".join(parts[2:4])
            if parts[4] == "preupload":
                asked = [file["path"] for file in json.loads(body)["files"]]
                mode = {"uploadMode": "regular", "shouldIgnore": False}
                return 200, {"files": [{"path": path, **mode} for path in asked]}
            if parts[4] == "commit":
                return self._commit(repo, body)
        return 404, {"error": f"the stub knows no {method} {path}"}

    def _commit(self, repo: str, body: bytes) -> tuple[int, dict[str, Any]]:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            else:
                content = base64.b64decode(value["content"])
                self.files[repo][value["path"]] = content
        oid = f"{len(self.messages):040d}"
        url = f"{self.url}/{repo}/commit/{oid}"
        return 200, {"success": True, "commitUrl": url, "commitOid": oid, "hookOutput": ""}


@contextmanager
def running_stub_hub() -> Iterator[StubHub]:
    """Serve a stub hub at a free port of this machine for the time of a ``with`` block."""
    hub = StubHub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                status, answer = hub.answer(self.command, self.path, body)
            else:
                status, answer = 401, {"error": "Invalid credentials"}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
