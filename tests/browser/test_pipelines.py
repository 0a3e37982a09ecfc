"""A pipeline's page from its first scores to its report, and the form that launches one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page

from playwright.sync_api import expect

from kdnas.db.repository import jobs, pipelines
from kdnas.testing import demo_data, demo_pipelines

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Served:
    """A service with a search that is done, and the search's id."""

    service: Service
    search: str


@pytest.fixture(scope="module")
def served(make_service: MakeService) -> Served:
    made = make_service()
    search = demo_data.add_search(made.database, "searched", episodes=2, candidates_each=8)
    made.start()
    return Served(made, search)


def test_a_pipeline_is_followed_to_its_report(page: Page, served: Served) -> None:
    database, home = served.service.database, served.service.home
    page.goto(f"{served.service.url}/pipelines")
    expect(page.get_by_role("heading", name="No pipeline yet")).to_be_visible()
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    pipeline = demo_pipelines.add_pipeline(
        database, "followed", served.search, stage="evaluation", home=home
    )
    page.get_by_role("link", name="followed").click()
    expect(page.locator("#summary .chip")).to_have_text("running")
    stages = page.locator(".stages li")
    expect(stages.nth(1)).to_have_attribute("data-state", "over")
    expect(stages.nth(2)).to_contain_text("74 of 78 runs")
    expect(page.locator("#members tbody tr")).to_have_count(13)
    expect(page.locator("#answer")).to_contain_text("It is under way")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate("window.notReloaded = true")

    demo_pipelines.end_evaluations(database, pipeline, home)
    expect(page.locator("#summary .chip")).to_have_text("succeeded")
    expect(stages.nth(2)).to_contain_text("78 of 78 runs")
    expect(page.locator("#answer .headline")).to_have_text(
        re.compile(r"^Take \S+: it retains \d+\.\d\s% \(95\s% interval .* × as fast")
    )
    pick = page.locator("#members tr[data-pick]")
    expect(pick).to_have_count(1)
    expect(pick.locator(".tag")).to_have_text("take")
    starts = page.locator('#members tr[data-role="undistilled"]')
    expect(starts).to_have_count(6)
    expect(starts.first).to_contain_text(re.compile(r"\S+ undistilled.*undistilled student"))
    expect(pick).to_contain_text(re.compile(r"\+\d+\.\d"))  # points gained by distilling
    expect(page.locator("#answer .headline")).to_contain_text("of its score to distillation")
    expect(page.locator("#tradeoff[data-drawn] .trace").first).to_be_visible()
    report = page.locator("#report")
    expect(report).to_contain_text("2 episodes of 8 students")
    expect(report.get_by_role("table", name=re.compile("students to take"))).to_contain_text(
        "teacher"
    )
    expect(page.locator("#log")).to_contain_text("The pipeline has succeeded")
    with page.expect_download() as download:
        report.get_by_role("link", name="Markdown").click()
    assert download.value.suggested_filename == "followed.md"
    assert page.evaluate("window.notReloaded")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator("#tradeoff[data-drawn]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_second_step_is_seen_beside_the_students(page: Page, served: Served) -> None:
    database, home = served.service.database, served.service.home
    demo_pipelines.add_pipeline(
        database, "taught", served.search, home=home, spec={"task_distill": "universal-kd-il"}
    )
    page.goto(f"{served.service.url}/pipelines/taught")
    stages = page.locator(".stages li")
    expect(stages).to_have_count(5)
    expect(stages.nth(3)).to_contain_text("For each task")
    expect(stages.nth(3)).to_contain_text("6 of 6 distillations")
    expect(stages.nth(3)).to_have_attribute("data-state", "over")
    taught = page.locator('#members tr[data-role="task"]')
    expect(taught).to_have_count(3)
    expect(page.locator("#members tbody tr")).to_have_count(16)
    expect(taught.first).to_contain_text(re.compile(r"\S+ \+ universal-kd-il.*distilled for each"))
    expect(taught.first).to_contain_text(re.compile(r"SST-2 \d+\.\d"))
    table = page.get_by_role("table", name="Students before and after the second step")
    expect(table.locator("tbody tr")).to_have_count(9)  # two tasks and their mean
    expect(table.locator("tbody tr").first).to_contain_text(re.compile(r"\d+\.\d\s% \(\d+\.\d to"))
    expect(page.locator("#answer")).to_contain_text("Distilled once more for the tasks, ")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    expect(page.locator("#tradeoff[data-drawn]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    table.get_by_role("link", name="SST-2").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("-for-SST-2")


def test_the_form_offers_the_second_step(
    page: Page, served: Served, complaints: Complaints
) -> None:
    page.goto(f"{served.service.url}/pipelines/new")
    method = page.locator('[data-path="task_distill.method"] select')
    expect(method.locator("option").first).to_have_text("not at all")
    expect(page.locator('[data-path="task_distill.epochs"]')).to_contain_text("As published 20")
    expect(page.locator('[data-path="task_distill.finetune_epochs"]')).to_contain_text("10")
    page.get_by_text("The request as JSON").click()
    body = page.locator("#form pre")
    assert "task_distill" not in json.loads(body.inner_text())
    method.select_option("vanilla-kd")
    page.locator('[data-path="task_distill.epochs"] input').fill("4")
    assert json.loads(body.inner_text())["task_distill"] == {"method": "vanilla-kd", "epochs": 4}
    offered = method.locator("option").all_text_contents()
    assert "universal-kd-il" in offered
    assert "universal-kd-ca" not in offered  # students of a search are Transformers
    complaints.expected += ["422"]
    method.select_option("")
    page.get_by_role("button", name="Launch the pipeline").click()
    said = page.locator('[data-path="task_distill.method"] .error')
    expect(said).to_contain_text("Is missing; give one of none, vanilla-kd, ")


def test_a_preset_brings_the_options_of_its_strategy(page: Page, served: Served) -> None:
    page.goto(f"{served.service.url}/pipelines/new")
    strategy = page.get_by_label("Strategy")
    strategy.select_option("gp")
    own = page.locator('[data-path^="search.controller.strategy."]')
    expect(own).to_have_count(3)
    page.get_by_label("Begin with").select_option("paper")
    expect(strategy).to_have_value("controller")
    variant = page.locator('[data-path="search.controller.strategy.variant"] select')
    expect(variant).to_have_value("paper")
    strategy.select_option("evolution")
    expect(own).to_have_count(3)
    page.get_by_text("The request as JSON").click()
    body = json.loads(page.locator("#form pre").inner_text())
    assert body["search"]["controller"]["strategy"] == {"name": "evolution"}


def test_a_pipeline_is_launched_from_a_preset(
    page: Page, served: Served, complaints: Complaints
) -> None:
    complaints.expected += ["422"]
    page.goto(f"{served.service.url}/pipelines/new")
    page.get_by_label("Begin with").select_option("laptop")
    episodes = page.get_by_label("Episodes")
    expect(episodes).to_have_value("3")
    weight = page.get_by_label("Weight of the last layers")
    expect(weight).to_have_value("3")
    rate = page.locator('[data-path="distillation.training.learning_rate"] input')
    expect(rate).to_have_value("0.002")
    page.get_by_label("Objective").select_option("od")  # whose rate is another one
    expect(rate).to_have_value("0.0002")
    expect(weight).to_have_count(0)
    page.get_by_label("Objective").select_option("hs")
    expect(weight).to_have_value("3")
    expect(rate).to_have_value("0.002")
    page.get_by_label("Name", exact=True).fill("launched")
    budgets = page.get_by_label("Or the best within each latency")
    budgets.fill("6\nnine")
    page.get_by_role("button", name="Launch the pipeline").click()
    expect(page.locator('[data-path="choose.latency_budgets_ms"] .error')).to_have_text(
        "A number, not “nine”."
    )
    budgets.fill("6\n9.5")
    page.get_by_role("button", name="Launch the pipeline").click()
    said = page.locator('[data-path^="choose."] .error', has_text="exactly one of top")
    expect(said).to_be_visible()
    shares = page.get_by_label("Or within each share of the teacher's")
    expect(shares).to_have_value("0.45")
    shares.fill("")
    page.get_by_label("Tasks").fill("SST-2")
    page.get_by_text("The request as JSON").click()
    body = json.loads(page.locator("#form pre").inner_text())
    assert body["choose"] == {"latency_budgets_ms": [6, 9.5]}
    page.get_by_role("button", name="Launch the pipeline").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("launched")
    expect(page.locator("#members")).to_contain_text("chosen when the search has ended")

    page.go_back()
    expect(page.get_by_label("Begin with")).to_have_value("laptop")
    expect(page.get_by_label("Tasks")).to_have_value("SST-2")
    assert json.loads(page.locator("#form pre").text_content() or "") == body

    with served.service.database.read() as session:
        stored = pipelines.get_pipeline(session, "launched")
    assert stored.owner_kind == "service"
    assert stored.spec["choose"]["latency_budgets_ms"] == [6, 9.5]
    assert stored.spec["search"]["limits"]["max_latency_ms"] == 9.5
    assert stored.spec["search"]["proxy"]["steps"] == 30
    assert stored.spec["search"]["objective"]["last_weight"] == 3
    assert stored.spec["baselines"]["proportions"] == [[0.5, 1.0], [0.5, 0.5]]
    assert stored.spec["baselines"]["undistilled"] is True
    assert stored.spec["baselines"]["smallest_cuts"] is True
    assert [one["layers"] for one in stored.spec["baselines"]["variants"]] == [0.5, 1]
    assert stored.spec["evaluation"]["tasks"] == ["SST-2"]


def test_scores_of_a_student_come_to_its_own_page(page: Page, served: Served) -> None:
    """What happens to its evaluations is told on the page of the pipeline, which asked for them."""
    database, home = served.service.database, served.service.home
    pipeline = demo_pipelines.add_pipeline(
        database, "scored", served.search, stage="evaluation", home=home
    )
    with database.read() as session:
        (student,) = [
            member.distillation.id
            for member in pipelines.list_members(session, pipeline)
            if member.distillation is not None
            and any(one.status != "succeeded" for one in member.evaluations)
        ]
    page.goto(f"{served.service.url}/distillations/{student}")
    scores = page.locator("#scores [data-scores]")
    expect(scores.locator("table").first).to_be_visible()
    before = scores.inner_text()
    demo_pipelines.end_evaluations(database, pipeline, home)
    expect(scores).not_to_have_text(before)
    expect(scores.locator("table").first).to_be_visible()


def test_what_is_over_of_a_failed_pipeline_does_not_go_on(page: Page, served: Served) -> None:
    database = served.service.database
    made = demo_pipelines.add_pipeline(database, "halved", served.search, failing=True)
    with database.write() as session:
        for member in pipelines.list_members(session, made):
            for one in member.evaluations:
                if one.status == "failed":
                    jobs.set_status(session, one.id, "succeeded")
    page.goto(f"{served.service.url}/pipelines/{made}")
    states = ["over", "failed", "over", "to come"]
    for place, state in enumerate(states):
        stage = page.locator(".stages li").nth(place)
        expect(stage).to_have_attribute("data-state", state)
