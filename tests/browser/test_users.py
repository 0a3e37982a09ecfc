"""Users in the browser: logged in by a token of their own, seen by name, out when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.db.models import Search
from kdnas.db.repository import jobs, tokens
from kdnas.testing import demo_data

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shared(make_service: MakeService) -> Service:
    """A service with a search of Anna's and one of nobody's."""
    made = make_service()
    with made.database.write(by="anna") as session:
        spec = demo_data.spec("hers", episodes=1)
        jobs.add_job(session, Search, spec, name="hers")
    with made.database.write() as session:
        jobs.add_job(session, Search, demo_data.spec("other", episodes=1), name="other")
    made.start()
    return made


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_a_user_is_seen_by_name_and_ends_with_the_token(
    page: Page, shared: Service, complaints: Complaints
) -> None:
    complaints.expected += ["401", "ERR_"]
    page.context.clear_cookies()
    with shared.database.write() as session:
        record, token = tokens.create_token(session, "anna", "operator")
    page.goto(f"{shared.url}/login?next=/jobs")
    log_in(page, token)
    expect(page).to_have_url(f"{shared.url}/jobs")
    expect(page.locator("header .user")).to_have_text("anna")
    expect(page.get_by_role("row", name="hers")).to_contain_text("anna")
    page.get_by_label("Owner").fill("anna")
    expect(page.get_by_role("row", name="other")).to_have_count(0)
    expect(page.get_by_role("row", name="hers")).to_be_visible()

    page.get_by_role("link", name="hers").click()
    expect(page.locator("#job")).to_contain_text("by anna")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("[data-log]")).to_contain_text("Now paused, by anna")
    page.get_by_role("button", name="Name, note, labels").click()
    page.get_by_role("textbox", name="Note").fill("the good one")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-log]")).to_contain_text("Note: the good one, by anna")

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    log_in(page, token)
    expect(page.locator("header .user")).to_have_text("anna")
    page.goto(f"{shared.url}/searches/hers")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    with shared.database.write() as session:
        tokens.create_token(session, "bob", "viewer")  # somebody is asked for a token still
        tokens.revoke(session, record.id)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()  # by itself
    log_in(page, token)
    expect(page.get_by_role("alert")).to_contain_text("not a valid token")


def test_the_list_of_searches_notices_what_others_delete(page: Page, shared: Service) -> None:
    page.context.clear_cookies()
    with shared.database.write() as session:
        _, token = tokens.create_token(session, "carol", "viewer")
        gone = jobs.add_job(session, Search, demo_data.spec("gone", episodes=1), name="gone").id
    page.goto(f"{shared.url}/login?next=/searches")
    log_in(page, token)
    expect(page.get_by_role("link", name="gone")).to_be_visible()
    with shared.database.write(by="bob") as session:
        jobs.delete_job(session, gone)
    expect(page.get_by_role("link", name="gone")).to_have_count(0)
