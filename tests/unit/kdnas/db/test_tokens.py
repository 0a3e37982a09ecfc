"""Tokens of users in the database: nothing there lets anybody in."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.models import Token
from kdnas.db.repository import events, tokens
from kdnas.errors import ConflictError, NotFoundError, SpecError


def make(database: Database, name: str, **more: object) -> tuple[str, str]:
    """Id and token of a new one."""
    with database.write(by="cli") as session:
        record, token = tokens.create_token(session, name, "operator", **more)  # type: ignore[arg-type]
    return record.id, token


def test_a_token_is_kept_as_its_hash_alone(database: Database) -> None:
    token_id, token = make(database, "anna")
    assert token.startswith(f"kdnas_{token_id}_")
    assert len(token.rpartition("_")[2]) == 40
    assert tokens.id_in(token) == token_id
    with database.read() as session:
        row = session.scalars(select(Token)).one()
        stored = {column.name: getattr(row, column.name) for column in Token.__table__.columns}
        assert row.digest == tokens.digest_of(token)
        told = [(e.type, dict(e.payload)) for e in events.events_since(session)]
    assert token.rpartition("_")[2] not in repr(stored) + repr(told)
    about = {"token": token_id, "name": "anna", "role": "operator"}
    assert told == [("token_created", {**about, "by": "cli"})]


def test_two_tokens_of_a_user_are_revoked_by_id_or_together(database: Database) -> None:
    first, second, third = (make(database, "anna")[0] for _ in range(3))
    other, _ = make(database, "bob")
    with database.write(by="cli") as session:
        assert [record.id for record in tokens.revoke(session, second)] == [second]
    with database.write(by="cli") as session:
        gone = tokens.revoke(session, "anna")
    assert {record.id for record in gone} == {first, third}
    with database.read() as session:
        assert [record.id for record in tokens.list_tokens(session)] == [other]
        everything = tokens.list_tokens(session, revoked=True)
        told = [e for e in events.events_since(session) if e.type == "token_revoked"]
    assert {record.id for record in everything} == {first, second, third, other}
    assert [e.payload["token"] for e in told] == [second, *sorted([first, third])]
    assert {e.payload["by"] for e in told} == {"cli"}


def test_what_cannot_be_revoked(database: Database) -> None:
    token_id, _ = make(database, "anna")
    with database.write() as session:
        tokens.revoke(session, token_id)
    for reference in (token_id, "anna"):
        with pytest.raises(ConflictError, match="was revoked before"), database.write() as session:
            tokens.revoke(session, reference)
    make(database, "annabel")
    for reference, meant in (("anabel", "'annabel'"), ("\0", "shows all")):
        with pytest.raises(NotFoundError, match=meant), database.write() as session:
            tokens.revoke(session, reference)


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "a\n", "a" * 101, "<b>", "\0"])
def test_what_is_no_name(database: Database, name: str) -> None:
    with pytest.raises(SpecError, match="no name of a user"), database.write() as session:
        tokens.create_token(session, name, "viewer")


@pytest.mark.parametrize("name", tokens.RESERVED)
def test_names_of_others(database: Database, name: str) -> None:
    with pytest.raises(SpecError, match="no token of his own"), database.write() as session:
        tokens.create_token(session, name, "viewer")


def test_the_last_use_never_goes_back(database: Database) -> None:
    token_id, _ = make(database, "anna")
    now = utc_now()
    for moment in (now, now - timedelta(minutes=5)):
        with database.write() as session:
            tokens.note_used(session, {token_id: moment, "gone": moment})
    with database.read() as session:
        (record,) = tokens.list_tokens(session)
    assert record.last_used_at == now


def test_when_a_token_is_over(database: Database) -> None:
    now = utc_now()
    make(database, "anna", expires_at=now + timedelta(days=1))
    with database.read() as session:
        (record,) = tokens.list_tokens(session)
    assert not record.is_over(now)
    assert record.is_over(now + timedelta(days=1))


@pytest.mark.parametrize("text", ["", "kdnas", "kdnas_a", "kdnas_a_b_c", "other_a_b", "kdnas-a-b"])
def test_what_is_no_token(text: str) -> None:
    assert tokens.id_in(text) is None
