"""Who is asked for a token, and what a viewer is not offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.testing import demo_data

pytestmark = pytest.mark.browser

OPERATOR, VIEWER = "operator-of-the-tests-0123", "viewer-of-the-tests-4567"


@pytest.fixture(scope="module")
def guarded(make_service: MakeService) -> Service:
    """A service that asks for a token; it has one distillation that runs."""
    made = make_service()
    made.environment = {"KDNAS_OPERATOR_TOKEN": OPERATOR, "KDNAS_VIEWER_TOKEN": VIEWER}
    demo_data.add_distillation(made.database, "guarded", "4,8,384,1024,gelu", steps=1000, until=200)
    made.start()
    return made


def test_the_login_leads_back_and_a_viewer_may_only_look(
    page: Page, guarded: Service, complaints: Complaints
) -> None:
    complaints.expected.append("401")
    page.goto(f"{guarded.url}/distillations/guarded")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("Token").fill("a-wrong-token-of-some-length")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a valid token")

    page.get_by_label("Token").fill(VIEWER)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{guarded.url}/distillations/guarded")
    expect(page.locator("#summary")).to_contain_text("Step 200 of 1,000")
    assert page.locator("[data-action]").count() == 0
    page.goto(f"{guarded.url}/searches")
    expect(page.get_by_role("heading", name="No search yet")).to_be_visible()
    assert page.get_by_role("link", name="Start").count() == 0
    page.goto(f"{guarded.url}/searches/new")
    expect(page.get_by_role("button", name="Start the search")).to_be_disabled()
    expect(page.get_by_text("You are logged in to look only")).to_be_visible()

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("Token").fill(OPERATOR)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="Start the first search")).to_be_visible()


def test_a_session_that_ends_while_a_page_is_open_leads_to_the_login(
    page: Page, guarded: Service, complaints: Complaints
) -> None:
    complaints.expected += ["401", "ERR_"]
    page.context.clear_cookies()
    page.goto(f"{guarded.url}/login")
    page.get_by_label("Token").fill(VIEWER)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{guarded.url}/searches")
    page.goto(f"{guarded.url}/distillations/guarded")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.context.clear_cookies()
    guarded.kill()  # ends the stream; the next one is asked for without a session
    guarded.start()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert page.url.endswith("/login?next=%2Fdistillations%2Fguarded")
