"""Telling a real web server of ends: signed, in order, again after trouble and after a restart."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.jobs import webhook
from api.jobs.webhook import Webhook, signature
from kdnas.db.engine import Database
from kdnas.db.models import Event
from kdnas.db.repository import evaluations, events, jobs, pipelines, searches
from kdnas.errors import SpecError
from kdnas.records import SearchStatus
from kdnas.settings import Settings

SECRET = "a secret of the user's"


@dataclass
class Receiver:
    """A web server that keeps what it was told; ``answers`` are its next status codes."""

    answers: list[int] = field(default_factory=list)
    heard: list[tuple[Message, bytes]] = field(default_factory=list)
    url: str = ""

    def names(self) -> list[str]:
        return [json.loads(body)["search"]["name"] for _, body in self.heard]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.heard) >= count)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.heard.append((self.headers, body))
            self.send_response(made.answers.pop(0) if made.answers else 204)
            self.send_header("Location", "/elsewhere")  # heeded with a 302 only, if at all
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(webhook, "FIRST_PAUSE_SECONDS", 0.02)


def end(database: Database, name: str, status: SearchStatus = "succeeded") -> None:
    with database.write() as session:
        made = searches.create_search(session, {}, name=name)
        jobs.set_status(session, made.id, "running")
        jobs.set_status(session, made.id, status)


@contextmanager
def telling(url: str, database: Database) -> Iterator[None]:
    hook = Webhook(url, SECRET, database)
    hook.start()
    wait_until(lambda: last(database) is not None)
    yield
    hook.stop()
    hook._thread.join(5)


def last(database: Database) -> dict[str, Any] | None:
    """What the newest event about the webhook says."""
    with database.read() as session:
        found = events.last_event(
            session, ("webhook_enabled", "webhook_delivered", "webhook_given_up")
        )
    return None if found is None else {"type": found.type, **found.payload}


def test_ends_are_told_signed_and_once(database: Database, receiver: Receiver) -> None:
    end(database, "before-it-was-set-up")
    with telling(receiver.url, database):
        end(database, "first", "failed")
        end(database, "second")
        receiver.wait_for(2)
        wait_until(lambda: (last(database) or {})["type"] == "webhook_delivered")
    assert receiver.names() == ["first", "second"]
    headers, body = receiver.heard[0]
    moment, _, given = headers["Kdnas-Signature"].removeprefix("t=").partition(",v1=")
    assert given == signature(SECRET, moment, body)
    assert abs(int(moment) - time.time()) < 60
    told = json.loads(body)
    assert told["type"] == "search_status"
    assert told["status"] == "failed"
    assert headers["Kdnas-Event"] == str(told["event"])


def test_the_signature_is_hmac_sha256_of_time_and_body() -> None:
    # printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key
    assert signature("key", "1700000000", b'{"a":1}') == (
        "a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03"
    )


def test_trouble_is_tried_again_in_order(database: Database, receiver: Receiver) -> None:
    receiver.answers = [500, 503, 429]
    with telling(receiver.url, database):
        end(database, "first")
        end(database, "second")
        receiver.wait_for(5)
    assert receiver.names() == ["first"] * 4 + ["second"]


@pytest.mark.parametrize("answer", [410, 302])
def test_a_refusal_is_not_repeated(database: Database, receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    with telling(receiver.url, database):
        end(database, "refused")
        end(database, "welcome")
        receiver.wait_for(2)
    assert receiver.names() == ["refused", "welcome"]
    with database.read() as session:
        found = [e.payload["detail"] for e in events.events_since(session, 0) if "up" in e.type]
    assert found == [f"the receiver answered {answer}"]


def test_a_restart_goes_on_where_it_was(database: Database, receiver: Receiver) -> None:
    with telling(receiver.url, database):
        end(database, "first")
        wait_until(lambda: (last(database) or {})["type"] == "webhook_delivered")
    end(database, "meanwhile")
    with telling(receiver.url, database):
        receiver.wait_for(2)
    assert receiver.names() == ["first", "meanwhile"]


def test_news_of_yesterday_is_given_up(database: Database) -> None:
    url = "http://127.0.0.1:9/nobody"
    with telling(url, database):
        end(database, "old")
        with database.write() as session:
            for event in session.query(Event).filter_by(type="search_status"):
                event.created_at = datetime.now(UTC) - timedelta(days=1, minutes=1)
        wait_until(lambda: (last(database) or {})["type"] == "webhook_given_up")


def test_what_is_asked_of_the_settings(database: Database, tmp_path: Path) -> None:
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    assert Webhook.from_settings(settings, database) is None
    with pytest.raises(SpecError, match="KDNAS_WEBHOOK_SECRET is not; set it"):
        Webhook.from_settings(replace(settings, webhook_url="https://example.org"), database)
    with pytest.raises(SpecError, match="'file:///etc/passwd' is no http"):
        Webhook.from_settings(
            replace(settings, webhook_url="file:///etc/passwd", webhook_secret="x"), database
        )


def test_every_kind_of_end_is_told(database: Database, receiver: Receiver) -> None:
    with telling(receiver.url, database):
        with database.write() as session:
            pairs = [evaluations.NewEvaluation("glue", "RTE", 3, {})]
            (row_id,) = evaluations.create_evaluations(session, pairs, model="minilm")
            jobs.set_status(session, row_id, "running")
            evaluations.set_figures(session, row_id, {"main": 0.6})
            made = pipelines.create_pipeline(session, {}, name="whole")
            jobs.set_status(session, made.id, "failed", "no student")
        receiver.wait_for(2)
    first, second = (json.loads(body) for _, body in receiver.heard)
    assert first["evaluation"] == {
        "id": row_id,
        "model": "minilm",
        "suite": "glue",
        "task": "RTE",
        "seed": 3,
        "score": 0.6,
    }
    assert (first["type"], first["status"]) == ("evaluation_status", "succeeded")
    assert second["pipeline"] == {"id": made.id, "name": "whole", "stage": "search"}
    assert (second["type"], second["error"]) == ("pipeline_status", "no student")
