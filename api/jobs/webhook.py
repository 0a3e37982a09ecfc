"""Telling a web server of the user's that a search, a distillation and the like have ended.

Each end is posted as JSON, signed, in the order of the events and at least once: how far they were
told is itself an event, so that a restart goes on there. Nothing waits for the user's server; while
it is out of reach it is tried again, at growing intervals, until the news is a day old.

A receiver checks ``Kdnas-Signature: t=SECONDS,v1=HEX``: HEX is the HMAC-SHA256, with the secret as
its key, of the text ``SECONDS.BODY``. ``Kdnas-Event`` is the event's number, the same whenever an
end is told again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from kdnas.db.engine import Database
from kdnas.db.models import FINAL_STATUSES
from kdnas.db.records import EventRecord
from kdnas.db.repository import jobs
from kdnas.db.repository.events import append_event, events_since, last_event, last_event_id
from kdnas.db.repository.retention import WEBHOOK_POSITIONS
from kdnas.errors import DatabaseError, NotFoundError, SpecError
from kdnas.settings import Settings

POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
TOLD_FOR = timedelta(days=1)
_ENABLED, _TOLD, _GIVEN_UP = WEBHOOK_POSITIONS
_AGAIN: Final = {408, 425, 429}

log = structlog.get_logger("kdnas.webhook")


class Webhook:
    """Tells one URL, in a thread of its own.

    Args:
        url: where to post.
        secret: signs what is posted.
        database: whose events are told.

    Raises:
        SpecError: no secret, or not an http URL.
    """

    def __init__(self, url: str, secret: str, database: Database) -> None:
        if not url.startswith(("http://", "https://")):
            raise SpecError(f"KDNAS_WEBHOOK_URL {url!r} is no http:// or https:// URL; correct it")
        if not secret:
            raise SpecError(
                "KDNAS_WEBHOOK_URL is set and KDNAS_WEBHOOK_SECRET is not; set it, so that the "
                "receiver can tell who is calling"
            )
        self._url, self._secret, self._database = url, secret, database
        self._stopping = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    @classmethod
    def from_settings(cls, settings: Settings, database: Database) -> Webhook | None:
        """The webhook of ``KDNAS_WEBHOOK_URL``, if there is one."""
        if not settings.webhook_url:
            return None
        return cls(settings.webhook_url, settings.webhook_secret or "", database)

    def start(self) -> None:
        """Begin with what has not been told yet."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is not told yet is told after the next start."""
        self._stopping.set()

    def _run(self) -> None:
        position: int | None = None
        wait = 0.0
        while not self._stopping.wait(wait):
            wait = POLL_SECONDS
            try:
                if position is None:
                    position = self._first_position()
                with self._database.read() as session:
                    events = events_since(session, position, limit=500)
                for event in events:
                    if _is_end(event) and not self._tell(event):
                        wait, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE_SECONDS)
                        break
                    position = event.id
                else:
                    wait = 0.0 if len(events) == 500 else POLL_SECONDS
            except DatabaseError as error:
                log.error("database out of reach", reason=str(error))
            except Exception:  # the next one may go better, and others are waiting
                log.exception("the webhook goes on after an error")

    def _first_position(self) -> int:
        """Number of the last event that was told; from now on if none ever was."""
        told = self._last_told()
        if told is None:
            with self._database.write() as session:
                told = last_event_id(session)
                append_event(session, _ENABLED, {"event": told})
        return told

    def _last_told(self) -> int | None:
        with self._database.read() as session:
            found = last_event(session, WEBHOOK_POSITIONS)
        return None if found is None else int(found.payload["event"])

    def _tell(self, event: EventRecord) -> bool:
        """Post an event unless another coordinator has; False if it is to be tried again."""
        if (self._last_told() or 0) >= event.id:
            return True
        if datetime.now(UTC) - event.created_at > TOLD_FOR:
            self._note(event, _GIVEN_UP, "the receiver was out of reach for a day")
            return True
        try:
            status = self._post(event.id, self._body(event))
            reason = f"the receiver answered {status}"
        except OSError as error:
            status, reason = 503, str(error)
        if status >= 500 or status in _AGAIN:
            log.error("not delivered", number=event.id, reason=reason, again_in_seconds=self._pause)
            return False
        if status < 300:
            self._pause = FIRST_PAUSE_SECONDS
        self._note(event, _TOLD if status < 300 else _GIVEN_UP, reason)
        return True

    def _post(self, number: int, body: bytes) -> int:
        moment = str(int(time.time()))
        request = urllib.request.Request(
            self._url,
            data=body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "kdnas",
                "Kdnas-Event": str(number),
                "Kdnas-Signature": f"t={moment},v1={signature(self._secret, moment, body)}",
            },
        )
        with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return int(answer.status)

    def _body(self, event: EventRecord) -> bytes:
        said = {"event": event.id, "type": event.type, "created_at": event.created_at.isoformat()}
        assert event.kind is not None  # it is an end
        outcome = None  # of what was deleted a moment ago
        with self._database.read() as session, suppress(NotFoundError):
            outcome = jobs.get_job(session, event.job_id or "").outcome
        return json.dumps({**said, **event.payload, event.kind: outcome}).encode()

    def _note(self, event: EventRecord, kind: str, detail: str) -> None:
        """Write down how far was told; without a subject, since searches can be deleted."""
        with self._database.write() as session:
            append_event(session, kind, {"event": event.id, "detail": detail})
        log.info(kind.replace("_", " "), number=event.id, detail=detail)


def signature(secret: str, moment: str, body: bytes) -> str:
    """HMAC-SHA256 of ``moment.body`` in hexadecimal."""
    return hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()


_OPENER = urllib.request.OpenerDirector()
"""Gives every answer as it is. A redirect would carry the news elsewhere, as a GET without body."""
for _handler in (
    urllib.request.ProxyHandler(),
    urllib.request.HTTPHandler(),
    urllib.request.HTTPSHandler(),
):
    _OPENER.add_handler(_handler)


def _is_end(event: EventRecord) -> bool:
    ended = event.payload.get("status") in FINAL_STATUSES
    return ended and event.kind is not None and event.type == f"{event.kind}_status"
