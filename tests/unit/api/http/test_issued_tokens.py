"""Tokens of users, as a service knows them: let in, ended, counted, written of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from api.http import security
from api.http.app import create_app
from api.http.event_hub import EventHub
from api.http.issued_tokens import FRESH_SECONDS, USED_SECONDS, IssuedTokens, LoginRecords
from api.http.limiter import FAILURES_OF_A_CLIENT, FAILURES_OF_ALL
from api.http.security import Access
from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.records import EventRecord
from kdnas.db.repository import events, tokens
from kdnas.errors import DatabaseError
from kdnas.records import Role
from kdnas.settings import Settings

MakeClient = Callable[[Settings], TestClient]

SESSION = "/api/v1/session"
OPERATOR = "operator-token-0123456789"
PATIENCE = 20.0


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def make(database: Database, name: str, role: Role = "operator", days: float | None = None) -> str:
    ends = None if days is None else utc_now() + timedelta(days=days)
    with database.write() as session:
        return tokens.create_token(session, name, role, ends)[1]


def revoke(database: Database, reference: str) -> None:
    with database.write() as session:
        tokens.revoke(session, reference)


def told(database: Database, *types: str) -> list[EventRecord]:
    with database.read() as session:
        return [event for event in events.events_since(session) if event.type in types]


def within_patience(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def log_in(client: TestClient, token: str) -> int:
    return client.post("/login", data={"token": token}, follow_redirects=False).status_code


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.databases("sqlite", "postgresql")
def test_users_beside_the_tokens_of_the_environment(
    settings: Settings, database: Database, make_client: MakeClient
) -> None:
    client = make_client(replace(settings, operator_token=OPERATOR))
    wanted: list[tuple[str, Role]] = [("anna", "operator"), ("bob", "viewer")]
    made = [(make(database, name, role), name, role) for name, role in wanted]
    for token, name, role in [*made, (OPERATOR, "operator", "operator")]:
        answer = client.get(SESSION, headers=bearer(token))  # also one that was made just now
        assert answer.status_code == 200
        assert (answer.json()["name"], answer.json()["role"]) == (name, role)
    assert client.delete(SESSION, headers=bearer(made[1][0])).status_code == 403
    assert client.delete(SESSION, headers=bearer(made[0][0])).status_code == 405
    swapped = made[0][0].rpartition("_")[0] + "_" + made[1][0].rpartition("_")[2]
    assert client.get(SESSION, headers=bearer(swapped)).status_code == 401


def test_a_log_in_is_required_from_the_first_token_to_the_last(
    client: TestClient, database: Database
) -> None:
    here = client.get(SESSION).json()
    assert (here["login_required"], here["name"], here["role"]) == (False, None, "operator")
    assert "401" not in client.get("/api/v1/openapi.json").json()["paths"][SESSION]["get"]
    token = make(database, "anna", days=1)
    within_patience(lambda: client.get(SESSION).status_code == 401)
    assert client.get(SESSION, headers=bearer(token)).json()["login_required"] is True
    document = client.get("/api/v1/openapi.json", headers=bearer(token)).json()
    assert {"401", "429"} <= document["paths"][SESSION]["get"]["responses"].keys()
    revoke(database, "anna")
    within_patience(lambda: client.get(SESSION).status_code == 200)


def test_the_login_page_knows_the_first_token_at_once(
    client: TestClient, database: Database
) -> None:
    assert client.get("/login", follow_redirects=False).status_code == 303
    token = make(database, "anna")
    assert client.get("/login", follow_redirects=False).status_code == 200
    revoke(database, "anna")
    within_patience(lambda: client.get(SESSION).status_code == 200)
    token = make(database, "anna")
    sent = client.post("/login", data={"token": token, "next": "/jobs"}, follow_redirects=False)
    assert (sent.status_code, sent.headers["Location"]) == (303, "/jobs")


def test_a_day_that_comes_opens_nothing(client: TestClient, database: Database) -> None:
    token = make(database, "anna", days=-1)
    within_patience(lambda: client.get(SESSION).status_code == 401)
    assert client.get(SESSION, headers=bearer(token)).status_code == 401
    assert log_in(client, token) == 401


def test_where_others_can_come_in_a_log_in_is_required_always(
    settings: Settings, database: Database
) -> None:
    app = create_app(settings, database, coordinator=False, login_always=True)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        assert client.get(SESSION).status_code == 401
        token = make(database, "anna")
        assert client.get(SESSION, headers=bearer(token)).status_code == 200
        revoke(database, "anna")
        within_patience(lambda: client.get(SESSION, headers=bearer(token)).status_code == 401)
        assert client.get(SESSION).status_code == 401


@pytest.mark.databases("sqlite", "postgresql")
def test_a_revoked_token_ends_its_sessions_on_every_service(
    settings: Settings, database: Database, make_client: MakeClient
) -> None:
    token, other = make(database, "anna"), make(database, "bob")
    first, second, bobs = (make_client(settings) for _ in range(3))
    assert log_in(first, token) == log_in(bobs, other) == 303
    second.cookies.update(first.cookies)
    for client in (first, second):
        assert client.get(SESSION).json()["name"] == "anna"
    revoke(database, tokens.id_in(token) or "")
    for client in (first, second):
        within_patience(lambda client=client: client.get(SESSION).status_code == 401)  # type: ignore[misc]
        assert client.get(SESSION, headers=bearer(token)).status_code == 401
        page = client.get("/jobs", headers={"Accept": "text/html"}, follow_redirects=False)
        assert page.headers["location"].startswith("/login")
    assert bobs.get(SESSION).json()["name"] == "bob"
    users = {"anna", "bob"}  # written while nobody waits
    within_patience(lambda: {event.payload["by"] for event in told(database, "login")} == users)


def test_what_is_in_the_database_makes_no_session(
    settings: Settings, database: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = make(database, "anna")
    issued = IssuedTokens(database)
    here = Access(settings, issued)
    user = here.user_of_issued(token)
    assert user == security.User("operator", "anna", tokens.id_in(token))
    cookie = here.begin_session(user)
    assert here.user_of_session(cookie) == user
    assert Access(settings, issued).user_of_session(cookie) == user  # after a restart
    elsewhere = replace(settings, home=tmp_path_factory.mktemp("elsewhere"))
    assert Access(elsewhere, issued).user_of_session(cookie) is None
    key = settings.home / security.KEY_FILE
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in settings.home.glob("*session.key*")] == [security.KEY_FILE]
    key.write_bytes(b"short")
    with pytest.raises(security.WorkError, match="has 5 bytes instead of 32"):
        Access(settings, issued).user_of_session(cookie)


def test_guesses_by_header_are_slowed_down_like_passwords(
    settings: Settings, database: Database
) -> None:
    token = make(database, "anna")
    app = create_app(replace(settings, operator_token=OPERATOR), database, coordinator=False)
    with TestClient(app, base_url="http://kdnas.example", client=("10.0.0.1", 1)) as guesser:
        other = TestClient(app, base_url="http://kdnas.example", client=("10.0.0.2", 1))
        for number in range(FAILURES_OF_A_CLIENT):
            wrong = guesser.get(SESSION, headers=bearer(f"wrong-{number}"))
            assert wrong.status_code == 401
        for given in ("wrong", OPERATOR, token[:-1] + ("0" if token[-1] != "0" else "1")):
            answer = guesser.get(SESSION, headers=bearer(given))
            assert answer.status_code == 429
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert "try again in" in answer.json()["detail"]
        assert log_in(guesser, OPERATOR) == 429  # one limit for both ways
        told_to_him = guesser.get("/readyz", headers=bearer(OPERATOR)).json()["checks"]["database"]
        assert told_to_him["detail"] is None  # no way to guess on
        assert guesser.get(SESSION, headers=bearer(token)).status_code == 200  # nobody guesses it
        for client in (other, TestClient(app, base_url="http://kdnas.example")):
            for good in (OPERATOR, token):
                assert client.get(SESSION, headers=bearer(good)).status_code == 200


def test_where_many_guess_a_valid_token_goes_on_working(
    settings: Settings, database: Database
) -> None:
    token = make(database, "anna")
    app = create_app(replace(settings, operator_token=OPERATOR), database, coordinator=False)
    with TestClient(app, base_url="http://kdnas.example", client=("10.0.0.1", 1)) as known:
        for number in range(FAILURES_OF_ALL):
            guesser = TestClient(app, base_url="http://x", client=(f"10.1.0.{number}", 1))
            assert guesser.get(SESSION, headers=bearer("wrong")).status_code == 401
            if number == FAILURES_OF_ALL - 1:
                assert guesser.get(SESSION, headers=bearer("wrong")).status_code == 429
        for good in (OPERATOR, token):
            assert known.get(SESSION, headers=bearer(good)).status_code == 200
        assert log_in(known, OPERATOR) == 303
        newcomer = TestClient(app, base_url="http://x", client=("10.2.0.1", 1))
        assert newcomer.get(SESSION, headers=bearer("wrong")).status_code == 401
        assert newcomer.get(SESSION, headers=bearer("wrong")).status_code == 429


def test_requests_cost_no_question_to_the_database(database: Database) -> None:
    clock, count = Clock(), 0
    token = make(database, "anna")
    issued = IssuedTokens(database, clock)
    read = issued._read

    def counted() -> object:
        nonlocal count
        count += 1
        return read()

    issued._read = counted  # type: ignore[method-assign, assignment]

    async def ask(times: int) -> None:
        for _ in range(times):
            await issued.refresh()
            assert issued.matching(token) is not None

    async def ask_together() -> None:
        await asyncio.gather(*(ask(5) for _ in range(20)))

    asyncio.run(ask(100))
    assert count == 0
    clock.now += FRESH_SECONDS + 0.1
    asyncio.run(ask_together())
    assert count == 1
    asyncio.run(issued.refresh_now())
    assert count == 1
    clock.now += 0.1
    asyncio.run(issued.refresh_now())
    assert count == 2


def test_without_the_database_no_user_is_let_in(
    settings: Settings, database: Database, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make(database, "anna")
    client = make_client(replace(settings, operator_token=OPERATOR))
    assert log_in(client, token) == 303
    issued: IssuedTokens = client.app.state.access.issued  # type: ignore[attr-defined]

    def out_of_reach() -> None:
        raise DatabaseError("the server is gone")

    with monkeypatch.context() as patch:
        patch.setattr(issued, "_read", out_of_reach)
        within_patience(lambda: client.get(SESSION).status_code == 503)
        for _ in range(FAILURES_OF_A_CLIENT + 1):  # no guesses
            answer = client.get(SESSION, headers=bearer(token))
            assert (answer.status_code, answer.json()["detail"]) == (503, "the server is gone")
        assert client.get(SESSION, headers=bearer(OPERATOR)).status_code == 200
        assert client.get("/healthz").status_code == 200
    within_patience(lambda: client.get(SESSION).status_code == 200)


@pytest.mark.databases("sqlite", "postgresql")
def test_the_last_use_is_written_now_and_then(database: Database) -> None:
    clock = Clock()
    token_id = tokens.id_in(make(database, "anna")) or ""

    def last_used(records: LoginRecords) -> object:
        records.close()
        with database.read() as session:
            return tokens.list_tokens(session)[0].last_used_at

    records = LoginRecords(database, clock)
    records.used(token_id)
    first = last_used(records)
    assert first is not None
    records = LoginRecords(database, clock)
    records._used[token_id] = clock.now
    clock.now += USED_SECONDS - 1
    records.used(token_id)
    assert last_used(records) == first
    records = LoginRecords(database, clock)
    records._used[token_id] = clock.now - USED_SECONDS
    records.used(token_id)
    assert last_used(records) != first


def test_a_service_writes_the_last_use(
    settings: Settings, database: Database, make_client: MakeClient
) -> None:
    token = make(database, "anna", "viewer")
    client = make_client(settings)
    assert client.get(SESSION, headers=bearer(token)).status_code == 200

    def is_written() -> bool:
        with database.read() as session:
            return tokens.list_tokens(session)[0].last_used_at is not None

    within_patience(is_written)


@pytest.mark.databases("sqlite", "postgresql")
def test_failures_are_told_but_do_not_fill_the_database(database: Database) -> None:
    clock = Clock()
    records = LoginRecords(database, clock)
    for _ in range(100):
        records.failed("2001:db8::1")
        records.failed("2001:db8::2")  # the same customer
    clock.now += 61
    for number in range(300):
        records.failed(f"10.0.{number // 256}.{number % 256}")
    records.logged_in("anna", "operator", "10.0.0.1")
    records.close()
    failed = told(database, "login_failed")
    assert [event.payload for event in failed][:2] == [
        {"client": "2001:db8::1"},
        {"client": "10.0.0.0"},
    ]
    assert len(failed) == 1 + FAILURES_OF_ALL
    (login,) = told(database, "login")
    assert login.payload == {"by": "anna", "role": "operator", "client": "10.0.0.1"}
    assert login.job_id is None


def test_an_event_that_cannot_be_written_keeps_nobody_out(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(database, "write", full)
    records = LoginRecords(database)
    records.failed("10.0.0.1")
    records.used("someone")
    records.close()


def test_a_stream_of_events_ends_with_the_token(database: Database) -> None:
    token = make(database, "anna")
    issued = IssuedTokens(database)

    async def is_let_in() -> bool:
        await issued.refresh()
        return issued.matching(token) is not None

    async def is_ended() -> bool:
        hub = EventHub(database)
        stream = hub.listen(None, 0, is_let_in)
        lines = [line async for line in stream]
        await hub.wait_closed()
        return lines[1:] == []

    async def revoked_meanwhile() -> None:
        hub = EventHub(database)
        async with asyncio.timeout(PATIENCE):
            stream = hub.listen(None, 10**6, is_let_in)
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(revoke, database, "anna")
            with pytest.raises(StopAsyncIteration):
                await waiting
        await hub.wait_closed()

    asyncio.run(revoked_meanwhile())
    assert asyncio.run(is_ended())
