"""Evaluations: the scores of a model, asking for more of them, and seeing them arrive."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import MakeService, Service
    from playwright.sync_api import Page, Route

    from kdnas.testing.demo_data import DemoIds

from playwright.sync_api import expect

from kdnas.architecture import Architecture
from kdnas.db.repository import distillations, evaluations, jobs
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.registry import find_task
from kdnas.specs.distillation import DistillationSpec
from kdnas.testing.demo_data import add_evaluations
from kdnas.testing.tiny_tasks import write_sst2

pytestmark = pytest.mark.browser


def test_the_scores_of_a_model_stand_beside_published_ones(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/evaluations")
    expect(page.get_by_role("link", name="Evaluations")).to_have_attribute("aria-current", "page")
    table = page.locator("table.scores")
    measured = table.locator("tr[data-origin=measured]")
    expect(measured).to_have_count(1)
    expect(measured).to_contain_text("student-5-ms")
    expect(measured).to_contain_text(re.compile(r"9\d\.\d ± 0\.\d"))
    expect(table.locator("tr[data-origin=published]").first).to_contain_text("published")
    runs = page.locator("#table tbody tr")
    expect(runs).to_have_count(9)
    expect(runs.filter(has_text="running")).to_have_count(1)
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "50")

    page.get_by_label("Compared with").select_option(label="bert-base-uncased")
    expect(measured).to_have_count(2)
    expect(table.locator("tr[data-origin=share]")).to_contain_text(re.compile(r"9\d\.\d\s%"))
    figures = page.locator("table.figures tbody tr")
    expect(figures.first).to_have_text(re.compile("student-5-ms24.3 M97.3 MB4.90 msPyTorch8.49×"))
    expect(figures.nth(1)).to_contain_text("1.00×")
    page.reload()  # the address names what is shown
    expect(measured).to_have_count(2)

    page.get_by_label("Model and suite").select_option(index=1)
    expect(measured).to_have_count(1)
    expect(measured).to_contain_text("bert-base-uncased")
    expect(table.locator("thead")).to_contain_text("RTE *")
    expect(page.locator(".notes.list")).to_contain_text("* RTE: not the official split")
    page.get_by_label("Status").select_option("running")
    expect(page.get_by_text("Nothing fits these filters.")).to_be_visible()
    page.locator("#which").select_option("all")
    expect(runs).to_have_count(1)
    expect(page.get_by_role("link", name="Markdown")).to_have_attribute(
        "href", re.compile(r"report\?model=bert-base-uncased&suite=glue&format=md")
    )


def test_scores_that_come_late_do_not_replace_those_chosen_since(
    page: Page, service: Service
) -> None:
    page.goto(f"{service.url}/evaluations")
    measured = page.locator("table.scores tr[data-origin=measured]")
    expect(measured).to_contain_text("student-5-ms")
    held: list[Route] = []
    page.route("**/evaluations/report?*", lambda route: held.append(route), times=1)
    page.get_by_label("Compared with").select_option(label="bert-base-uncased")
    page.get_by_label("Model and suite").select_option(index=1)
    expect(measured).to_contain_text("bert-base-uncased")
    with page.expect_request_finished():
        held[0].continue_()
    page.wait_for_timeout(200)
    expect(measured).to_have_count(1)
    expect(measured).to_contain_text("bert-base-uncased")


def test_a_student_is_evaluated_from_its_page(page: Page, service: Service, ids: DemoIds) -> None:
    page.goto(f"{service.url}/distillations/{ids.student}")
    scores = page.locator("#scores")
    expect(scores.locator("tr[data-origin=measured]").first).to_contain_text("student-5-ms")
    expect(scores.locator("tr[data-origin=share]")).to_contain_text("bert-base-uncased")
    page.get_by_role("link", name="Evaluate", exact=True).click()
    expect(page.get_by_label("Model")).to_have_value(f"distillation:{ids.student}")
    expect(page.get_by_label("Seeds")).to_have_attribute("placeholder", "3")
    page.get_by_label("Suite").select_option("tydiqa")
    expect(page.locator("#f-tasks-help")).to_contain_text("One a line, among TyDiQA-GoldP.")
    page.get_by_label("Seeds").fill("0")
    page.get_by_role("button", name="Start the evaluation").click()
    expect(page.locator('[data-path="seeds"] .error')).to_have_text("At least 1.")


@pytest.fixture(scope="module")
def empty(make_service: MakeService) -> Service:
    """A service with a data root and nothing done yet."""
    made = make_service()
    made.environment["KDNAS_DATA_ROOTS"] = str(made.home / "data")
    write_sst2(made.home / "data" / "glue")
    made.start()
    return made


def test_what_was_asked_for_is_seen_to_arrive(page: Page, empty: Service) -> None:
    page.goto(f"{empty.url}/evaluations")
    expect(page.get_by_role("heading", name="No evaluation yet")).to_be_visible()
    page.get_by_role("link", name="Evaluate a model").first.click()
    page.get_by_label("Model").fill("minilm")
    page.get_by_label("Seeds").fill("2")
    page.get_by_label("Data folder").fill(str(empty.home / "data" / "glue"))
    page.get_by_label("At most so many steps").fill("5")
    page.get_by_text("The request as JSON").click()
    assert json.loads(page.locator("#form pre").inner_text())["seeds"] == 2
    page.get_by_role("button", name="Start the evaluation").click()
    runs = page.locator("#table tbody tr")
    expect(runs).to_have_count(2)
    expect(page.get_by_text("The scores appear with the first finished run.")).to_be_visible()
    expect(page.locator("#live[data-state=live]")).to_be_visible()
    with empty.database.read() as session:
        rows = evaluations.list_evaluations(session, model="minilm")
    assert {row.requested["max_steps"] for row in rows} == {5}
    assert {row.task for row in rows} == {"SST-2"}
    first = runs.filter(has_text="queued").first
    first.get_by_role("button", name="Pause").click()
    expect(runs.filter(has_text="paused")).to_have_count(1)
    with empty.database.write() as session:
        jobs.set_status(
            session, rows[0].id, "failed", "the device is out of memory; take smaller batches"
        )
    expect(runs.filter(has_text="the device is out of memory")).to_have_count(1)
    add_evaluations(empty.database, "minilm", {"SST-2": 0.913})
    expect(page.locator("table.scores tr[data-origin=measured]")).to_contain_text("91.")
    expect(runs).to_have_count(5)
    with empty.database.write() as session:  # of another model: the chosen one stays
        evaluations.create_evaluations(session, [NewEvaluation("glue", "RTE", 0, {})], model="x/y")
    expect(page.locator("#model option")).to_have_count(2)
    expect(page.locator("table.scores tr[data-origin=measured]")).to_contain_text("minilm")


def test_errors_are_in_their_own_unit_and_models_of_one_name_are_two(
    page: Page, make_service: MakeService
) -> None:
    empty = make_service()
    empty.start()
    metrics = {"dev": {"pearson": 0.9, "rmse": 0.42}}
    settings = published_settings(find_task("STS-B"))
    small = Architecture.parse("3,4,192,384,gelu")
    asked = DistillationSpec(architecture=str(small)).to_json()
    with empty.database.write() as session:
        made = distillations.create_distillation(session, asked, small)
        for made_by in (None, made.id):
            (row,) = evaluations.create_evaluations(
                session,
                [NewEvaluation("own", "prices", 0, {})],
                model="./student",
                distillation_id=made_by,
            )
            result = TaskResult(
                "prices", "own", 0, settings, metrics, 0.9, 1.0, 1, 10, official_split=False
            )
            about = {"key": row, "model": {"ref": "./student"}, "data": "prices", "settings": {}}
            evaluations.note_prepared(session, row, about)
            jobs.set_status(session, row, "running")
            evaluations.set_figures(session, row, result.to_json())
    page.goto(f"{empty.url}/evaluations")
    expect(page.locator("#table tbody tr").first).to_contain_text("dev: pearson 90.0, rmse 0.42")
    options = page.locator("#model option")
    expect(options).to_have_count(2)
    values = [options.nth(n).get_attribute("value") for n in (0, 1)]
    assert values[0] != values[1]
    page.locator("#model").select_option(index=1)
    expect(page.locator("#model")).to_have_value(values[1] or "")
    page.reload()
    expect(page.locator("#model")).to_have_value(values[1] or "")


def test_a_task_of_ones_own_is_asked_for(page: Page, empty: Service) -> None:
    reviews = empty.home / "data" / "reviews.csv"
    reviews.write_text("body,stars\n" + "".join(f"a stone {n},{n % 2}\n" for n in range(20)))
    page.goto(f"{empty.url}/evaluations/new?model=minilm")
    page.get_by_label("Suite").select_option("own")
    expect(page.locator("#f-tasks-help")).to_have_text("None: the suite is your own task.")
    page.get_by_label("Data folder").fill(str(reviews))
    page.get_by_label("Seeds").fill("1")
    page.get_by_text("All other settings").click()
    page.get_by_text("A task of your own: the suite own").click()
    page.get_by_label("Column of the text").fill("body")
    page.get_by_label("Column of the label").fill("stars")
    page.get_by_role("button", name="Start the evaluation").click()
    expect(page.locator("#table tbody tr")).to_have_count(1)
    with empty.database.read() as session:
        (row,) = evaluations.list_evaluations(session, model="minilm", suite="own")
    assert row.task == "reviews"
    assert (row.requested["own"]["text"], row.requested["own"]["label"]) == ("body", "stars")


def test_classes_are_read_when_somebody_opens_them(
    page: Page, service: Service, ids: DemoIds
) -> None:
    folder = service.home / "evaluations" / ids.evaluation
    folder.mkdir(parents=True)
    pairs = [("positive", "positive")] * 5 + [("positive", "negative")] * 2
    pairs += [("negative", "negative")] * 3
    lines = [
        {"set": "dev", "id": str(n), "text": "a film", "score": float(said == right)}
        | {"prediction": said, "gold": right}
        for n, (said, right) in enumerate(pairs)
    ]
    file = folder / "predictions.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        page.goto(f"{service.url}/evaluations")
        summary = page.get_by_text("Class by class")
        expect(page.locator("table.classes")).to_have_count(0)
        summary.click()
        expect(page.get_by_role("heading", name="SST-2, dev")).to_be_visible()
        rows = page.locator("table.classes tbody tr")
        expect(rows.first).to_have_text("negative100.060.075.05")
        expect(rows.nth(1)).to_have_text("positive71.4100.083.35")
        expect(page.locator("table.confusion tbody tr").first).to_have_text("negative32")
        with page.expect_download() as fetched:
            page.get_by_role("link", name="seed 0", exact=True).click()
        assert fetched.value.suggested_filename == "SST-2-seed0.jsonl"
    finally:
        file.unlink()
    page.get_by_label("Model and suite").select_option(index=1)
    expect(page.locator("table.scores tr[data-origin=measured]")).to_contain_text("bert-base")
    page.get_by_text("Class by class").click()
    expect(page.get_by_text("lies on another machine")).to_be_visible()
