"""Who may do what, from where, and what every answer carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.http import security
from api.http.app import create_app
from api.http.issued_tokens import IssuedTokens
from api.http.limiter import FAILURES_OF_A_CLIENT
from api.http.security import (
    Access,
    User,
    check_address,
    check_tokens,
    is_loopback,
    lets_others_in,
)
from kdnas.db.engine import Database
from kdnas.db.repository.tokens import create_token
from kdnas.errors import RequestError
from kdnas.records import Role
from kdnas.settings import Settings

MakeClient = Callable[[Settings], TestClient]

HERE = "http://127.0.0.1:8000"
OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"
SESSION = "/api/v1/session"

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def guarded(settings: Settings) -> Settings:
    return replace(settings, operator_token=OPERATOR, viewer_token=VIEWER)


@pytest.fixture
def stranger(guarded: Settings, make_client: MakeClient) -> TestClient:
    """A client of a service that asks for tokens, who has none."""
    return make_client(guarded)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def log_in(client: TestClient, token: str, **form: str) -> Any:
    return client.post("/login", data={"token": token, **form}, follow_redirects=False)


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        ({"operator_token": "short"}, "KDNAS_OPERATOR_TOKEN has 5 characters"),
        ({"operator_token": OPERATOR, "viewer_token": "x" * 15}, "KDNAS_VIEWER_TOKEN has 15"),
        ({"viewer_token": VIEWER}, "set without KDNAS_OPERATOR_TOKEN"),
        ({"operator_token": OPERATOR, "viewer_token": OPERATOR}, "take another for viewers"),
        ({"operator_token": "sixteen letters and blanks"}, "visible ASCII"),
        ({"operator_token": "schlüssel-mit-umlaut"}, "visible ASCII"),
    ],
)
def test_tokens_that_protect_nothing(tokens: dict[str, str], reason: str) -> None:
    settings = replace(Settings.from_environment({}), **tokens)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=reason):
        check_tokens(settings)


def test_the_application_is_not_made_with_such_tokens(
    settings: Settings, database: Database
) -> None:
    with pytest.raises(RequestError):
        create_app(replace(settings, operator_token="short"), database)


def test_settings_do_not_show_their_tokens(guarded: Settings) -> None:
    assert OPERATOR not in repr(guarded)
    assert VIEWER not in repr(guarded)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "a.localhost"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_address(host, Settings.from_environment({}))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
def test_other_addresses_want_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(RequestError, match="set KDNAS_OPERATOR_TOKEN"):
        check_address(host, Settings.from_environment({}))
    check_address(host, Settings.from_environment({"KDNAS_OPERATOR_TOKEN": OPERATOR}))


def test_who_trusts_a_proxy_wants_a_token() -> None:
    behind = {"KDNAS_TRUSTED_PROXIES": "127.0.0.1"}
    with pytest.raises(RequestError, match=r"^KDNAS_TRUSTED_PROXIES lets other.*or leave it unset"):
        check_address("127.0.0.1", Settings.from_environment(behind))
    with_token = Settings.from_environment({**behind, "KDNAS_OPERATOR_TOKEN": OPERATOR})
    check_address("127.0.0.1", with_token)
    assert lets_others_in("127.0.0.1", with_token)
    assert not lets_others_in("127.0.0.1", Settings.from_environment({}))


@pytest.mark.parametrize("role", ["operator", "viewer"])
def test_a_token_of_an_operator_lets_others_in(role: Role, database: Database) -> None:
    with database.write() as session:
        record, _ = create_token(session, "anna", role)
    if role == "operator":
        check_address("0.0.0.0", Settings.from_environment({}), [record])
        return
    with pytest.raises(RequestError, match="kdnas tokens create NAME --role operator"):
        check_address("0.0.0.0", Settings.from_environment({}), [record])


def test_tokens_and_their_roles(stranger: TestClient) -> None:
    refused = stranger.get(SESSION)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    for token, role in ((OPERATOR, "operator"), (VIEWER, "viewer")):
        answer = stranger.get(SESSION, headers=bearer(token))
        assert (answer.status_code, answer.json()["role"]) == (200, role)
        assert answer.json()["login_required"] is True


@pytest.mark.parametrize(
    "value", ["Bearer wrong", "Bearer", "", f"Basic {OPERATOR}", OPERATOR, f"Bearer {OPERATOR}x"]
)
def test_wrong_tokens(stranger: TestClient, value: str) -> None:
    assert stranger.get(SESSION, headers={"Authorization": value}).status_code == 401


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/api/v1/docs", "/metrics", "/nothing"])
def test_nothing_else_is_open(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/login", "/static/css/base.css"])
def test_what_is_open(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 200


def test_readiness_tells_strangers_no_details(stranger: TestClient) -> None:
    told = stranger.get("/readyz").json()["checks"]["database"]
    assert told == {"ok": True, "detail": None}
    known = stranger.get("/readyz", headers=bearer(VIEWER)).json()["checks"]["database"]
    assert known["detail"].endswith("events")


def test_viewers_read_only(stranger: TestClient) -> None:
    for method, path in (("POST", "/api/v1/searches"), ("PATCH", SESSION), ("DELETE", SESSION)):
        answer = stranger.request(method, path, headers=bearer(VIEWER))
        assert answer.status_code == 403, path
        assert "viewers may read" in answer.json()["detail"]
    assert stranger.delete(SESSION, headers=bearer(OPERATOR)).status_code == 405


def test_logging_in_and_out(stranger: TestClient) -> None:
    sent = stranger.get(
        "/searches?status=x", headers={"Accept": "text/html"}, follow_redirects=False
    )
    assert sent.status_code == 303
    assert sent.headers["location"] == "/login?next=/searches%3Fstatus%3Dx"
    answer = log_in(stranger, VIEWER, next="/searches?status=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/searches?status=x")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert VIEWER not in cookie
    assert stranger.get(SESSION).json()["role"] == "viewer"
    kept = stranger.cookies["kdnas_session"]
    assert stranger.post("/logout", headers={"Origin": HERE}, follow_redirects=False).is_redirect
    assert "kdnas_session" not in stranger.cookies
    stranger.cookies["kdnas_session"] = kept  # a copy of it is of no more use
    assert stranger.get(SESSION).status_code == 401


def test_the_cookie_is_secure_over_https(guarded: Settings, make_client: MakeClient) -> None:
    client = make_client(guarded)
    client.base_url = "https://kdnas.example"  # type: ignore[assignment]
    assert "Secure" in log_in(client, OPERATOR).headers["set-cookie"]


def test_a_wrong_token_logs_nobody_in(stranger: TestClient) -> None:
    answer = log_in(stranger, "<script>")
    assert answer.status_code == 401
    assert "not a valid token" in answer.text
    assert "<script>" not in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("token=" + "a" * 16 * 1024, "the form is above 16 KiB; send less"),
        ("&".join(f"field{n}=x" for n in range(9)), "the form has more than 8 fields; send fewer"),
    ],
)
def test_a_form_of_a_stranger_is_small(stranger: TestClient, form: str, said: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = stranger.post("/login", content=form, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"] == said


def test_logging_in_is_refused_after_five_failures(stranger: TestClient) -> None:
    for _ in range(FAILURES_OF_A_CLIENT):
        assert log_in(stranger, "wrong").status_code == 401
    answer = log_in(stranger, OPERATOR)
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert stranger.get(SESSION, headers=bearer(OPERATOR)).status_code == 429


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:x",
        "//[",
        "http://[x",
        "x",
        "",
    ],
)
def test_the_login_page_leads_nowhere_else(stranger: TestClient, target: str) -> None:
    assert 'value="/"' in stranger.get("/login", params={"next": target}).text
    assert log_in(stranger, OPERATOR, next=target).headers["location"] == "/"


def test_sessions_end_and_cannot_be_forged(guarded: Settings, database: Database) -> None:
    now = 1000.0

    def access_of(settings: Settings) -> Access:
        return Access(settings, IssuedTokens(database), now=lambda: now)

    access, viewer = access_of(guarded), User("viewer", "viewer", "viewer")
    cookie = access.begin_session(viewer)
    assert access.user_of_session(cookie) == viewer
    assert access_of(guarded).user_of_session(cookie) == viewer  # after a restart
    changed = replace(guarded, viewer_token=VIEWER + "2")
    assert access_of(changed).user_of_session(cookie) is None
    for forged in (
        cookie.replace("viewer", "operator"),
        cookie[:-1] + ("0" if cookie[-1] != "0" else "1"),
        cookie.replace(cookie.split(".")[1], "9999999999"),
        "viewer.9999999999.x.",
        "viewer",
        "...",
        "",
        "viewer.ü.ü.ü",
        "viewer.²².x.y",
    ):
        assert access.user_of_session(forged) is None, forged
    now += security.SESSION_SECONDS + 1
    assert access.user_of_session(cookie) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": HERE},
        {"Origin": "http://127.0.0.1:9999"},
    ],
)
def test_changes_from_other_sites_are_refused(
    client: TestClient, stranger: TestClient, headers: dict[str, str]
) -> None:
    log_in(stranger, OPERATOR)
    for either in (client, stranger):
        answer = either.delete(SESSION, headers=headers)
        assert answer.status_code == 403
        assert "another site" in answer.json()["detail"]
    assert stranger.delete(SESSION, headers={**headers, **bearer(OPERATOR)}).status_code == 405


def test_changes_from_here_pass(client: TestClient, stranger: TestClient) -> None:
    log_in(stranger, OPERATOR)
    for headers in ({"Origin": HERE}, {"Sec-Fetch-Site": "same-origin"}):
        assert stranger.delete(SESSION, headers=headers).status_code == 405
    assert stranger.delete(SESSION).status_code == 403  # a browser would say where from
    assert client.delete(SESSION).status_code == 405  # a program, and no cookie


def test_logging_in_from_another_site_is_refused(stranger: TestClient) -> None:
    answer = stranger.post("/login", data={"token": OPERATOR}, headers={"Origin": "https://evil"})
    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "10.0.0.1", ""])
def test_without_a_token_the_service_answers_to_its_own_names(
    client: TestClient, stranger: TestClient, host: str
) -> None:
    answer = client.get(SESSION, headers={"Host": host})
    assert answer.status_code == 403
    assert stranger.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_without_a_token_nothing_comes_through_a_proxy(
    client: TestClient, stranger: TestClient, header: str
) -> None:
    """Which may call the service by this machine's own name, whoever asks."""
    answer = client.get(SESSION, headers={header: "203.0.113.7"})
    assert answer.status_code == 403
    assert f"its header {header} says" in answer.json()["detail"]
    assert stranger.get("/healthz", headers={header: "203.0.113.7"}).status_code == 200


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.1"])
def test_its_own_names(client: TestClient, host: str) -> None:
    assert client.get(SESSION, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", [SESSION, "/nothing", "/searches", "/static/css/base.css"])
def test_headers_of_every_answer(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    rules = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert rules["default-src"] == rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["object-src"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] in {"no-store", "no-cache"}
    assert not [name for name in headers if name.startswith("access-control-")]


def test_no_page_of_another_site_may_read(client: TestClient) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options(SESSION, headers=asked)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


def test_bodies_are_json_and_small(client: TestClient) -> None:
    assert isinstance(client.app, FastAPI)
    path = "/api/v1/things"

    @client.app.post(path)
    def make(body: dict[str, Any]) -> None:
        """Do nothing."""

    for kind in (
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
    ):
        answer = client.post(path, content=b"x=1", headers={"Content-Type": kind})
        assert answer.status_code == 415, kind
    assert client.post(path, content=b"{}").status_code == 415
    large = b"{" + b" " * 1024 * 1024 + b"}"
    headers = {"Content-Type": "application/json"}
    for content in (large, iter([large])):  # at once and in chunks
        answer = client.post(path, content=content, headers=headers)
        assert answer.status_code == 413
        assert answer.json()["detail"] == "the body is above 1 MiB; send less"
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert "Content-Security-Policy" in answer.headers
        assert "X-Request-ID" in answer.headers
    answer = client.post(path, content=b"{", headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("the body is no JSON")
    for content in (b"[" * 100_000, b'{"seed": ' + b"9" * 5000 + b"}"):
        answer = client.post(path, content=content, headers=headers)
        assert answer.status_code == 400
        assert "too deeply, or a number in it has too many digits" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["searches", "distillations", "evaluations", "pipelines"])
@pytest.mark.parametrize("escape", [r"\ud800", r"\u0000"])
def test_what_is_no_text_is_refused_and_not_stored(
    client: TestClient, kind: str, escape: str
) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (f'{{"teacher": "a{escape}"}}', f'{{"a{escape}": 1}}', f'["a{escape}"]'):
        answer = client.post(f"/api/v1/{kind}", content=body.encode(), headers=headers)
        assert answer.status_code == 422, body
        assert "holds a NUL or half a surrogate pair" in answer.json()["detail"]
    assert client.get(f"/api/v1/{kind}").json()["items"] == []


def test_axes_that_multiply_without_end_are_refused(client: TestClient) -> None:
    axes = {axis: list(range(1, 400)) for axis in ("layers", "heads", "hidden", "intermediate")}
    answer = client.post("/api/v1/searches", json={"space": {"axes": axes}})
    assert answer.status_code == 422
    assert "a search takes 100000 at most" in answer.json()["detail"]


def test_an_unknown_key_that_is_no_text_is_refused(client: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.patch("/api/v1/searches/x", content=rb'{"\ud800": 1}', headers=headers)
    assert answer.status_code == 422
    assert r"\ud800" in answer.json()["detail"]
