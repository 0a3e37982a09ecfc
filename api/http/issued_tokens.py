"""The tokens of users as a process of the service knows them, and what is written of them.

All of them are read at once, at most every second and only if somebody asks, so that a request
costs no question to the database, and one that was revoked anywhere is refused a second later.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

import structlog

from api.http.limiter import FAILURE_SECONDS, FAILURES_OF_ALL, place_of
from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.records import TokenRecord
from kdnas.db.repository import tokens
from kdnas.db.repository.events import append_event
from kdnas.errors import DatabaseError

FRESH_SECONDS: Final = 1.0
"""How old what is known of them may be."""
USED_SECONDS: Final = 60.0
"""A token that is used all the time has its last use written so often."""

log = structlog.get_logger("kdnas.service")


class IssuedTokens:
    """Those of the database that were not revoked; read at once, so that it begins with knowing.

    Attributes:
        lost: why the database could not be asked the last time; none of them is valid then.

    Raises:
        DatabaseError: the database is out of reach at the beginning.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._reading: asyncio.Task[None] | None = None
        self._began = clock()
        self._known = self._read()
        self.lost: DatabaseError | None = None

    def __len__(self) -> int:
        """How many there are, also of those whose time has passed.

        The service asks for a log-in as long as there is one: that a day has come must not open it.
        """
        return len(self._known)

    def get(self, token_id: str) -> TokenRecord | None:
        """The token with an id; None if it is unknown, or over."""
        record = None if self.lost else self._known.get(token_id)
        return None if record is None or record.is_over(utc_now()) else record

    def matching(self, token: str) -> TokenRecord | None:
        """What is kept of a token; None if it is no valid one."""
        record = self.get(tokens.id_in(token) or "")
        given = tokens.digest_of(token)
        return record if record and hmac.compare_digest(record.digest, given) else None

    async def refresh(self, since: float | None = None) -> None:
        """Ask for what was stored at a moment of the clock; a second ago, unless told.

        Many who ask at once share a reading.
        """
        since = self._clock() - FRESH_SECONDS if since is None else since
        while self._began < since:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew())
            await asyncio.shield(self._reading)

    async def refresh_now(self) -> None:
        """Ask for what is stored at this moment."""
        await self.refresh(self._clock())

    async def _renew(self) -> None:
        began = self._clock()
        try:
            self._known, self.lost = await asyncio.to_thread(self._read), None
        except DatabaseError as error:
            self.lost = error
        self._began = began

    def _read(self) -> Mapping[str, TokenRecord]:
        with self._database.read() as session:
            return {record.id: record for record in tokens.list_tokens(session)}


class LoginRecords:
    """Writes who logged in, who failed to and when a token was used, while nobody waits for it.

    Guesses must not fill the database: of one client at most one event a minute tells of them, and
    of all together at most :data:`~api.http.limiter.FAILURES_OF_ALL`.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logins")
        self._failed: dict[str, float] = {}
        self._used: dict[str, float] = {}

    def logged_in(self, name: str, role: str, client: str) -> None:
        """Tell that a session was begun."""
        self._tell("login", {"role": role, "client": client}, by=name)

    def failed(self, client: str) -> None:
        """Tell that a wrong token was sent, unless that was told just now."""
        now, place = self._clock(), place_of(client)
        self._failed = {p: m for p, m in self._failed.items() if m > now - FAILURE_SECONDS}
        if place not in self._failed and len(self._failed) < FAILURES_OF_ALL:
            self._failed[place] = now
            self._tell("login_failed", {"client": client})

    def used(self, token_id: str) -> None:
        """Write down that a token was used, unless that was done just now."""
        now = self._clock()
        if now - self._used.get(token_id, -USED_SECONDS) >= USED_SECONDS:
            self._used[token_id] = now
            self._thread.submit(self._write_use, token_id, utc_now())

    def close(self) -> None:
        """Write what is left to be written, and end."""
        self._thread.shutdown()

    def _tell(self, event: str, payload: dict[str, Any], by: str | None = None) -> None:
        self._thread.submit(self._write_event, event, payload, by)

    def _write_event(self, event: str, payload: dict[str, Any], by: str | None) -> None:
        try:
            with self._database.write(by) as session:
                append_event(session, event, payload)
        except DatabaseError as error:  # nobody is kept out by it
            log.warning("an event could not be written", event=event, error=str(error), **payload)

    def _write_use(self, token_id: str, moment: datetime) -> None:
        try:
            with self._database.write() as session:
                tokens.note_used(session, {token_id: moment})
        except DatabaseError as error:
            log.warning("a token's last use could not be written", token=token_id, error=str(error))
