"""A kind of job that an installed package brings: all that the service does, it does for it too.

Two coordinators share the database; runners, kills and pauses are real.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from kdnas.db import migrate
from kdnas.testing.counting import write_entry_point

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 240.0


class Place:
    """A home with the package on its path, a service without a coordinator, and its database."""

    def __init__(self, folder: Path, url: str) -> None:
        write_entry_point(folder / "packages")
        paths = [str(folder / "packages"), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ,
            "KDNAS_HOME": str(folder / "home"),
            "KDNAS_DATABASE_URL": url,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        }
        self.port = free_port()
        migrate.upgrade(url)

    def program(self, *arguments: str) -> subprocess.Popen[bytes]:
        code = "import sys; from kdnas.cli.main import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.program(*arguments)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *arguments: str) -> tuple[int, str]:
        code = "import sys; from kdnas.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        if not text:
            return None
        is_json = "json" in answer.headers.get("Content-Type", "")
        return json.loads(text) if is_json else text.decode()

    def wait_for(self, job: str, condition: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = self.ask("GET", f"/api/v1/jobs/{job}")
            if condition(found):
                return found
            time.sleep(0.05)
        pytest.fail(f"waited {PATIENCE_SECONDS} s for job {job}: {found}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def until_up(place: Place) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            place.ask("GET", "/healthz")
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def runner_of(job: dict[str, Any]) -> psutil.Process:
    return psutil.Process(int(job["worker"].rpartition(" ")[2]))


def test_it_is_served_like_our_own(tmp_path: Path, empty_url: str) -> None:
    place = Place(tmp_path, empty_url)
    with place.running("serve", "--no-coordinator", "--port", str(place.port)):
        until_up(place)
        first = place.ask(
            "POST", "/api/v1/counts", {"name": "slow", "to": 6000, "seconds_each": 0.1}
        )
        assert first["standing"] == "no coordinator looks after the queue"
        with place.running("coordinator"), place.running("coordinator"):
            job = place.wait_for(first["id"], lambda j: (j["done"] or 0) >= 3 and j["worker"])
            assert (job["kind"], job["standing"], job["total"]) == ("count", "counting", 6000)
            assert job["phase_since"] is not None

            runner = runner_of(job)
            runner.send_signal(signal.SIGKILL)
            runner.wait()
            left = place.ask("GET", f"/api/v1/jobs/{first['id']}")["done"]
            again = place.wait_for(  # taken up where it was
                first["id"], lambda j: j["worker"] not in {None, job["worker"]} and j["done"] > left
            )
            assert again["status"] == "running"

            place.ask("PATCH", "/api/v1/jobs/slow", {"action": "pause", "labels": ["tried"]})
            paused = place.wait_for(first["id"], lambda j: j["worker"] is None)
            assert paused["status"] == "paused"
            place.ask("PATCH", "/api/v1/counts/slow", {"action": "resume"})
            place.wait_for(first["id"], lambda j: j["status"] == "running" and j["worker"])

            failing = place.ask("POST", "/api/v1/counts", {"to": 3, "fail_at": 2})
            failed = place.wait_for(failing["id"], lambda j: j["status"] == "failed")
            assert "fails at 2, as it was asked to" in failed["error"]
            short = place.ask("POST", "/api/v1/counts", {"name": "short", "to": 2})
            done = place.wait_for(short["id"], lambda j: j["status"] == "succeeded")
            assert (done["done"], done["total"], done["error"]) == (2, 2, None)

            code, printed = place.run("jobs", "cancel", "slow")
            assert code == 0, printed
            place.wait_for(first["id"], lambda j: j["status"] == "cancelled" and not j["worker"])
        told = _events(place, first["id"])
        # The other coordinator may take it up before its own has seen the death, and told of it.
        assert [t for t in told if t not in {"count_progress", "count_interrupted"}] == [
            "count_created",
            "count_status",
            "count_preparing",
            "count_preparing",
            "count_status",
            "count_labelled",
            "count_status",
            "count_status",
            "count_preparing",
            "count_status",
        ]
        listed = place.ask("GET", "/api/v1/jobs?kind=count&label=tried")["items"]
        assert [job["id"] for job in listed] == [first["id"]]
        assert "counted 1 of 6000" in place.ask("GET", f"/api/v1/jobs/{first['id']}/log")
        assert 'kdnas_counts{status="cancelled"} 1.0' in place.ask("GET", "/metrics")
        code, printed = place.run("jobs", "list", "--kind", "count", "--json")
        assert code == 0, printed
        assert {row["name"] for row in json.loads(printed)} >= {"slow", "short"}
        code, printed = place.run("jobs", "logs", "short")
        assert (code, "counted 2 of 2" in printed) == (0, True), printed
        place.ask("DELETE", "/api/v1/counts/short")
        code, printed = place.run("jobs", "show", "short")
        assert code == 2
        assert "there is no job 'short'" in printed


def _events(place: Place, job: str) -> list[str]:
    """Types of what happened to a job, from the stream."""
    found: list[str] = []
    url = f"http://127.0.0.1:{place.port}/api/v1/events?job={job}&since=0"
    last = place.ask("GET", "/metrics")
    newest = next(line for line in last.splitlines() if line.startswith("kdnas_last_event_id "))
    until = float(newest.split()[1])
    with urllib.request.urlopen(url, timeout=20) as stream:
        for line in stream:
            if line.startswith(b"event: "):
                found.append(line[7:].decode().strip())
                if found[-1] == "count_status" and found.count("count_status") == 5:
                    break
    assert until >= len(found)
    return found
