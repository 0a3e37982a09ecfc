"""Telling a real web server of ends: signed, in order, again after trouble, a kill or a restart."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook
from structlog.testing import capture_logs

from api.webhook import telling
from api.webhook.receiver import Receiver
from api.webhook.signing import Signer, old_signature
from api.webhook.telling import Webhook, forget_old_deliveries
from kdnas.db.engine import Database, Session
from kdnas.db.models import Event, WebhookDelivery
from kdnas.db.records import EventRecord, NewDelivery
from kdnas.db.repository import evaluations, events, jobs, pipelines, searches, webhook_deliveries
from kdnas.errors import SpecError
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.testing.hook_server import HookServer, hook_server, wait_until

SECRET = f"whsec_{base64.b64encode(bytes(range(24))).decode()}"


@pytest.fixture
def server() -> Iterator[HookServer]:
    with hook_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(telling, "FIRST_PAUSE_SECONDS", 0.02)


def end(database: Database, name: str, status: SearchStatus = "succeeded") -> str:
    with database.write() as session:
        made = searches.create_search(session, {}, name=name)
        jobs.set_status(session, made.id, "running")
        jobs.set_status(session, made.id, status)
    return str(made.id)


@contextmanager
def telling_to(url: str, database: Database, secret: str = SECRET) -> Iterator[Webhook]:
    hook = Webhook(Receiver(url, allow_private=True), Signer(secret), database)
    hook.start()
    wait_until(lambda: hook._position is not None)
    yield hook
    hook.stop()
    hook._thread.join(20)
    assert not hook._thread.is_alive()


def rows(database: Database) -> list[WebhookDelivery]:
    with database.read() as session:
        return session.query(WebhookDelivery).order_by(WebhookDelivery.event_id).all()


def statuses(database: Database) -> list[str]:
    return [row.status for row in rows(database)]


def test_ends_are_told_once_and_verified_by_the_library(
    database: Database, server: HookServer
) -> None:
    end(database, "before-it-was-set-up")
    with telling_to(server.url, database):
        end(database, "first", "failed")
        end(database, "second")
        wait_until(lambda: statuses(database) == ["delivered", "delivered"])
    assert server.names == ["first", "second"]
    first, second = server.heard
    told = StandardWebhook(SECRET).verify(first.body, dict(first.headers.items()))
    assert (told["type"], told["status"]) == ("search_status", "failed")
    assert first.headers["Kdnas-Event"] == str(told["event"])
    moment, _, given = first.headers["Kdnas-Signature"].removeprefix("t=").partition(",v1=")
    assert given == old_signature(SECRET.encode(), moment, first.body.decode())
    found, _ = rows(database)
    assert first.headers["webhook-id"] == found.id != second.headers["webhook-id"]
    assert (found.kind, found.job_name, found.job_status) == ("search", "first", "failed")
    assert (found.num_attempts, found.detail) == (1, "the receiver answered 204")
    assert found.url == server.url
    with database.read() as session:
        noted = [e for e in events.events_since(session, 0) if e.type == "webhook_delivered"]
    assert [e.payload["delivery"] for e in noted] == [row.id for row in rows(database)]


def test_trouble_is_tried_again_in_order_under_one_id(
    database: Database, server: HookServer
) -> None:
    server.answers = [500, 503, 429]
    with telling_to(server.url, database):
        end(database, "first")
        end(database, "second")
        wait_until(lambda: statuses(database) == ["delivered", "delivered"])
    assert server.names == ["first"] * 4 + ["second"]
    assert len({heard.headers["webhook-id"] for heard in server.heard[:4]}) == 1
    assert len({heard.body for heard in server.heard[:4]}) == 1
    for heard in server.heard:
        StandardWebhook(SECRET).verify(heard.body, dict(heard.headers.items()))
    assert rows(database)[0].num_attempts == 4


@pytest.mark.parametrize("answer", [410, 302])
def test_a_refusal_is_not_repeated(database: Database, server: HookServer, answer: int) -> None:
    server.answers = [answer]
    with telling_to(server.url, database):
        end(database, "refused")
        end(database, "welcome")
        wait_until(lambda: statuses(database) == ["given_up", "delivered"])
    assert server.names == ["refused", "welcome"]
    assert rows(database)[0].detail == f"the receiver answered {answer}"
    with database.read() as session:
        found = [e.payload["detail"] for e in events.events_since(session, 0) if "up" in e.type]
    assert found == [f"the receiver answered {answer}"]


def test_what_was_given_up_is_told_when_it_is_asked_for(
    database: Database, server: HookServer
) -> None:
    server.answers = [410]
    with telling_to(server.url, database):
        end(database, "refused")
        end(database, "welcome")
        wait_until(lambda: statuses(database) == ["given_up", "delivered"])
        with database.write() as session:
            webhook_deliveries.try_again(session, rows(database)[0].id)
        wait_until(lambda: statuses(database) == ["delivered", "delivered"])
    with telling_to(server.url, database):  # and it does not go back to there
        end(database, "next")
        wait_until(lambda: statuses(database) == ["delivered"] * 3)
    assert server.names == ["refused", "welcome", "refused", "next"]


def test_a_restart_goes_on_where_it_was(database: Database, server: HookServer) -> None:
    with telling_to(server.url, database):
        end(database, "first")
        wait_until(lambda: statuses(database) == ["delivered"])
    end(database, "meanwhile")
    with telling_to(server.url, database):
        server.wait_for(2)
    assert server.names == ["first", "meanwhile"]


def test_an_end_that_cannot_be_told_holds_up_no_other(
    database: Database, server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_of = telling._message_of

    def odd(session: Session, event: EventRecord) -> NewDelivery:
        message = message_of(session, event)
        if message.job_name == "odd":
            raise LookupError("an odd row")
        return message

    monkeypatch.setattr(telling, "_message_of", odd)
    with telling_to(server.url, database):
        for name in ("first", "odd", "last"):
            end(database, name)
        server.wait_for(2)
    assert server.names == ["first", "last"]


def test_what_was_told_by_a_program_of_before_is_not_told_anew(
    database: Database, server: HookServer
) -> None:
    end(database, "told")
    with database.write() as session:
        number = events.last_event_id(session)
        events.append_event(session, "webhook_delivered", {"event": number, "detail": "204"})
    end(database, "not-yet")
    with telling_to(server.url, database):
        server.wait_for(1)
    assert server.names == ["not-yet"]


def test_old_messages_are_forgotten_and_not_told_anew(
    database: Database, server: HookServer
) -> None:
    with telling_to(server.url, database):
        for name in ("first", "second"):
            end(database, name)
        wait_until(lambda: statuses(database) == ["delivered"] * 2)
    with database.write() as session:
        for row in session.query(WebhookDelivery):
            row.finished_at = datetime.now(UTC) - timedelta(days=31)
        for event in session.query(Event).filter(Event.type.like("webhook%")):
            session.delete(event)
    forget_old_deliveries(database)
    assert len(rows(database)) == 1
    with telling_to(server.url, database):
        end(database, "third")
        wait_until(lambda: statuses(database) == ["delivered"] * 2)
    assert server.names == ["first", "second", "third"]


def test_a_message_outlives_its_job(database: Database, server: HookServer) -> None:
    server.answers = [500] * 1000
    with telling_to(server.url, database):
        job = end(database, "first")
        server.wait_for(1)
        with database.write() as session:
            jobs.delete_job(session, job)
        server.answers.clear()
        wait_until(lambda: statuses(database) == ["delivered"])
    assert json.loads(server.heard[-1].body)["search"] == {"id": job, "name": "first"}


def test_news_of_yesterday_is_given_up(database: Database) -> None:
    with telling_to("http://127.0.0.1:9/nobody", database):
        end(database, "old")
        wait_until(lambda: [row.num_attempts > 0 for row in rows(database)] == [True])
        with database.write() as session:
            session.query(WebhookDelivery).one().give_up_at -= timedelta(days=1, minutes=1)
        wait_until(lambda: statuses(database) == ["given_up"])
    assert rows(database)[0].detail == "127.0.0.1 cannot be reached: Connection refused"


def test_a_name_that_leads_home_is_a_failed_delivery_that_says_so(database: Database) -> None:
    receiver = Receiver("http://hook.example.org/", resolve=lambda host, port: ["127.0.0.1"])
    hook = Webhook(receiver, Signer(SECRET), database)
    hook.start()
    wait_until(lambda: hook._position is not None)
    end(database, "first")
    wait_until(lambda: [row.num_attempts > 1 for row in rows(database)] == [True])
    hook.stop()
    hook._thread.join(20)
    (found,) = rows(database)
    assert found.status == "pending"
    assert found.detail == (
        "hook.example.org is 127.0.0.1, a loopback address, which is refused unless "
        "KDNAS_WEBHOOK_ALLOW_PRIVATE is 1"
    )


def test_several_coordinators_tell_each_end_once_and_in_order(
    database: Database, server: HookServer
) -> None:
    server.answers = [204, 500, 204, 503]
    names = [f"search-{number}" for number in range(12)]
    with telling_to(server.url, database), telling_to(server.url, database):
        for name in names:
            end(database, name)
        wait_until(lambda: statuses(database) == ["delivered"] * len(names))
    assert list(dict.fromkeys(server.names)) == names
    assert len(server.heard) == len(names) + 2  # those that were asked for again


KILLED = """
import sys
from api.webhook import telling
from api.webhook.receiver import Receiver
from api.webhook.signing import Signer
from kdnas.db.engine import Database, parse_url

