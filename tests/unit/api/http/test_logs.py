"""A line a request, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.logs.service_log import FOR_THE_EYE_VARIABLE, configure_logs

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged meanwhile."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers = []
    stream = io.StringIO()
    configure_logs(stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def terminal(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is shown meanwhile to who looks."""
    monkeypatch.setenv(FOR_THE_EYE_VARIABLE, "1")
    configure_logs(written)
    return written


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_line_a_request(client: TestClient, written: io.StringIO) -> None:
    answer = client.get(
        "/api/v1/session?token=a-secret", headers={"Authorization": "Bearer s3cret"}
    )
    (line,) = lines(written)
    assert line["event"] == "request"
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/v1/session", 200)
    assert line["role"] == "operator"
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["ms"] > 0
    assert "s3cret" not in written.getvalue()
    assert "a-secret" not in written.getvalue()


def test_what_is_asked_for_does_not_steer_a_terminal(
    client: TestClient, terminal: io.StringIO
) -> None:
    client.get("/%1b]0;mine%07%1b%5b2J%c2%9b2Jend")
    said = terminal.getvalue()
    assert "2Jend" in said
    for steering in ("\x1b]", "\x1b[2J", "\x07", "\x9b"):
        assert steering not in said


def test_the_number_of_a_proxy_is_kept(client: TestClient, written: io.StringIO) -> None:
    client.get("/api/v1/session", headers={"X-Request-ID": "0123456789abcdef"})
    client.get("/api/v1/session", headers={"X-Request-ID": 'forged"\\n{}'})
    first, second = lines(written)
    assert first["request_id"] == "0123456789abcdef"
    assert len(second["request_id"]) == 16


def test_lines_tell_which_search_they_are_about(client: TestClient, written: io.StringIO) -> None:
    assert isinstance(client.app, FastAPI)

    @client.app.get("/api/v1/searches/{reference}/of-this-test")
    def work(reference: str) -> None:
        structlog.get_logger("kdnas").info("inside")
        logging.getLogger("library").warning("of a library")

    client.get("/api/v1/searches/quiet-otter/of-this-test")
    assert [line["event"] for line in lines(written)] == ["inside", "of a library", "request"]
    assert {line["search"] for line in lines(written)} == {"quiet-otter"}
    assert len({line["request_id"] for line in lines(written)}) == 1


def test_probes_are_not_logged_unless_they_fail(client: TestClient, written: io.StringIO) -> None:
    client.get("/healthz")
    client.get("/metrics")
    assert lines(written) == []


def test_failures_have_a_traceback_without_values(client: TestClient, written: io.StringIO) -> None:
    assert isinstance(client.app, FastAPI)

    @client.app.get("/fail")
    def fail() -> None:
        secret = "".join(["in ", "a variable"])
        raise ValueError(len(secret))

    client.get("/fail")
    failed = lines(written)[0]
    assert failed["event"] == "request failed"
    assert failed["exception"].endswith("ValueError: 13")
    assert "in a variable" not in written.getvalue()
