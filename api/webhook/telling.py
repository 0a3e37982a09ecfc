"""Telling a receiver what has ended: in the order of the events, signed, and at least once.

A message is written of each end, and then sent; what is written outlives a kill and its job.
Nothing waits for the receiver. While it is out of reach a message is sent again, at growing
intervals, until it is a day old, and the others wait for it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from api.webhook.receiver import Answer, Receiver
from api.webhook.signing import ADVICE, Signer
from kdnas.db.engine import Database, Session
from kdnas.db.models import FINAL_STATUSES
from kdnas.db.records import ClaimedDelivery, DeliveryStatus, EventRecord, NewDelivery
from kdnas.db.repository import jobs, webhook_deliveries
from kdnas.db.repository.events import append_event, events_since, last_event, last_event_id
from kdnas.db.repository.retention import WEBHOOK_POSITIONS
from kdnas.errors import DatabaseError
from kdnas.settings import Settings

POLL_SECONDS = 1.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
CLAIM_SECONDS = 60.0
"""A message whose sender has died is sent by another one after this time; it is far more than an
attempt takes, so that two never send at the same time."""
_EVENTS_AT_ONCE: Final = 500
_ENABLED, _TOLD, _GIVEN_UP = WEBHOOK_POSITIONS

log = structlog.get_logger("kdnas.webhook")


class Webhook:
    """Tells one receiver, in a thread of its own.

    Args:
        receiver: where to post.
        signer: signs what is posted.
        database: whose events are told.
    """

    def __init__(self, receiver: Receiver, signer: Signer, database: Database) -> None:
        self._receiver, self._signer, self._database = receiver, signer, database
        self._position: int | None = None  # all ends up to this event are written as messages
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    @classmethod
    def from_settings(cls, settings: Settings, database: Database) -> Webhook | None:
        """The webhook of ``KDNAS_WEBHOOK_URL``, if there is one.

        Raises:
            SpecError: its URL or its secret is refused.
        """
        found = read_settings(settings)
        return None if found is None else cls(*found, database)

    @property
    def url(self) -> str:
        """What it tells, without credentials and query."""
        return self._receiver.shown

    def start(self) -> None:
        """Begin with what has not been told yet."""
        if self._signer.is_plain:
            log.warning(
                f"KDNAS_WEBHOOK_SECRET is plain text, which the next version refuses; {ADVICE}"
            )
        if (proxy := self._receiver.ignored_proxy) is not None:
            log.warning("the webhook is told directly, and not through a proxy", ignored=proxy)
        self._thread.start()

    def stop(self) -> None:
        """End; what is not told yet is told after the next start."""
        self._stopping.set()

    def _run(self) -> None:
        wait = 0.0
        while not self._stopping.wait(wait):
            wait = POLL_SECONDS
            try:
                self._write_messages()
                if self._send_next():
                    wait = 0.0
            except DatabaseError as error:
                log.error("database out of reach", reason=str(error))
            except Exception:  # the next one may go better, and others are waiting
                log.exception("the webhook goes on after an error")

    def _write_messages(self) -> None:
        """Write a message of each end that there is none of yet."""
        if self._position is None:
            self._position = self._first_position()
        while not self._stopping.is_set():
            with self._database.read() as session:
                events = events_since(session, self._position, limit=_EVENTS_AT_ONCE)
                new = list(_messages_of(session, events))
            if new:
                with self._database.write() as session:
                    webhook_deliveries.add_deliveries(session, new, self._receiver.shown)
            if events:
                self._position = events[-1].id
            if len(events) < _EVENTS_AT_ONCE:
                return

    def _first_position(self) -> int:
        """Number of the last event that is known to be written; from now on if none ever was.

        Programs of before noted with an event how far they had told.
        """
        with self._database.read() as session:
            noted = last_event(session, WEBHOOK_POSITIONS)
            written = webhook_deliveries.newest_event_id(session)
        if noted is not None:
            return max(int(noted.payload["event"]), written or 0)
        if written is not None:
            return written
        with self._database.write() as session:
            position = last_event_id(session)
            append_event(session, _ENABLED, {"event": position})
        return position

    def _send_next(self) -> bool:
        """Send the next message, if it may be sent now; whether another may follow at once."""
        with self._database.read() as session:  # a writer would hold up others on SQLite
            if not webhook_deliveries.is_due(session):
                return False
        with self._database.write() as session:
            claimed = webhook_deliveries.claim_next(session, self._receiver.shown, CLAIM_SECONDS)
        if claimed is None:
            return False
        headers = self._signer.headers(claimed.id, claimed.body)
        answer = self._receiver.post(
            claimed.body, {**headers, "Kdnas-Event": str(claimed.event_id)}
        )
        return self._settle(claimed, answer) != "pending"

    def _settle(self, claimed: ClaimedDelivery, answer: Answer) -> DeliveryStatus | None:
        wanted: DeliveryStatus = "delivered" if answer.is_taken else "given_up"
        if answer.wants_again:
            wanted = "pending"
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(claimed.attempt - 1, 30), LONGEST_PAUSE_SECONDS)
        with self._database.write() as session:
            status = webhook_deliveries.settle(session, claimed, wanted, answer.detail, pause)
            if status in ("delivered", "given_up"):
                kind = _TOLD if status == "delivered" else _GIVEN_UP
                said = {"event": claimed.event_id, "delivery": claimed.id, "detail": answer.detail}
                append_event(session, kind, said)  # of no job, since jobs can be deleted
        subject = {"delivery": claimed.id, "number": claimed.event_id, "detail": answer.detail}
        if status is None:
            log.warning("another coordinator has taken over", **subject)
        elif status == "pending":
            log.error("not delivered", **subject, again_in_seconds=pause)
        else:
            log.info(status.replace("_", " "), **subject)
        return status


def read_settings(settings: Settings) -> tuple[Receiver, Signer] | None:
    """Whom the settings want told, and what signs it; None if nobody.

    Raises:
        SpecError: the URL or the secret is refused.
    """
    if not settings.webhook_url:
        return None
    receiver = Receiver(settings.webhook_url, settings.webhook_allow_private)
    return receiver, Signer(settings.webhook_secret)


def forget_old_deliveries(database: Database) -> None:
    """Delete messages that have been over for long."""
    with database.read() as session:
        if not webhook_deliveries.any_old(session):
            return
    with database.write() as session:
        webhook_deliveries.forget_old(session)


def _messages_of(session: Session, events: Iterable[EventRecord]) -> Iterator[NewDelivery]:
    """Messages of the ends among some events."""
    for event in filter(_is_end, events):
        try:
            yield _message_of(session, event)
        except DatabaseError:
            raise
        except Exception:  # one odd job must not keep all later ends from being told
            log.exception("an end is not told", job=event.job_id, event_id=event.id)


def _message_of(session: Session, event: EventRecord) -> NewDelivery:
    assert event.kind is not None  # it is an end
    assert event.job_id is not None
    said = {"event": event.id, "type": event.type, "created_at": event.created_at.isoformat()}
    job = jobs.get_job(session, event.job_id)
    return NewDelivery(
        event_id=event.id,
        type=event.type,
        kind=event.kind,
        job_id=event.job_id,
        job_name=job.name,
        job_status=event.payload["status"],
        body=json.dumps({**said, **event.payload, event.kind: job.outcome}),
        created_at=event.created_at,
    )


def _is_end(event: EventRecord) -> bool:
    ended = event.payload.get("status") in FINAL_STATUSES
    return ended and event.kind is not None and event.type == f"{event.kind}_status"
