"""Messages of a webhook: one of each end, one sender at a time, in order, kept for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.lists import webhook_pages
from kdnas.db.models import WebhookDelivery
from kdnas.db.queue import coordinators
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import ClaimedDelivery, DeliveryStatus, NewDelivery
from kdnas.db.repository import jobs, webhook_deliveries
from kdnas.errors import ConflictError, NotFoundError, RequestError
from kdnas.testing.job_rows import make_job

URL = "https://example.org/hook"


def message(event_id: int, job_id: str = "job", **own: Any) -> NewDelivery:
    values = {
        "type": "search_status",
        "kind": "search",
        "job_name": f"{job_id} then",
        "job_status": "succeeded",
        "body": f'{{"event": {event_id}}}',
        "created_at": utc_now(),
        **own,
    }
    return NewDelivery(event_id=event_id, job_id=job_id, **values)


def add(database: Database, *new: NewDelivery) -> None:
    with database.write() as session:
        webhook_deliveries.add_deliveries(session, new, URL)


def claim(database: Database, seconds: float = 60.0) -> ClaimedDelivery | None:
    with database.write() as session:
        return webhook_deliveries.claim_next(session, URL, seconds)


def claimed(database: Database, seconds: float = 60.0) -> ClaimedDelivery:
    found = claim(database, seconds)
    assert found is not None
    return found


def settle(
    database: Database, one: ClaimedDelivery, wanted: DeliveryStatus, pause: float = 0.0
) -> DeliveryStatus | None:
    with database.write() as session:
        return webhook_deliveries.settle(session, one, wanted, f"said {wanted}", pause)


def is_due(database: Database) -> bool:
    with database.read() as session:
        return webhook_deliveries.is_due(session)


def row(database: Database, event_id: int) -> WebhookDelivery:
    with database.read() as session:
        return session.query(WebhookDelivery).filter_by(event_id=event_id).one()


def alter(database: Database, event_id: int, **values: Any) -> None:
    with database.write() as session:
        found = session.query(WebhookDelivery).filter_by(event_id=event_id).one()
        for name, value in values.items():
            setattr(found, name, value)


def test_a_message_is_written_once_and_stays_as_it_is(database: Database) -> None:
    with database.read() as session:
        assert webhook_deliveries.newest_event_id(session) is None
    add(database, message(3), message(5))
    add(database, message(3, "other"), message(5, "other"), message(8, "other"))
    with database.read() as session:
        found = session.query(WebhookDelivery).order_by(WebhookDelivery.event_id).all()
        assert webhook_deliveries.newest_event_id(session) == 8
    assert [(one.event_id, one.job_id) for one in found] == [(3, "job"), (5, "job"), (8, "other")]
    assert {one.status for one in found} == {"pending"}


def test_one_is_sent_at_a_time_in_the_order_of_events(database: Database) -> None:
    assert not is_due(database)
    assert claim(database) is None
    add(database, message(2), message(4))
    first = claimed(database)
    assert (first.event_id, first.attempt, first.body) == (2, 1, '{"event": 2}')
    assert not is_due(database)  # the second waits for the first
    assert claim(database) is None
    assert settle(database, first, "delivered") == "delivered"
    assert claimed(database).event_id == 4


def test_a_message_whose_sender_has_died_is_anybodys_after_a_while(database: Database) -> None:
    add(database, message(2))
    dead = claimed(database, seconds=0.0)
    heir = claimed(database)
    assert (heir.id, heir.attempt) == (dead.id, 2)
    # Should the first have been slow only, what it says later changes nothing.
    assert settle(database, dead, "delivered") is None
    assert row(database, 2).status == "pending"
    assert settle(database, heir, "delivered") == "delivered"
    assert settle(database, heir, "given_up") is None
    assert row(database, 2).detail == "said delivered"


def test_a_failed_attempt_waits_and_holds_up_the_others(database: Database) -> None:
    add(database, message(2), message(4))
    assert settle(database, claimed(database), "pending", pause=60.0) == "pending"
    assert not is_due(database)
    assert claim(database) is None
    waiting = row(database, 2)
    assert waiting.detail == "said pending"
    assert waiting.next_attempt_at is not None
    assert timedelta() < waiting.next_attempt_at - utc_now() <= timedelta(seconds=60)
    alter(database, 2, next_attempt_at=utc_now() - timedelta(seconds=1))
    assert claimed(database).attempt == 2


def test_what_fails_when_it_is_a_day_old_is_given_up(database: Database) -> None:
    add(database, message(2), message(4))
    alter(database, 2, give_up_at=utc_now() - timedelta(seconds=1))
    assert settle(database, claimed(database), "pending") == "given_up"
    assert claimed(database).event_id == 4
    given_up = row(database, 2)
    assert given_up.next_attempt_at is None
    assert given_up.finished_at is not None


def test_what_ended_long_before_floods_nobody(database: Database) -> None:
    old = utc_now() - timedelta(days=1, minutes=1)
    add(database, message(2, created_at=old), message(4))
    assert row(database, 2).status == "given_up"
    assert "more than a day" in (row(database, 2).detail or "")
    assert claimed(database).event_id == 4


def test_what_was_given_up_has_one_more_attempt_before_all_others(database: Database) -> None:
    add(database, message(2), message(4))
    settle(database, claimed(database), "given_up")
    with database.write() as session:
        webhook_deliveries.try_again(session, row(database, 2).id)
    again = claimed(database)
    assert (again.event_id, again.attempt) == (2, 2)
    with pytest.raises(ConflictError, match="is pending, and only one that was given up"):
        _try_again(database, again.id)
    assert settle(database, again, "pending", pause=60.0) == "given_up"  # nobody waits for it
    assert settle(database, claimed(database), "delivered") == "delivered"
    _try_again(database, again.id)
    assert settle(database, claimed(database), "delivered") == "delivered"
    with pytest.raises(ConflictError, match="is delivered"):
        _try_again(database, again.id)
    for nobody in ("nobody", "a\0b"):
        with pytest.raises(NotFoundError, match="there is no webhook delivery"):
            _try_again(database, nobody)


def _try_again(database: Database, delivery_id: str) -> None:
    with database.write() as session:
        webhook_deliveries.try_again(session, delivery_id)


def forget_old(database: Database) -> bool:
    with database.read() as session:
        there_are = webhook_deliveries.any_old(session)
    with database.write() as session:
        webhook_deliveries.forget_old(session)
    return there_are


def test_what_is_over_for_a_month_is_forgotten_but_for_how_far_it_was(database: Database) -> None:
    add(database, *(message(number) for number in (1, 2, 3, 4)))
    for status in ("delivered", "given_up", "delivered"):
        settle(database, claimed(database), status)
    assert not forget_old(database)
    long_ago = utc_now() - timedelta(days=30, minutes=1)
    for number in (1, 2):
        alter(database, number, finished_at=long_ago)
    assert forget_old(database)
    assert not forget_old(database)
    with database.read() as session:
        assert sorted(one.event_id for one in session.query(WebhookDelivery)) == [3, 4]
    settle(database, claimed(database), "delivered")
    for number in (3, 4):
        alter(database, number, finished_at=long_ago)
    assert forget_old(database)
    assert not forget_old(database)
    with database.read() as session:
        assert webhook_deliveries.newest_event_id(session) == 4


def numbers(database: Database, **asked: Any) -> list[int]:
    with database.read() as session:
        page = webhook_pages.list_deliveries(session, asked.pop("wanted", {}), **asked)
    return [one["event_id"] for one in page.items]


def moment(minutes: int) -> datetime:
    return utc_now() - timedelta(hours=2) + timedelta(minutes=minutes)


def test_the_list_has_filters_sorts_and_pages(database: Database) -> None:
    add(database, *(message(n, f"job-{n % 2}", created_at=moment(n)) for n in range(1, 7)))
    settle(database, claimed(database), "delivered")
    settle(database, claimed(database), "given_up")
    settle(database, claimed(database), "pending", pause=60.0)
    assert numbers(database) == [6, 5, 4, 3, 2, 1]
    assert numbers(database, descending=False) == [1, 2, 3, 4, 5, 6]
    assert numbers(database, wanted={"status": ["delivered", "given_up"]}) == [2, 1]
    assert numbers(database, wanted={"status": ["pending"]}) == [6, 5, 4, 3]
    assert numbers(database, wanted={"job": "job-1"}) == [5, 3, 1]
    assert numbers(database, wanted={"job": "job-1 then"}) == [5, 3, 1]
    assert numbers(database, wanted={"job": "nobody"}) == []
    assert numbers(database, sort="num_attempts") == [3, 2, 1, 6, 5, 4]
    assert numbers(database, sort="next_attempt_at", descending=True)[:4] == [3, 6, 5, 4]
    with database.read() as session:
        found, cursor = [], None
        while True:
            page = webhook_pages.list_deliveries(
                session, {"status": ["pending"]}, sort="status", limit=3, cursor=cursor
            )
            found += [one["event_id"] for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
            with pytest.raises(RequestError, match="does not belong to this list"):
                webhook_pages.list_deliveries(session, {}, sort="status", cursor=cursor)
    assert found == [6, 5, 4, 3]


def test_a_message_names_its_job_also_when_that_is_gone(database: Database) -> None:
    job = make_job(database, name="before", status="cancelled")
    add(database, message(2, job, job_name="before"))
    with database.write() as session:
        jobs.rename(session, job, "after")
    for name in (job, "before", "after"):
        assert numbers(database, wanted={"job": name}) == [2]
    with database.read() as session:
        (listed,) = webhook_pages.list_deliveries(session, {}).items
        assert (listed["job_name"], listed["job_deleted"]) == ("after", False)
        assert "body" not in listed
    with database.write() as session:
        jobs.delete_job(session, job)
    with database.read() as session:
        found = webhook_pages.read_delivery(session, listed["id"])
        assert (found["job_name"], found["job_deleted"]) == ("before", True)
        assert found["message"] == {"event": 2}
        for nobody in ("nobody", "a\0b"):
            with pytest.raises(NotFoundError, match="there is no webhook delivery"):
                webhook_pages.read_delivery(session, nobody)


def test_which_coordinators_have_a_webhook(database: Database) -> None:
    with database.write() as session:
        for token, url in (("a", URL), ("b", URL), ("c", None), ("d", "http://10.0.0.1/")):
            owner = LeaseOwner.of_this_process("service", token)
            coordinators.note_alive(session, owner, 1, 0, webhook_url=url)
    with database.read() as session:
        assert coordinators.webhook_urls(session) == ["http://10.0.0.1/", URL]
    with database.write() as session:
        coordinators.note_gone(session, LeaseOwner.of_this_process("service", "d"))
    with database.read() as session:
        assert coordinators.webhook_urls(session) == [URL]


def test_where_there_is_none_nothing_is_old(database: Database) -> None:
    with database.write() as session:
        assert not webhook_deliveries.any_old(session)
        webhook_deliveries.forget_old(session)
