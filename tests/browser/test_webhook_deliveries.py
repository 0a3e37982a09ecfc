"""The page of what a webhook was told: from where it is reached, and trying again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import MakeService, OpenPage, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.db.base import utc_now
from kdnas.db.models import Search, WebhookDelivery
from kdnas.db.queue import coordinators
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import DeliveryStatus, NewDelivery
from kdnas.db.repository import jobs, webhook_deliveries
from kdnas.testing import demo_data

pytestmark = pytest.mark.browser

URL = "https://ci.example.org/hooks/kdnas"


@pytest.fixture(scope="module")
def here(make_service: MakeService) -> Iterator[Service]:
    """A service with a message in each state; none of its own coordinators has a webhook."""
    made = make_service()
    ends: list[tuple[str, DeliveryStatus, str]] = [
        ("night-run", "delivered", "the receiver answered 204"),
        ("deleted-later", "given_up", "the receiver answered 410"),
        ("weekend-run", "pending", "ci.example.org cannot be reached: Connection refused"),
    ]
    for number, (name, status, detail) in enumerate(ends, start=1):
        with made.database.write() as session:
            job = jobs.add_job(session, Search, demo_data.spec(name, episodes=1), name=name)
            new = NewDelivery(
                event_id=number,
                type="search_status",
                kind="search",
                job_id=job.id,
                job_name=name,
                job_status="succeeded",
                body="{}",
                created_at=utc_now() - timedelta(minutes=10 - number),
            )
            webhook_deliveries.add_deliveries(session, [new], URL)
            claimed = webhook_deliveries.claim_next(session, URL, 60.0)
            assert claimed is not None
            webhook_deliveries.settle(session, claimed, status, detail, 250.0)
            if name == "deleted-later":
                jobs.delete_job(session, job.id)
    made.start()
    yield made
    made.kill()


def test_that_no_webhook_is_set_up_is_said(page: Page, make_service: MakeService) -> None:
    fresh = make_service()
    fresh.start()
    page.goto(f"{fresh.url}/jobs")
    page.get_by_role("main").get_by_role("link", name="Webhook deliveries").click()
    expect(page.locator("#receivers")).to_contain_text("No webhook is set up")
    expect(page.locator("#receivers")).to_contain_text("KDNAS_WEBHOOK_URL")
    expect(page.get_by_role("heading", name="No message yet")).to_be_visible()
    with fresh.database.write() as session:
        owner = LeaseOwner.of_this_process("service")
        coordinators.note_alive(session, owner, 1, 0, webhook_url=URL)
    page.goto(fresh.url)
    page.get_by_role("contentinfo").get_by_role("link", name="Webhook deliveries").click()
    expect(page.locator("#receivers")).to_have_text(f"Told are: {URL}")


def test_messages_are_listed_with_what_came_of_them(page: Page, here: Service) -> None:
    page.goto(f"{here.url}/webhook-deliveries")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("weekend-run")
    expect(rows.nth(0).locator(".chip")).to_have_text("pending")
    expect(rows.nth(0)).to_contain_text("cannot be reached: Connection refused")
    expect(rows.nth(0)).to_contain_text(re.compile(r"in \d+ min"))
    expect(rows.nth(1).locator(".chip")).to_have_text("given up")
    expect(rows.nth(1)).to_contain_text("search succeeded, deleted since")
    assert rows.nth(1).get_by_role("link").count() == 0
    expect(rows.nth(2).locator(".chip")).to_have_text("delivered")
    expect(rows.nth(2)).to_contain_text(URL)
    page.get_by_label("Status").select_option("delivered")
    expect(rows).to_have_count(1)
    page.get_by_label("Status").select_option("")
    page.get_by_label("Job").fill("deleted-later")
    expect(rows).to_have_count(1)
    page.get_by_label("Job").fill("")
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="night-run").click()
    expect(page.locator("h1")).to_have_text("night-run")


def test_one_that_was_given_up_is_tried_again(page: Page, here: Service) -> None:
    page.goto(f"{here.url}/webhook-deliveries?job=deleted-later")
    row = page.locator("#table tbody tr")
    row.get_by_role("button", name="Try again").click()
    expect(row.locator(".chip")).to_have_text("pending")
    expect(row).to_contain_text("now")
    assert page.get_by_role("button", name="Try again").count() == 0
    with here.database.write() as session:  # what a coordinator would do
        claimed = webhook_deliveries.claim_next(session, URL, 60.0)
        assert claimed is not None
        webhook_deliveries.settle(session, claimed, "delivered", "the receiver answered 200", 0.0)
    expect(row.locator(".chip")).to_have_text("delivered")  # by itself
    expect(row).to_contain_text("the receiver answered 200")
    with here.database.read() as session:
        found = session.query(WebhookDelivery).filter_by(job_name="deleted-later").one()
        assert found.num_attempts == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_not_wider_than_a_phone(open_page: OpenPage, here: Service, scheme: str) -> None:
    page = open_page(width=390, height=844, scheme=scheme)
    page.goto(f"{here.url}/webhook-deliveries")
    expect(page.locator("#table tbody tr")).to_have_count(3)
    expect(page.locator("#receivers")).to_contain_text("No webhook is set up")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
