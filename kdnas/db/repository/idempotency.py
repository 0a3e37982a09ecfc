"""Answers that are given once: a request sent again under the same key changes nothing anew.

The key is written in the transaction that does what was asked, so the two are committed together:
a crash leaves neither, and one who comes with the same key meanwhile waits for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from kdnas.db.base import insert, utc_now
from kdnas.db.models import IdempotencyKey
from kdnas.errors import ConflictError

KEPT_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What was answered: HTTP status, body, and where the new thing is."""

    status: int
    body: Mapping[str, Any]
    location: str | None = None


def answer_once(
    session: Session,
    route: str,
    key: str,
    request_fingerprint: str,
    act: Callable[[Session], StoredAnswer],
) -> tuple[StoredAnswer, bool]:
    """Do what was asked unless that was done under this key within the last 24 hours.

    Args:
        session: of a write transaction; ``act`` works in it too.
        route: method and path.
        key: the client's.
        request_fingerprint: tells two bodies apart.
        act: does it. What it raises ends the transaction, and the key stays free.

    Returns:
        The answer, and whether it is an earlier one.

    Raises:
        ConflictError: the key was used for another request.
    """
    session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < utc_now() - KEPT_FOR))
    mine = session.scalar(
        insert(session, IdempotencyKey)
        .values(route=route, key=key, request_fingerprint=request_fingerprint)
        .on_conflict_do_nothing(index_elements=["route", "key"])
        .returning(IdempotencyKey.key)
    )
    row = session.get_one(IdempotencyKey, (route, key))
    if mine is None:
        return _earlier(row, request_fingerprint), True
    answer = act(session)
    row.response_status = answer.status
    row.response = {"body": dict(answer.body), "location": answer.location}
    return answer, False


def earlier_answer(
    session: Session, route: str, key: str, request_fingerprint: str
) -> StoredAnswer | None:
    """What was answered under this key within the last 24 hours, if anything.

    Raises:
        ConflictError: the key was used for another request.
    """
    row = session.get(IdempotencyKey, (route, key))
    if row is None or row.created_at < utc_now() - KEPT_FOR:
        return None
    return _earlier(row, request_fingerprint)


def _earlier(row: IdempotencyKey, request_fingerprint: str) -> StoredAnswer:
    if row.request_fingerprint != request_fingerprint:
        raise ConflictError(
            f"Idempotency-Key {row.key!r} was used for another request at "
            f"{row.created_at:%Y-%m-%d %H:%M:%S} UTC; send a new key with a new request"
        )
    assert row.response_status is not None  # written in the transaction that wrote the key
    assert row.response is not None
    return StoredAnswer(row.response_status, row.response["body"], row.response["location"])
