"""`kdnas tokens`, and what `kdnas jobs` says of users."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdnas.cli.main import app
from kdnas.db.engine import Database
from kdnas.db.repository import events, jobs, searches, tokens
from kdnas.errors import ConflictError, KdnasError, NotFoundError, SpecError
from kdnas.testing import demo_data


@pytest.fixture(autouse=True)
def _here(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database_url)
    for name in ("KDNAS_STORE", "KDNAS_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def refused(error: type[KdnasError], *arguments: str) -> str:
    with pytest.raises(error) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    return str(caught.value)


def test_a_token_is_made_listed_and_revoked(database: Database) -> None:
    assert run("tokens", "list").stdout.startswith("no token yet; make one with kdnas tokens")
    made = run("tokens", "create", "anna", "--role", "operator", "--days", "30")
    token = made.stdout.strip()
    assert re.fullmatch(r"kdnas_[0-9a-z]{10}_[0-9a-f]{40}", token)
    token_id = tokens.id_in(token)
    assert re.search(rf"token {token_id} of anna, valid until .*\n?.* shown only now", made.stderr)
    answer = json.loads(run("tokens", "create", "bob", "--role", "viewer", "--json").stdout)
    assert answer["token"].startswith(f"kdnas_{answer['id']}_")
    assert (answer["name"], answer["role"], answer["expires_at"]) == ("bob", "viewer", None)
    text = run("tokens", "list").stdout
    assert re.search(
        rf"(?m)^anna +operator +valid until 2.* UTC +never +\d+ s ago +{token_id}", text
    )
    assert re.search(r"(?m)^bob +viewer +valid until it is revoked +never ", text)
    listed = run("tokens", "list", "--json").stdout
    assert [one["name"] for one in json.loads(listed)] == ["bob", "anna"]
    for shown in (text, listed):
        assert token.rpartition("_")[2] not in shown
        assert "digest" not in shown
    assert run("tokens", "revoke", "bob").stdout == (
        f"revoked token {answer['id']} of bob (viewer)\n"
    )
    last = run("tokens", "revoke", token_id or "", "--json")
    assert json.loads(last.stdout)[0]["revoked_at"] is not None
    assert "no token is left" in last.stderr
    assert run("tokens", "list").stdout.startswith("no token yet")
    kept = json.loads(run("tokens", "list", "--all", "--json").stdout)
    assert {one["name"] for one in kept} == {"anna", "bob"}
    with database.read() as session:
        told = [(e.type, e.payload["name"], e.payload["by"]) for e in events.events_since(session)]
    assert told == [
        ("token_created", "anna", "cli"),
        ("token_created", "bob", "cli"),
        ("token_revoked", "bob", "cli"),
        ("token_revoked", "anna", "cli"),
    ]


def test_what_is_refused(database: Database) -> None:
    create = ("tokens", "create")
    assert "Known: operator, viewer" in refused(SpecError, *create, "anna", "--role", "boss")
    assert "no name of a user" in refused(SpecError, *create, "a b", "--role", "viewer")
    assert "no token of his own" in refused(SpecError, *create, "cli", "--role", "viewer")
    for wrong in (("anna",), ("anna", "--role", "viewer", "--days", "0")):
        assert CliRunner().invoke(app, [*create, *wrong]).exit_code == 2
    assert "`kdnas tokens list` shows all" in refused(NotFoundError, "tokens", "revoke", "anna")
    run(*create, "anna", "--role", "viewer")
    run("tokens", "revoke", "anna")
    assert "was revoked before" in refused(ConflictError, "tokens", "revoke", "anna")


def test_jobs_say_whose_they_are_and_who_changed_them(database: Database) -> None:
    with database.write(by="anna") as session:
        spec = demo_data.spec("one")
        searches.create_search(session, spec, name="one", owner_kind="service")
    with database.write() as session:
        searches.create_search(session, spec, name="typed", owner_kind="cli")
    assert re.search(r"(?m)^one .* anna ", run("jobs", "list").stdout)
    shown = json.loads(run("jobs", "list", "--owner", "anna", "--json").stdout)
    assert [row["name"] for row in shown] == ["one"]
    assert run("jobs", "list", "--owner", "bob").stdout.startswith("no such job")
    assert re.search(
        r"(?m)^started by +anna, through the service$", run("jobs", "show", "one").stdout
    )
    me = jobs._user_of_this_machine()
    assert f"{me}, through the command line" in run("jobs", "show", "typed").stdout
    for arguments in (("pause",), ("note", "good"), ("label", "a"), ("rename", "two")):
        run("jobs", arguments[0], "one", *arguments[1:])
    watched = run("jobs", "cancel", "two").stdout
    assert watched.startswith("cancelled search 'two'")
    run("jobs", "delete", "two", "--yes")
    with database.read() as session:
        found = [e for e in events.events_since(session) if e.type == "search_deleted"]
    assert [(e.payload["name"], e.payload["by"]) for e in found] == [("two", "cli")]


def test_each_change_of_the_command_line_says_so(database: Database) -> None:
    with database.write(by="anna") as session:
        spec = demo_data.spec("one")
        made = searches.create_search(session, spec, name="one", owner_kind="service").id
        since = events.last_event_id(session)
    for arguments in (("pause",), ("resume",), ("note", "good"), ("label", "a"), ("cancel",)):
        run("jobs", arguments[0], "one", *arguments[1:])
    with database.read() as session:
        found = events.events_since(session, since, job_id=made)
    assert [event.type for event in found] == [
        "search_status",
        "search_status",
        "search_noted",
        "search_labelled",
        "search_status",
    ]
    assert {event.payload["by"] for event in found} == {"cli"}
