"""Which events go with the time, and which are needed however old they are."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, text

from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.exploration import explored
from kdnas.db.models import Event, IdempotencyKey
from kdnas.db.queue import claims
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import events, retention
from kdnas.testing.job_rows import make_job

MONTH_AGO = utc_now() - timedelta(days=30)
BEFORE = utc_now() - timedelta(days=7)


def make_old(database: Database) -> None:
    """Let all events be of a month ago."""
    with database.write() as session:
        session.execute(
            text("UPDATE events SET created_at = :then"), {"then": MONTH_AGO.isoformat()}
        )


def told(database: Database) -> list[tuple[str | None, str, object]]:
    with database.read() as session:
        rows = session.scalars(select(Event).order_by(Event.id))
        return [(row.job_id, row.type, row.payload.get("status")) for row in rows]


def say(database: Database, job_id: str | None, kind: str, **payload: object) -> int:
    with database.write() as session:
        return events.append_event(session, kind, payload, job_id=job_id)


def remove(database: Database) -> int:
    """Remove old events; what was counted before is what is removed."""
    with database.read() as session:
        counted = retention.num_old_events(session, BEFORE)
    removed = retention.remove_old_events(database, BEFORE)
    assert removed == counted
    return removed


def test_events_of_what_is_over_go_but_the_newest_of_each_job(database: Database) -> None:
    ids = [make_job(database, status=status) for status in ("succeeded", "cancelled", "failed")]
    make_old(database)
    young = say(database, ids[0], "search_warning", text="today")
    assert len(told(database)) == 7
    assert remove(database) == 4
    left = told(database)
    assert [job for job, *_ in left] == [ids[1], ids[2], ids[0]]
    with database.read() as session:
        assert explored.newest_event(session, ids[0]) == young
        assert explored.newest_event(session, ids[1]) > 0
    assert remove(database) == 0


@pytest.mark.parametrize("status", ["queued", "running", "paused"])
def test_events_of_what_is_not_over_stay_with_those_of_its_parts(
    database: Database, status: str
) -> None:
    parent = make_job(database, "pipeline", status)  # type: ignore[arg-type]
    part = make_job(database, "search", "succeeded", parent_id=parent)
    say(database, part, "search_warning", text="odd")
    make_old(database)
    before = told(database)
    assert remove(database) == 0
    assert told(database) == before


def test_deaths_are_counted_over_a_removal(database: Database) -> None:
    job_id = make_job(database, status="running")
    for deaths in (1, 2):
        with database.write() as session:
            owner = LeaseOwner.of_this_process("service")
            assert claims.note_death(session, job_id, owner, "killed") == deaths
        make_old(database)
        assert remove(database) == 0
    with database.write() as session:
        owner = LeaseOwner.of_this_process("service")
        assert claims.note_death(session, job_id, owner, "killed") == claims.MAX_DEATHS


def test_how_far_the_webhook_told_stays(database: Database) -> None:
    say(database, None, "webhook_enabled", event=0)
    say(database, None, "webhook_delivered", event=7)
    say(database, None, "webhook_given_up", event=9)
    make_job(database, status="succeeded")
    make_old(database)
    assert remove(database) == 3
    assert [kind for _, kind, _ in told(database)] == ["webhook_given_up", "search_status"]
    with database.read() as session:
        position = events.last_event(session, retention.WEBHOOK_POSITIONS)
        assert position is not None
        assert position.payload["event"] == 9


def test_the_highest_number_stays_when_everything_is_deleted(database: Database) -> None:
    for _ in range(3):
        number = say(database, None, "service_note")
    make_old(database)
    assert remove(database) == 2
    with database.read() as session:
        assert events.last_event_id(session) == number
    assert say(database, None, "service_note") == number + 1


def test_many_are_removed_in_short_transactions(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_AT_ONCE", 4)
    job_id = make_job(database, status="succeeded")
    for number in range(10):
        say(database, job_id, "search_warning", text=str(number))
    make_old(database)
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) > 2

    assert retention.remove_old_events(database, BEFORE, should_stop) == 8
    assert remove(database) == 3
    assert len(told(database)) == 1


def test_answers_go_after_a_day(database: Database) -> None:
    with database.write() as session:
        for hours in (1, 25):
            made = utc_now() - timedelta(hours=hours)
            row = IdempotencyKey(
                route="POST /", key=f"k{hours}", request_fingerprint="f", created_at=made
            )
            session.add(row)
    with database.write() as session:
        assert retention.num_old_answers(session) == 1
        assert retention.remove_old_answers(session) == 1
        assert session.scalars(select(IdempotencyKey.key)).all() == ["k1"]
