"""`kdnas serve` from the outside: it starts, streams events, and ends when it is asked to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.repository import searches
from kdnas.db.repository.events import append_event
from kdnas.settings import Settings

TOKEN = "a-token-of-this-test-only"
START_SECONDS = 60.0


class Service:
    """A running service, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Ask for something; header names have ``_`` for ``-``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urlopen(Request(self.url + path, headers=named), timeout=20) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()


def command(*arguments: str) -> list[str]:
    main = "from kdnas.cli.main import main; main()"
    return [sys.executable, "-c", main, "serve", *arguments]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KDNAS_")}
    return {**kept, "KDNAS_HOME": str(home), **more}


@contextmanager
def service(home: Path, *arguments: str, **more: str) -> Iterator[Service]:
    """Start the service on a free port; killed at the end if it still runs."""
    log = home / "service.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command("--port", "0", "--no-coordinator", *arguments),
            env=environment(home, **more),
            stderr=stream,
            text=True,
        )
    try:
        yield Service(process, _url(process, log), log)
    finally:
        process.kill()
        process.wait()


def _url(process: subprocess.Popen[str], log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        text = log.read_text()
        found = re.search(r"listens on (http://\S+)", text)
        if found and "startup complete" in text:
            return found[1]
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@contextmanager
def listening(running: Service, path: str, **headers: str) -> Iterator[list[str]]:
    """Lines of a stream of events as they come; ends with the stream."""
    lines: list[str] = []
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = urlopen(Request(running.url + path, headers=named), timeout=60)

    def read_lines() -> None:
        lines.extend(line.decode().rstrip("\n") for line in iter(answer.readline, b""))
        lines.append("END")

    reader = threading.Thread(target=read_lines, daemon=True)
    reader.start()
    yield lines
    answer.close()


def wait_for(lines: list[str], line: str, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while line not in lines:
        assert time.monotonic() < until, (line, lines)
        time.sleep(0.01)


def numbers(lines: list[str]) -> list[int]:
    return [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """The database of the home in which the service runs."""
    with open_database(Settings.from_environment({"KDNAS_HOME": str(tmp_path)})) as opened:
        yield opened


def test_events_of_another_process_are_streamed_until_the_service_ends(
    tmp_path: Path, database: Database
) -> None:
    with database.write() as session:
        search = searches.create_search(session, {})
    with service(tmp_path) as running:
        assert running.get("/readyz")[0] == 503  # nobody looks after the queue
        events = f"/api/v1/events?job={search.name}"
        with (
            listening(running, f"{events}&since=0") as every,
            listening(running, events, Last_Event_ID="1") as later,
            listening(running, "/api/v1/events") as live,
        ):
            wait_for(every, "id: 1")
            wait_for(live, "retry: 2000")
            with database.write() as session:
                for i in range(3):
                    append_event(session, "noted", {"i": i}, job_id=search.id)
            for lines in (every, later, live):
                wait_for(lines, "id: 4")
            assert "kdnas_event_clients 3.0" in running.get("/metrics")[1]
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(timeout=240) == 0  # what is open would be so for ever
            for lines in (every, later, live):
                wait_for(lines, "END")
        assert (numbers(every), numbers(later), numbers(live)) == ([1, 2, 3, 4], *[[2, 3, 4]] * 2)
        logged = running.log.read_text().splitlines()[1:]
        assert {json.loads(line)["level"] for line in logged} == {"info"}


def test_a_service_with_a_token_listens_everywhere_and_keeps_it_to_itself(tmp_path: Path) -> None:
    with service(tmp_path, "--host", "0.0.0.0", KDNAS_OPERATOR_TOKEN=TOKEN) as running:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert running.get("/api/v1/session")[0] == 401
        assert running.get(f"/api/v1/session?token={TOKEN}")[0] == 401
        status, body = running.get("/api/v1/session", Authorization=f"Bearer {TOKEN}")
        assert (status, json.loads(body)["role"]) == (200, "operator")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=120) == 0
        assert TOKEN not in running.log.read_text()


@pytest.mark.slow
def test_an_idle_connection_is_kept_until_the_service_ends(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        connection = HTTPConnection(running.url.removeprefix("http://"), timeout=20)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        time.sleep(7)  # many a server hangs up after five
        opened = connection.sock
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        assert connection.sock is opened is not None
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=240) == 0  # what is open would be so for ever
        connection.close()


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "reason"),
    [
        (["--host", "0.0.0.0"], {}, 2, "set KDNAS_OPERATOR_TOKEN"),
        ([], {"KDNAS_OPERATOR_TOKEN": "short"}, 2, "KDNAS_OPERATOR_TOKEN has 5 characters"),
        (["--port", "{taken}"], {}, 1, "Address already in use; choose another with --host"),
    ],
)
def test_what_does_not_start(
    arguments: list[str], settings: dict[str, str], code: int, reason: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        filled = [argument.format(taken=taken.getsockname()[1]) for argument in arguments]
        done = subprocess.run(
            command(*filled),
            env=environment(tmp_path, **settings),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == code, done.stderr
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
