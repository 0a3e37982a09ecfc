"""The pages themselves; what fills them is tested in a browser (tests/browser)."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from kdnas.db.engine import Database
from kdnas.db.repository import searches
from kdnas.db.repository.events import append_event, last_event_id, start_of_tail

pytestmark = pytest.mark.databases("sqlite")

PAGES = [
    "/searches",
    "/searches/new",
    "/searches/any",
    "/pipelines",
    "/pipelines/new",
    "/pipelines/any",
    "/compare",
    "/distillations",
    "/distillations/new",
    "/distillations/any",
    "/evaluations",
    "/evaluations/new",
    "/latency",
    "/webhook-deliveries",
]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_neither_script_nor_style_of_its_own(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.headers["Cache-Control"] == "no-store"
    assert re.search(r"<script(?![^>]*\ssrc=)", answer.text) is None
    assert "<style" not in answer.text
    assert " style=" not in answer.text
    for file in re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text):
        assert client.get(file).status_code == 200, file


def test_the_way_in_is_the_list_of_searches(client: TestClient) -> None:
    answer = client.get("/", follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/searches")


def test_a_name_in_a_path_stays_text(client: TestClient) -> None:
    answer = client.get("/searches/%22%3E%3Cscript%3Ealert(1)")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text


@pytest.mark.databases("sqlite", "postgresql")
def test_a_page_carries_the_event_from_which_on_it_follows(
    client: TestClient, database: Database
) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, name="seen")
        for number in range(150):
            append_event(session, "episode_started", {"episode": number}, job_id=search.id)
        last = last_event_id(session)
    for reference in ("seen", search.id):
        text = client.get(f"/searches/{reference}").text
        assert f'data-since="{last}"' in text
        assert f'data-log-since="{last - 100}"' in text


@pytest.mark.databases("sqlite", "postgresql")
def test_the_tail_of_an_unknown_subject_begins_now(database: Database) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, name="alone")
        assert start_of_tail(session, "nobody", 10) == last_event_id(session)
        assert start_of_tail(session, search.id, 10) == last_event_id(session) - 1


def test_an_address_that_leads_nowhere_is_a_page_for_people_only(client: TestClient) -> None:
    for path in ("/nowhere", "/evaluations/nobody"):
        page = client.get(path, headers={"Accept": "text/html,*/*"})
        assert (page.status_code, page.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
        assert "There is no such page" in page.text
        assert f"<code>{path}</code>" in page.text
        answer = client.get(path)
        assert (answer.status_code, answer.json()["status"]) == (404, 404)
    assert client.get("/api/v1/nowhere", headers={"Accept": "text/html"}).json()["status"] == 404


@pytest.mark.databases("postgresql")
def test_a_null_character_in_an_address_is_no_failure(client: TestClient) -> None:
    assert client.get("/searches/%00").status_code == 200  # the page then says that there is none
