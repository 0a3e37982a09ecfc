"""The application as a whole: problems, pages that are not there, its own description."""

from __future__ import annotations

from fastapi.testclient import TestClient

import kdnas


def test_who_is_asking(client: TestClient) -> None:
    answer = client.get("/api/v1/session")
    assert answer.status_code == 200
    assert answer.json() == {
        "role": "operator",
        "login_required": False,
        "version": kdnas.__version__,
    }


def test_what_is_not_there_is_a_problem(client: TestClient) -> None:
    answer = client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no /api/v1/nothing; see /api/v1/docs",
    }


def test_a_wrong_method_is_a_problem_that_names_the_right_ones(client: TestClient) -> None:
    answer = client.delete("/api/v1/session")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert "does not take DELETE" in answer.json()["detail"]
