"""Users over real HTTP: `kdnas serve` beside `kdnas tokens`, on one database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

START_SECONDS, PATIENCE = 120.0, 30.0
SESSION = "/api/v1/session"

pytestmark = pytest.mark.slow


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from kdnas.cli.main import main; main()", *arguments]


def environment(home: Path, url: str, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KDNAS_")}
    return {**kept, "KDNAS_HOME": str(home), "KDNAS_DATABASE_URL": url, **more}


class Service:
    """A running service, asked from an address of the loopback network."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self.log = port, log

    def ask(
        self, method: str, path: str, body: object = None, source: str = "127.0.0.1", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Ask for something; header names have ``_`` for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body)
        if body is not None:
            named["Content-Type"] = "application/json"
        connection = HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=(source, 0)
        )
        connection.request(method, path, content, named)
        answer = connection.getresponse()
        found = (
            answer.status,
            {k.lower(): v for k, v in answer.getheaders()},
            answer.read().decode(),
        )
        connection.close()
        return found

    def lines(self) -> list[dict[str, object]]:
        """What it has logged of requests."""
        logged = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, logged) if line["event"] == "request"]


@contextmanager
def service(home: Path, url: str, *arguments: str, **more: str) -> Iterator[Service]:
    log = home / f"{time.monotonic_ns()}.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command("serve", "--port", "0", "--no-coordinator", *arguments),
            env=environment(home, url, **more),
            stderr=stream,
        )
    try:
        until = time.monotonic() + START_SECONDS
        while not (found := re.search(r"listens on http://\S+:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Service(int(found[1]), log)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def kdnas(home: Path, url: str, *arguments: str) -> str:
    done = subprocess.run(
        command(*arguments), env=environment(home, url), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def bearer(token: str) -> str:
    return f"Bearer {token}"


def within_patience(status: int, ask: Service, token: str) -> None:
    until = time.monotonic() + PATIENCE
    while ask.ask("GET", SESSION, Authorization=bearer(token))[0] != status:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_user_from_his_token_to_its_end(database_url: str, tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("first", "second")]
    for home in homes:
        home.mkdir()
    token = kdnas(homes[0], database_url, "tokens", "create", "anna", "--role", "operator")
    with (
        service(homes[0], database_url, "--host", "0.0.0.0") as first,
        service(homes[1], database_url) as second,
    ):
        assert first.ask("GET", SESSION)[0] == second.ask("GET", SESSION)[0] == 401
        status, _, body = first.ask(
            "POST", "/api/v1/searches", {"name": "hers"}, Authorization=bearer(token)
        )
        assert (status, json.loads(body)["owner"]) == (202, "anna")
        for running in (first, second):  # what was made a moment ago is good at once
            made = kdnas(homes[0], database_url, "tokens", "create", "bob", "--role", "viewer")
            status, _, body = running.ask("GET", SESSION, Authorization=bearer(made))
            assert (status, json.loads(body)["name"]) == (200, "bob")
            assert running.ask("DELETE", "/api/v1/jobs/hers", Authorization=bearer(made))[0] == 403
        stream = HTTPConnection("127.0.0.1", second.port, timeout=PATIENCE)
        stream.request("GET", "/api/v1/events?since=0", headers={"Authorization": bearer(token)})
        opened = stream.getresponse()
        kdnas(homes[0], database_url, "tokens", "revoke", "anna")
        heard = opened.read().decode()  # to its end
        stream.close()
        assert '"search_created"' in heard
        assert token not in heard
        for running in (first, second):
            within_patience(401, running, token)
        kdnas(homes[0], database_url, "tokens", "revoke", "bob")
        assert first.ask("GET", SESSION)[0] == 401  # others can come in here
        for running in (first, second):
            assert token not in running.log.read_text()
        asked = [line for line in first.lines() if line["path"] == "/api/v1/searches"]
        assert [(line["user"], line["client"]) for line in asked] == [("anna", "127.0.0.1")]


@pytest.mark.parametrize("trusted", ["", "127.0.0.0/24"])
def test_nobody_chooses_his_own_address(trusted: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'kdnas.db'}"
    operator = "operator-token-0123456789"
    settings = {"KDNAS_OPERATOR_TOKEN": operator, "KDNAS_TRUSTED_PROXIES": trusted}
    with service(tmp_path, url, **settings) as running:

        def guess(number: int) -> int:
            said = f"198.51.100.{number}, 203.0.113.{number}"
            header = {"X_Forwarded_For": said, "Authorization": "Bearer wrong"}
            return running.ask("GET", SESSION, **header)[0]

        statuses = [guess(number) for number in range(1, 8)]
        assert statuses == ([401] * 7 if trusted else [401] * 5 + [429] * 2)
        good = {"Authorization": bearer(operator)}
        assert running.ask("GET", SESSION, **good)[0] == (200 if trusted else 429)
        status, _, _ = running.ask("GET", SESSION, source="127.0.1.2", **good)
        assert status == 200
        until = time.monotonic() + PATIENCE  # a line is written when the answer is sent
        while len(seen := [str(line["client"]) for line in running.lines()]) < 9:
            assert time.monotonic() < until, seen
            time.sleep(0.05)
        proxied = [f"203.0.113.{number}" for number in range(1, 8)]
        assert seen[:7] == (proxied if trusted else ["127.0.0.1"] * 7)
        assert seen[-1] == "127.0.1.2"
