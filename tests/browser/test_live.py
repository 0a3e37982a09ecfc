"""Pages that are open while something happens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, OpenPage, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import stop_wish
from kdnas.db.repository import distillations, jobs, searches
from kdnas.records import CurvePoint, Losses
from kdnas.testing import demo_data

pytestmark = pytest.mark.browser

PICKS = [(index, "random", None) for index in range(100, 108)]
CONNECTION_LOST = [
    "ERR_CONNECTION_REFUSED",
    "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_CONNECTION_RESET",
]


@pytest.fixture(scope="module")
def empty(make_service: MakeService) -> Service:
    """A service that nobody has used yet."""
    made = make_service()
    made.start()
    return made


def no_reload(page: Page) -> None:
    """Mark the page, so that a reload would be seen."""
    page.evaluate("window.notReloaded = true")


def was_not_reloaded(page: Page) -> bool:
    return bool(page.evaluate("window.notReloaded === true"))


def put_out_of_sight(page: Page, is_hidden: bool = True) -> None:
    """Tell a page what it is told when another tab is chosen; here all are in sight."""
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def begin_search(service: Service, name: str, episodes: int = 3) -> str:
    asked = demo_data.spec(name, episodes=episodes, candidates=len(PICKS))
    with service.database.write() as session:
        search = searches.create_search(session, asked, name=name, owner_kind="service")
        jobs.set_status(session, search.id, "running")
    return search.id


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_the_first_search_appears_in_the_empty_list(page: Page, empty: Service) -> None:
    page.goto(f"{empty.url}/searches")
    expect(page.get_by_role("heading", name="No search yet")).to_be_visible()
    expect(page.get_by_role("link", name="Start the first search")).to_be_visible()
    live(page)
    no_reload(page)
    begin_search(empty, "the-first")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="the-first")).to_be_visible()
    assert was_not_reloaded(page)


def test_episodes_and_candidates_arrive_without_a_reload(page: Page, empty: Service) -> None:
    search_id = begin_search(empty, "watched")
    page.goto(f"{empty.url}/searches/watched")
    expect(page.locator("#episodes .empty")).to_be_visible()
    live(page)
    no_reload(page)

    demo_data.add_episode(empty.database, search_id, 1, PICKS, epsilon=1.0)
    expect(page.locator("#summary")).to_contain_text("8 of 24 candidates")
    expect(page.locator("#candidates tbody tr")).to_have_count(8)
    expect(page.locator("#episodes[data-drawn]")).to_be_visible()
    expect(page.locator("#tradeoff .trace").first).to_be_visible()
    log = page.locator("#log")
    expect(log).to_contain_text("Episode 1 began with 8 candidates, ε 1.00")
    expect(log).to_contain_text(re.compile(r"reward 0\.\d{3}, loss 0\.\d{3}, \d+\.\d+ ms"))
    expect(log.locator("li").first).to_contain_text("Episode 1 ended")

    with empty.database.write() as session:
        jobs.set_status(session, search_id, "succeeded")
    expect(page.locator("#summary .chip")).to_have_text("succeeded")
    assert page.get_by_role("button", name="Pause").count() == 0
    assert was_not_reloaded(page)


def test_a_cut_server_is_noticed_and_nothing_is_missed(
    page: Page, empty: Service, complaints: Complaints
) -> None:
    complaints.expected += CONNECTION_LOST
    search_id = begin_search(empty, "cut-off")
    page.goto(f"{empty.url}/searches/cut-off")
    live(page)
    no_reload(page)
    banner = page.locator("#banner")
    expect(banner).to_be_hidden()

    empty.kill()
    expect(banner).to_be_visible()
    expect(page.locator("#live")).to_have_attribute("data-state", "lost")
    demo_data.add_episode(empty.database, search_id, 1, PICKS, epsilon=1.0)
    empty.start()

    expect(banner).to_be_hidden()
    live(page)
    expect(page.locator("#summary")).to_contain_text("8 of 24 candidates")
    expect(page.locator("#log li").filter(has_text="Episode 1 began")).to_have_count(1)
    expect(page.locator("#log li").filter(has_text="Episode 1 ended")).to_have_count(1)
    assert was_not_reloaded(page)


def test_a_search_is_paused_resumed_and_cancelled_by_its_buttons(
    page: Page, empty: Service
) -> None:
    search_id = begin_search(empty, "handled")
    page.goto(f"{empty.url}/searches/handled")
    status = page.locator("#summary .chip")

    def stored() -> str:
        with empty.database.read() as session:
            return searches.get_search(session, search_id).status

    page.get_by_role("button", name="Pause").click()
    expect(status).to_have_text("paused")
    assert stored() == "paused"
    page.get_by_role("button", name="Resume").click()
    expect(status).to_have_text("queued")
    assert stored() == "queued"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel for good?").click()
    expect(status).to_have_text("cancelled")
    assert stored() == "cancelled"
    assert page.locator("[data-action]").count() == 0


def test_trainings_that_end_before_a_pause_are_told_and_need_not_be_waited_for(
    page: Page, empty: Service
) -> None:
    search_id = begin_search(empty, "ending")
    ending = "pausing: 2 students at step 310 of 600, about 4 minutes left"
    with empty.database.write() as session:
        leases.acquire(session, Job, search_id, LeaseOwner.of_this_process("service"), 600)
    page.goto(f"{empty.url}/searches/ending")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#summary .chip")).to_have_text("paused")
    with empty.database.write() as session:  # as its process does
        jobs.note_ending(session, search_id, ending, 310, 600)
    expect(page.locator("#job [data-standing]")).to_contain_text(ending)
    now = page.get_by_role("button", name="Pause now")
    assert "training is lost" in (now.get_attribute("title") or "")
    now.click()
    expect(now).to_be_hidden()
    with empty.database.read() as session:
        assert stop_wish(session, search_id) == "at once"
    expect(page.locator("#log li").filter(has_text="Now paused at once")).to_have_count(1)


def test_a_question_asked_outlives_what_happens_meanwhile(page: Page, empty: Service) -> None:
    search_id = begin_search(empty, "asked-twice")
    page.goto(f"{empty.url}/searches/asked-twice")
    live(page)
    cancel = page.get_by_role("button", name="Cancel").element_handle()
    assert cancel is not None
    cancel.click()
    demo_data.add_episode(empty.database, search_id, 1, PICKS, epsilon=1.0)
    expect(page.locator("#summary")).to_contain_text("8 of 24 candidates")
    assert cancel.evaluate("(button) => button.isConnected && button === document.activeElement")


def test_a_curve_grows_while_it_is_watched(page: Page, empty: Service) -> None:
    made = demo_data.add_distillation(
        empty.database, "growing", "4,8,384,1024,gelu", steps=1000, until=200
    )
    page.goto(f"{empty.url}/distillations/growing")
    expect(page.locator("#summary")).to_contain_text("Step 200 of 1,000")
    live(page)
    no_reload(page)
    with empty.database.write() as session:
        distillations.set_distillation_progress(
            session, made, 400, 1000, [CurvePoint(400, 0.2, 1e-4)], []
        )
    expect(page.locator("#summary")).to_contain_text("Step 400 of 1,000")
    expect(page.locator("#training [data-plot]")).to_have_attribute(
        "aria-label", re.compile("at step 400 it is 0.2000")
    )
    assert was_not_reloaded(page)


def test_a_page_recovers_from_an_answer_that_is_cut_off_and_charts_that_do_not_come(
    page: Page, empty: Service, complaints: Complaints
) -> None:
    complaints.expected.append("ERR_FAILED")
    made = demo_data.add_distillation(
        empty.database, "recovers", "4,8,384,1024,gelu", steps=1000, until=200
    )
    cut = {"content_type": "application/json", "body": '{"points": ['}
    page.route("**/curve", lambda route: route.fulfill(**cut), times=1)
    page.route("**/plotly.min.js", lambda route: route.abort(), times=1)
    page.goto(f"{empty.url}/distillations/recovers")
    expect(page.locator("#problem")).to_contain_text("cut off")
    live(page)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#summary")).to_contain_text("Step 200 of 1,000")
    expect(page.locator("#training")).to_contain_text("The charts could not be loaded.")
    with empty.database.write() as session:
        distillations.set_distillation_progress(
            session, made, 400, 1000, [CurvePoint(400, 0.2, 1e-4)], []
        )
    expect(page.locator("#training[data-drawn]")).to_be_visible()


def test_a_reading_that_throws_is_not_the_last_one(
    page: Page, empty: Service, complaints: Complaints
) -> None:
    complaints.expected.append("thrown by the test")
    page.goto(f"{empty.url}/login")
    page.evaluate(
        """async () => {
          const { throttled } = await import("/static/js/dom.js");
          window.calls = 0;
          const read = throttled(async () => {
            window.calls += 1;
            if (window.calls === 1) throw new Error("thrown by the test");
          }, 10);
          read();
          read();
        }"""
    )
    page.wait_for_function("window.calls === 2")


def test_what_others_named_is_text_and_no_markup(page: Page, empty: Service) -> None:
    search_id = begin_search(empty, "named")
    with empty.database.write() as session:
        error = "<img src=x onerror=\"console.error('script ran')\"><b>bold</b>"
        jobs.set_status(session, search_id, "failed", error)
    page.goto(f"{empty.url}/searches/named")
    expect(page.locator("#summary .notice.bad")).to_have_text(re.compile("<img src=x"))
    expect(page.locator("#log")).to_contain_text("<b>bold</b>")
    assert page.locator("main img, main b").count() == 0


def test_a_search_beyond_the_sliders_is_ranked_under_its_own_reward(
    page: Page, empty: Service
) -> None:
    asked = demo_data.spec("beyond", episodes=3, candidates=len(PICKS))
    asked["reward"]["beta"] = 3.0
    with empty.database.write() as session:
        search = searches.create_search(session, asked, name="beyond", owner_kind="service")
    demo_data.add_episode(empty.database, search.id, 1, PICKS, epsilon=1.0)
    page.goto(f"{empty.url}/searches/beyond")
    beta, reset = page.locator("[data-beta-out]"), page.locator("#ranking [data-reset]")
    expect(beta).to_have_text("3.00")
    expect(reset).to_be_disabled()
    page.locator("#ranking [data-beta]").fill("0.5")
    expect(beta).to_have_text("0.50")
    with page.expect_request("**/ranking"):
        reset.click()
    expect(beta).to_have_text("3.00")


def test_a_held_out_reading_is_shown(page: Page, empty: Service) -> None:
    made = demo_data.add_distillation(
        empty.database, "read-out", "4,8,384,1024,gelu", steps=1000, until=200
    )
    page.goto(f"{empty.url}/distillations/read-out")
    live(page)
    with empty.database.write() as session:
        reading = distillations.HeldOutReading(400, Losses(0.5, 0.5, 0.123, 0.321))
        distillations.set_distillation_progress(
            session, made, 400, 1000, [CurvePoint(400, 0.2, 1e-4)], [reading]
        )
    expect(page.locator("#summary")).to_contain_text("0.123")
    expect(page.locator("#log")).to_contain_text("held-out loss 0.123")


def test_tabs_out_of_sight_leave_connections_to_the_one_that_is_looked_at(
    open_page: OpenPage, empty: Service
) -> None:
    search_id = begin_search(empty, "one-of-many-tabs")
    pages = []
    for _ in range(7):  # a browser opens six connections to a service
        page = open_page()
        page.goto(f"{empty.url}/searches/one-of-many-tabs")
        live(page)
        put_out_of_sight(page)
        pages.append(page)
    first = pages[0]
    no_reload(first)
    demo_data.add_episode(empty.database, search_id, 1, PICKS, epsilon=1.0)
    put_out_of_sight(first, is_hidden=False)
    expect(first.locator("#log li").filter(has_text="Episode 1 began")).to_have_count(1)
    expect(first.locator("#summary")).to_contain_text("8 of 24 candidates")
    assert was_not_reloaded(first)


def test_a_click_is_not_lost_when_the_page_is_shown_anew_meanwhile(
    page: Page, empty: Service
) -> None:
    search_id = begin_search(empty, "pressed")
    page.goto(f"{empty.url}/searches/pressed")
    live(page)
    pause = page.get_by_role("button", name="Pause")
    expect(page.locator("#summary")).to_contain_text("0 of 24 candidates")
    pause.hover()
    page.mouse.down()
    demo_data.add_episode(empty.database, search_id, 1, PICKS, epsilon=1.0)
    expect(page.locator("#log")).to_contain_text("Episode 1 ended")
    page.wait_for_timeout(2500)  # until the page would have been shown anew
    expect(page.locator("#summary")).to_contain_text("0 of 24 candidates")
    page.mouse.up()
    expect(page.locator("#summary .chip")).to_have_text("paused")
    expect(page.locator("#summary")).to_contain_text("8 of 24 candidates")


def test_who_looks_at_a_job_is_told_that_it_was_deleted(page: Page, empty: Service) -> None:
    made = demo_data.add_distillation(
        empty.database, "short-lived", "4,8,384,1024,gelu", steps=1000, until=200
    )
    with empty.database.write() as session:
        jobs.set_status(session, made, "cancelled")
    page.goto(f"{empty.url}/distillations/short-lived")
    expect(page.locator("#summary")).to_contain_text("Step 200 of 1,000")
    live(page)
    with empty.database.write(by="ana") as session:
        jobs.delete_job(session, made)
    expect(page.locator("#problem")).to_have_text(
        "This was deleted by ana; the page shows what it was."
    )
    expect(page.locator("#summary")).to_contain_text("Step 200 of 1,000")
    expect(page.locator("#summary").get_by_role("button", name="Delete")).to_be_disabled()


def test_a_sweep_tells_how_far_it_is_without_an_event(
    page: Page, empty: Service, complaints: Complaints
) -> None:
    complaints.expected.append("409")  # this service has no latency table for its readings
    made = demo_data.add_sweep(empty.database, "under-way", each=100)
    with empty.database.write() as session:
        jobs.set_status(session, made, "running")
        jobs.note_progress(session, made, 3, 24)
    page.goto(f"{empty.url}/sweeps/under-way")
    expect(page.locator("#summary")).to_contain_text("3 of 24 states")
    no_reload(page)
    with empty.database.write() as session:
        jobs.note_progress(session, made, 6, 24)
    expect(page.locator("#summary")).to_contain_text("6 of 24 states")
    page.goto(f"{empty.url}/jobs")
    row = page.locator("tr", has_text="under-way")
    expect(row).to_contain_text("25 %")
    with empty.database.write() as session:
        jobs.note_progress(session, made, 12, 24)
    expect(row).to_contain_text("50 %")
