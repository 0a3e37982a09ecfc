"""Tokens of users: made, listed, revoked, and when each was used last."""

from __future__ import annotations

import difflib
import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import Token
from kdnas.db.records import TokenRecord, record_of
from kdnas.db.repository.events import append_event
from kdnas.errors import ConflictError, NotFoundError, SpecError
from kdnas.records import Role

PREFIX: Final = "kdnas"
RESERVED: Final = ("operator", "viewer", "cli")
"""Who events say has done what, where it was no user with a token of his own."""

_NAME = re.compile(r"\w[\w.@-]{0,99}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_LENGTH, _SECRET_BYTES = 10, 20


def digest_of(token: str) -> bytes:
    """What is kept of a token: its SHA-256, which is enough for 160 random bits."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def id_in(token: str) -> str | None:
    """The part of a token that may be shown; None if it is none of these tokens."""
    prefix, *parts = token.split("_")
    return parts[0] if prefix == PREFIX and len(parts) == 2 else None


def create_token(
    session: Session, name: str, role: Role, expires_at: datetime | None = None
) -> tuple[TokenRecord, str]:
    """Make a token for a user, with an event; one user may have several.

    Args:
        session: of a write transaction.
        name: of the user.
        role: what it lets him do.
        expires_at: when it ends by itself; None never does.

    Returns:
        What is kept of it, and the token, which nobody can read again.

    Raises:
        SpecError: the name is none, or that of something else.
    """
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"{name!r} is no name of a user: take up to 100 letters, digits and . _ @ -, the first "
            "of them a letter or a digit"
        )
    if name in RESERVED:
        raise SpecError(
            f"{name!r} stands for who has no token of his own; name the user for whom it is"
        )
    token_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    token = f"{PREFIX}_{token_id}_{secrets.token_hex(_SECRET_BYTES)}"
    row = Token(id=token_id, name=name, role=role, digest=digest_of(token), expires_at=expires_at)
    session.add(row)
    append_event(session, "token_created", {"token": token_id, "name": name, "role": role})
    return record_of(row, TokenRecord), token


def list_tokens(session: Session, *, revoked: bool = False) -> list[TokenRecord]:
    """Tokens, the newest first; also those that were revoked, if asked for."""
    query = select(Token).order_by(Token.created_at.desc(), Token.id)
    if not revoked:
        query = query.where(Token.revoked_at.is_(None))
    return [record_of(row, TokenRecord) for row in session.scalars(query)]


def revoke(session: Session, reference: str) -> list[TokenRecord]:
    """End a token, given by its id, or all those of a user, given by name; with events.

    Returns:
        What was revoked.

    Raises:
        NotFoundError: there is neither; says which name is nearest.
        ConflictError: all of them were revoked before.
    """
    rows = [] if "\0" in reference else _named(session, reference)
    if not rows:
        raise _unknown(session, reference)
    standing = [row for row in rows if row.revoked_at is None]
    if not standing:
        what = "token" if len(rows) == 1 else "every token of"
        raise ConflictError(
            f"{what} {reference!r} was revoked before; `kdnas tokens list` shows "
            "those that are left"
        )
    now = utc_now()
    for row in standing:
        row.revoked_at = now
    for row in standing:
        told = {"token": row.id, "name": row.name, "role": row.role}
        append_event(session, "token_revoked", told)
    return [record_of(row, TokenRecord) for row in standing]


def note_used(session: Session, moments: Mapping[str, datetime]) -> None:
    """Write down when tokens were used, by their ids; a later use that is known already stays."""
    for token_id, moment in sorted(moments.items()):
        earlier = or_(Token.last_used_at.is_(None), Token.last_used_at < moment)
        session.execute(
            update(Token).where(Token.id == token_id, earlier).values(last_used_at=moment)
        )


def _named(session: Session, reference: str) -> list[Token]:
    """The token with an id, else those of the user of this name, locked."""
    for where in (Token.id == reference, Token.name == reference):
        query = select(Token).where(where).order_by(Token.id).with_for_update()
        found = list(session.scalars(query))
        if found:
            return found
    return []


def _unknown(session: Session, reference: str) -> NotFoundError:
    known = {text for row in list_tokens(session) for text in (row.name, row.id)}
    near = difflib.get_close_matches(reference, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else "`kdnas tokens list` shows all"
    return NotFoundError(f"there is no token {reference!r}, nor a user of that name; {meant}")
