"""The page of all jobs, the line at the head of each, and what may be changed of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.db.models import Job, Pipeline, Search
from kdnas.db.queue import coordinators, leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import jobs, sweeps
from kdnas.records import MiniKDResult
from kdnas.specs.sweep import SweepSpec
from kdnas.testing import demo_data
from kdnas.testing.benchmark_space import BENCHMARK_SPACE

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def here(make_service: MakeService) -> Iterator[Service]:
    """A service with a pipeline that has a part, a search at work, and a queued one."""
    made = make_service()
    with made.database.write() as session:
        whole = jobs.add_job(session, Pipeline, {}, name="whole", stage="search", notes=[])
        spec = demo_data.spec("part", episodes=1)
        jobs.add_job(session, Search, spec, name="part", parent_id=whole.id)
        working = jobs.add_job(
            session, Search, demo_data.spec("working", episodes=1), name="working"
        )
        jobs.set_status(session, working.id, "running")
        jobs.note_phase(session, working.id, "latency table")
        jobs.note_progress(session, working.id, 5, 20)
        working_row = jobs.locked_job(session, working.id)
        working_row.worked_seconds = 100.0
        owner = LeaseOwner.of_this_process("service")
        leases.acquire(session, Job, working.id, owner, 600)
        jobs.add_job(session, Search, demo_data.spec("waiting", episodes=1), name="waiting")
    made.start()
    yield made
    made.kill()


def test_all_jobs_are_listed_with_what_they_do(page: Page, here: Service) -> None:
    page.goto(f"{here.url}/jobs")
    working = page.locator("tr", has_text="working").first
    expect(working).to_contain_text("latency table")
    expect(working).to_contain_text(re.compile(r"about \d+ min left"))
    expect(working).to_contain_text("process")
    expect(working).to_contain_text("25 %")
    waiting = page.locator("tr", has_text="waiting").first
    expect(waiting).to_contain_text("no coordinator looks after the queue")
    with here.database.write() as session:
        coordinators.note_alive(session, LeaseOwner.of_this_process("service", "c"), 2, 1)
    page.reload()
    expect(page.locator("tr", has_text="waiting").first).to_contain_text("waiting in the queue")


def test_parts_fold_under_the_job_that_asked_for_them(page: Page, here: Service) -> None:
    page.goto(f"{here.url}/jobs")
    expect(page.get_by_role("link", name="whole", exact=True)).to_be_visible()
    assert page.get_by_role("link", name="part", exact=True).count() == 0
    page.get_by_role("button", name="1 parts").click()
    expect(page.get_by_role("link", name="part", exact=True)).to_be_visible()
    page.get_by_role("button", name="1 parts").click()
    expect(page.get_by_role("link", name="part", exact=True)).to_have_count(0)


def test_a_job_is_named_noted_labelled_and_found_by_it(page: Page, here: Service) -> None:
    page.goto(f"{here.url}/searches/waiting")
    page.get_by_role("button", name="Name, note, labels").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("renamed")
    dialog.get_by_label("Note").fill("the one of today")
    dialog.get_by_label("Labels").fill("first tried")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("h1")).to_have_text("renamed")
    expect(page.locator("#job")).to_contain_text("the one of today")
    page.get_by_role("link", name="tried", exact=True).click()
    expect(page).to_have_url(re.compile(r"/jobs\?label=tried$"))
    expect(page.get_by_role("link", name="renamed", exact=True)).to_be_visible()
    assert page.get_by_role("link", name="working", exact=True).count() == 0


def test_a_note_of_several_lines_stays_as_it_was(page: Page, here: Service) -> None:
    def written() -> tuple[str | None, int]:
        with here.database.read() as session:
            job = jobs.get_job(session, "noted")
            return job.note, job.priority

    with here.database.write() as session:
        jobs.add_job(session, Search, demo_data.spec("noted", episodes=1), name="noted")
    page.goto(f"{here.url}/searches/noted")
    edit = page.get_by_role("button", name="Name, note, labels")
    edit.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Note").fill("first\nsecond")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert written() == ("first\nsecond", 0)
    expect(edit).to_be_focused()  # where the reader was
    page.reload()
    edit.click()
    dialog.get_by_label("Priority").fill("7")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert written() == ("first\nsecond", 7)
    edit.click()
    dialog.get_by_role("button", name="Save").click()  # of nothing
    expect(dialog).to_have_count(0)


def test_a_sweep_says_how_many_states_failed_and_tries_them_again(
    page: Page, here: Service
) -> None:
    with here.database.write() as session:
        made = sweeps.create_sweep(
            session, SweepSpec().to_json(), name="swept", owner_kind="service"
        )
        for index, error in enumerate((None, "out of memory", "out of memory")):
            architecture = BENCHMARK_SPACE[index]
            found = MiniKDResult(str(index), architecture, None, error, 60, 1.0)
            sweeps.add_state(session, made.id, 0, index, found, None)
        jobs.set_status(session, made.id, "running")
        jobs.note_progress(session, made.id, 3, 3)
        jobs.set_status(session, made.id, "succeeded")
    page.goto(f"{here.url}/jobs")
    row = page.locator("tr", has_text="swept").first
    expect(row).to_contain_text("100 % 2 failed")
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"{here.url}/jobs/{made.id}")
    expect(page.locator("#summary")).to_contain_text("2 of 3 failed, and the others are kept")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"{here.url}/jobs")
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".chip")).to_have_text("queued")
    with here.database.read() as session:
        assert jobs.status_of(session, made.id) == "queued"


def test_a_name_that_is_taken_is_said_in_the_dialog(
    page: Page, here: Service, complaints: Complaints
) -> None:
    complaints.expected.append("409")
    page.goto(f"{here.url}/searches/part")
    page.get_by_role("button", name="Name, note, labels").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("working")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("there is already a search named 'working'")
    dialog.get_by_role("button", name="Leave as it is").click()
    expect(dialog).to_have_count(0)


def test_deleting_asks_and_says_what_stands_on_it(
    page: Page, here: Service, complaints: Complaints
) -> None:
    complaints.expected += ["409", "404"]  # the page asks for its job every few seconds
    page.goto(f"{here.url}/searches/part")
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(dialog.get_by_role("alert")).to_contain_text("pipeline 'whole' stands on search 'part'")
    dialog.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete for good").click()
    dialog.get_by_role("button", name="Delete it all the same").click()
    expect(page).to_have_url(re.compile(r"/jobs$"))
    with here.database.read() as session:
        found = [one.name for one in session.query(Search)]
    assert "part" not in found