telling.CLAIM_SECONDS = 1.0
with Database(parse_url(sys.argv[1])) as database:
    hook = telling.Webhook(Receiver(sys.argv[2], allow_private=True), Signer(sys.argv[3]), database)
    hook.start()
    hook._thread.join()
"""


def test_what_a_killed_one_was_telling_is_told_by_the_next(
    database: Database, database_url: str, server: HookServer
) -> None:
    with telling_to(server.url, database):
        pass  # it is set up
    for name in ("first", "second"):
        end(database, name)
    server.answering.clear()
    command = [sys.executable, "-c", KILLED, database_url, server.url, SECRET]
    with subprocess.Popen(command) as process:
        server.wait_for(1)  # it has been told, and nobody has written that down
        process.kill()
    server.answering.set()
    with telling_to(server.url, database):
        wait_until(lambda: statuses(database) == ["delivered"] * 2)
    assert server.names == ["first", "first", "second"]
    assert len({heard.headers["webhook-id"] for heard in server.heard[:2]}) == 1
    assert rows(database)[0].num_attempts == 2


def settings_of(tmp_path: Path, **values: str) -> Settings:
    given = {f"KDNAS_WEBHOOK_{name.upper()}": value for name, value in values.items()}
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path), **given})


def test_what_is_asked_of_the_settings(database: Database, tmp_path: Path) -> None:
    none = settings_of(tmp_path, secret=SECRET)
    assert Webhook.from_settings(none, database) is None
    whole = settings_of(tmp_path, secret=SECRET, url="https://user:pw@example.org/hook?key=1")
    made = Webhook.from_settings(whole, database)
    assert made is not None
    assert made.url == "https://example.org/hook"
    assert "pw" not in repr(whole)
    with pytest.raises(SpecError, match="KDNAS_WEBHOOK_SECRET is not, so that"):
        Webhook.from_settings(replace(whole, webhook_secret=None), database)
    with pytest.raises(SpecError, match="'file:///etc/passwd' is no http"):
        Webhook.from_settings(replace(whole, webhook_url="file:///etc/passwd"), database)
    private = {"secret": SECRET, "url": "http://169.254.169.254/latest"}
    for value in ("", "0", "no"):
        with pytest.raises(SpecError, match="a link-local address, which is refused"):
            Webhook.from_settings(settings_of(tmp_path, **private, allow_private=value), database)
    for value in ("1", "true", "yes"):
        found = settings_of(tmp_path, **private, allow_private=value)
        assert Webhook.from_settings(found, database) is not None


def test_a_secret_of_plain_text_is_warned_of_and_serves(
    database: Database, server: HookServer
) -> None:
    plain = "a secret of the user's, long enough"
    with capture_logs() as logged, telling_to(server.url, database, plain):
        end(database, "first")
        server.wait_for(1)
    (warning,) = [line["event"] for line in logged if line["log_level"] == "warning"]
    assert "is plain text, which the next version refuses" in warning
    assert plain not in str(logged)
    (heard,) = server.heard
    headers = dict(heard.headers.items())
    assert StandardWebhook(plain.encode()).verify(heard.body, headers)["status"] == "succeeded"


def test_every_kind_of_end_is_told(database: Database, server: HookServer) -> None:
    with telling_to(server.url, database):
        with database.write() as session:
            pairs = [evaluations.NewEvaluation("glue", "RTE", 3, {})]
            (row_id,) = evaluations.create_evaluations(session, pairs, model="minilm")
            jobs.set_status(session, row_id, "running")
            evaluations.set_figures(session, row_id, {"main": 0.6})
            made = pipelines.create_pipeline(session, {}, name="whole")
            jobs.set_status(session, made.id, "failed", "no student")
        server.wait_for(2)
    first, second = (told(heard.body) for heard in server.heard)
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


def told(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body)
    return found
