"""Distillations for a task in the dashboard: their list, their page, and the form."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page

    from kdnas.testing.demo_data import DemoIds

from playwright.sync_api import expect

from api.jobs.files import task_run_folder
from kdnas.db.models import TaskDistillation
from kdnas.db.repository import grids, jobs, task_distillations
from kdnas.db.repository.events import append_event
from kdnas.settings import Settings
from kdnas.specs.task_distillation import METHODS, TaskDistillationSpec
from kdnas.taskspecific.grid import TaskPoint, TaskTrial
from kdnas.testing.demo_tasks import GAINS, keep_predictions, task_facts, task_run

pytestmark = pytest.mark.browser


def labelled(page: Page, chart: str) -> str:
    """What a chart says to who does not see it, once it is drawn."""
    expect(page.locator(f"#{chart}[data-drawn]")).to_be_visible()
    return page.locator(f"#{chart} [data-plot]").get_attribute("aria-label") or ""


def lines_of(page: Page, chart: str) -> dict[str, list[float | None]]:
    """The lines of a chart by their names."""
    found: dict[str, list[float | None]] = page.locator(f"#{chart} [data-plot]").evaluate(
        "(plot) => Object.fromEntries(plot.data.map((t) => [t.name, [...t.y]]))"
    )
    return found


def test_the_list_leads_to_a_page_with_all_that_was_found(
    page: Page, service: Service, ids: DemoIds
) -> None:
    with service.database.read() as session:
        runs = task_distillations.task_runs(session, ids.task_distillation)
    settings = Settings.from_environment({"KDNAS_HOME": str(service.home)})
    for run in runs:
        if run.error is None:
            folder = task_run_folder(settings, ids.task_distillation, run.method, run.seed)
            keep_predictions(folder, run)
    page.goto(f"{service.url}/task-distillations")
    row = page.locator("#table tbody tr")
    expect(row).to_contain_text("15 / 15 runs")
    expect(row).to_contain_text("5 methods")
    page.get_by_role("link", name="rte-students").click()
    expect(page.locator("#summary")).to_contain_text("15 of 15 runs")
    expect(page.locator("#summary")).to_contain_text("1 of 15 failed")

    held_out: dict[str, list[float]] = {}
    for run in runs:
        if run.held_out is not None:
            held_out.setdefault(run.method, []).append(run.held_out)
    best = max(held_out, key=lambda method: fmean(held_out[method]))
    tiles = page.locator("#summary .tile")
    expect(tiles.filter(has_text="Best held out")).to_contain_text(
        f"{100 * fmean(held_out[best]):.1f} {best}: "
    )
    expect(tiles.filter(has_text="Teacher")).to_contain_text("69.1 held out, 68.2 reported")
    mains = [run.main or 0.0 for run in runs if run.method == "universal-kd-il"]
    mean = f"{100 * sum(mains) / 3:.1f}"
    rows = page.locator("#scores [data-scores] > .scroll tbody tr")
    expect(rows).to_have_count(len(GAINS))
    own = rows.filter(has_text="universal-kd-il")
    expect(own).to_contain_text(f"{mean} ± ")
    expect(own.locator("td").nth(5)).to_contain_text(re.compile(r"^\+\d\.\d"))
    expect(rows.filter(has_text="pkd").first).to_contain_text("2 / 3")
    expect(page.locator("#scores")).to_contain_text("pkd with seed 2 failed: the loss is no number")
    page.get_by_text("Every run", exact=True).click()
    expect(page.locator("#scores details tbody tr")).to_have_count(15)

    beside = page.locator("#published tbody tr")
    il = beside.filter(has_text="universal-kd-il").locator("td")
    expect(il.first).to_have_text(mean)
    expect(il.nth(1)).to_have_text("67.9")
    expect(beside.filter(has_text="teacher").locator("td")).to_contain_text(["68.2", "68.2"])

    assert "12 layers of the teacher" in labelled(page, "layers")
    facts = task_facts()
    held_out = [100 * one["held_out"] for one in facts.layers]
    assert lines_of(page, "layers")["held out"] == pytest.approx(held_out)
    expect(page.locator("#found")).to_contain_text("2,241 train, 249 held-out, 277 dev")
    expect(page.locator("#found")).to_contain_text("beta 0.5")
    expect(page.locator("#found")).not_to_contain_text("null")


def test_curves_are_means_of_methods_or_seeds_of_one(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/task-distillations/rte-students")
    assert "of none, pkd, " in labelled(page, "losses")
    lines = lines_of(page, "held-out")
    assert lines.keys() == set(GAINS)
    runs = [task_run("universal-kd-il", seed) for seed in range(3)]
    mean = [sum(run.curve[i]["held_out"] for run in runs) / 3 for i in range(12)]
    assert lines["universal-kd-il"] == pytest.approx([100 * one for one in mean])
    page.locator("[data-curves]").select_option("universal-kd-il")
    expect(page.locator("#losses [data-plot]")).to_have_attribute(
        "aria-label", "training loss by epoch of seed 0, seed 1, seed 2"
    )
    lines = lines_of(page, "losses")
    losses = [one["loss"] for one in runs[1].curve]
    assert lines["seed 1"] == [*losses[:8], None, *losses[8:]]  # nothing joins the stages
    places = page.locator("#losses [data-plot]").evaluate("(plot) => plot.data[1].x")
    assert places == [*range(1, 10), *range(9, 13)]
    lines = lines_of(page, "held-out")
    assert lines["seed 1"] == [pytest.approx(100 * one["held_out"]) for one in runs[1].curve]
    symbols = page.locator("#losses [data-plot]").evaluate("(plot) => plot.data[0].marker.symbol")
    assert symbols == ["circle-open"] * 8 + ["circle"] * 5


def test_attention_goes_by_method_seed_and_epoch(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/task-distillations/rte-students")
    place = page.locator("#attention")
    expect(place.locator("[data-method] option")).to_have_text(
        ["universal-kd-il", "universal-kd-weighted"]
    )
    place.locator("[data-seed]").select_option("1")
    run = task_run("universal-kd-il", 1)
    cells = place.locator("[data-weights] tbody td")
    expect(cells).to_have_text([f"{w:.2f}" for row in run.attention[-1]["weights"] for w in row])
    slider = place.locator("[data-epoch]")
    slider.fill("2")
    expect(place.locator("[data-epoch-shown]")).to_have_text("2 of 8")
    expect(cells).to_have_text([f"{w:.2f}" for row in run.attention[1]["weights"] for w in row])
    place.locator("[data-method]").select_option("universal-kd-weighted")
    expect(place.locator("[data-seed]")).to_have_value("1")
    expect(place.locator("[data-epoch-shown]")).to_have_text("2 of 8")
    other = task_run("universal-kd-weighted", 1)
    for part, key in (("distances", "distances"), ("sample-weights", "weights")):
        expect(place.locator(f"[data-{part}] tbody tr").nth(3).locator("td")).to_have_text(
            [f"{value:.2f}" for value in other.samples[3][key]]
        )
    expect(place.locator("[data-distances] tbody th").first).to_have_text("dev-0")


def test_a_page_grows_with_the_runs(page: Page, make_service: MakeService) -> None:
    service = make_service()
    service.start()
    asked = TaskDistillationSpec(task="RTE", methods=("none",), seeds=(0, 1)).to_json()
    with service.database.write() as session:
        made = task_distillations.create_task_distillation(
            session, asked, name="growing", owner_kind="service"
        )
        jobs.set_status(session, made.id, "running")
    page.goto(f"{service.url}/task-distillations/growing")
    expect(page.locator("#summary")).to_contain_text("Not begun yet")
    expect(page.locator("#found")).to_contain_text("It was not prepared yet.")
    expect(page.locator("#layers")).to_contain_text("has not learned the task yet")
    expect(page.locator("#held-out")).to_contain_text("begin with the first run that is done")
    expect(page.locator("#scores")).to_contain_text("2 of 2 runs are not done yet")
    expect(page.locator("#attention")).to_be_hidden()
    expect(page.locator("#published")).to_be_hidden()
    with service.database.write() as session:
        task_distillations.set_task_facts(session, made.id, task_facts())
        run = task_run("none", 0)
        task_distillations.add_run(session, made.id, run)
        jobs.note_progress(session, made.id, 1, 2)
        about = {"method": "none", "seed": 0, "main": run.main, "held_out": run.held_out}
        payload = {**about, "error": None}
        append_event(session, "task_distillation_run", payload, job_id=made.id)
    expect(page.locator("#summary")).to_contain_text("1 of 2 runs")
    expect(page.locator("#log")).to_contain_text(f"none seed 0: score {run.main:.3f}")
    assert "of none" in labelled(page, "held-out")
    expect(page.locator("#published")).to_be_visible()


def test_a_list_is_not_widened_by_the_path_of_a_student(
    page: Page, make_service: MakeService
) -> None:
    service = make_service()
    service.start()
    folder = f"/srv/{'deep/' * 20}small"
    asked = TaskDistillationSpec(task="RTE", student=folder).to_json()
    with service.database.write() as session:
        task_distillations.create_task_distillation(session, asked, owner_kind="service")
    page.goto(f"{service.url}/task-distillations")
    cell = page.locator("#table tbody td").filter(has_text="small")
    expect(cell).to_have_text("…/small")
    expect(cell.locator("span")).to_have_attribute("title", folder)


def test_numbers_are_rounded_as_on_the_command_line(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/task-distillations")
    values = [56.25, 43.75, 0.5625, 56.35]
    shown = page.evaluate(
        """async (values) => {
          const { fixed } = await import("/static/js/format.js");
          return values.map((value) => fixed(value, 1));
        }""",
        values,
    )
    assert shown == [f"{value:.1f}" for value in values]


def test_a_page_has_the_trials_of_its_grids(page: Page, make_service: MakeService) -> None:
    service = make_service()
    service.start()
    asked = TaskDistillationSpec(task="RTE", methods=("vanilla-kd",), seeds=(0,)).to_json()
    key, tried = "task-grid-vanilla-kd", [TaskPoint(8, 2e-5, None), TaskPoint(16, 5e-5, None)]
    named = {"vanilla-kd": {"key": key, "points": 2}}
    with service.database.write() as session:
        made = task_distillations.create_task_distillation(
            session, asked, name="with-grid", owner_kind="service"
        )
        jobs.set_status(session, made.id, "running")
        task_distillations.set_task_facts(session, made.id, replace(task_facts(), grids=named))
        grids.open_grid(session, key, model="first-layers:3 by vanilla-kd", task="RTE")
        grids.add_trial(session, key, TaskTrial(tried[0], "diverged", None).to_json())
    page.goto(f"{service.url}/task-distillations/with-grid")
    place = page.locator("#grids")
    expect(place.locator("summary")).to_have_text("vanilla-kd: 1 of 2 trials")
    expect(place.locator("tbody tr")).to_contain_text(["diverged"])
    best = TaskTrial(tried[1], "finished", 0.625, (0.5, 0.625)).to_json()
    with service.database.write() as session:
        grids.add_trial(session, key, best)
        grids.choose(session, key, best)
        payload = {"method": "vanilla-kd", **best["point"], "held_out": 0.625}
        payload |= {"ending": "finished", "done": 2, "total": 2}
        append_event(session, "task_distillation_trial", payload, job_id=made.id)
    expect(place.locator("summary")).to_have_text("vanilla-kd: 2 of 2 trials")  # and still open
    rows = place.locator("tbody tr")
    expect(rows.first).to_contain_text("62.5")
    expect(rows.first).to_contain_text("taken")
    expect(rows.nth(1)).to_contain_text("diverged")


def test_distillations_are_asked_for(page: Page, service: Service, complaints: Complaints) -> None:
    page.goto(f"{service.url}/task-distillations/new")
    help_of = page.locator('[data-path="methods"] .help')
    expect(help_of).to_have_text(f"One a line or with commas between, among {', '.join(METHODS)}.")
    button = page.get_by_role("button", name="Distil")
    button.click()
    expect(page.locator('[data-path="task"] .error')).to_have_text("One such as RTE.")
    page.get_by_label("Task", exact=True).fill("RTE")
    page.get_by_label("Name", exact=True).fill("from-the-form")
    page.get_by_label("Student", exact=True).fill("layers:2,4")
    page.get_by_label("Methods").fill("magic")
    page.get_by_label("Seeds").fill("2")
    page.get_by_text("All other settings").click()
    page.locator("#form summary").get_by_text("Grid").click()
    page.locator('[data-path="grid.betas"] textarea').fill("0.2, 0.7")
    complaints.expected.append("422")
    button.click()
    wrong = page.locator('[data-path="methods"] .error')
    expect(wrong).to_contain_text("not 'magic'.")
    expect(wrong).to_contain_text("universal-kd-il, ")
    page.get_by_label("Seeds").fill("0,-4")
    button.click()
    expect(page.locator('[data-path="seeds"] .error')).to_have_text("At least 0.")
    page.get_by_label("Seeds").fill("0,4")
    page.get_by_label("Methods").fill("none, vanilla-kd")
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("from-the-form")
    with service.database.read() as session:
        row = jobs.get_job(session, "from-the-form", TaskDistillation)
        asked, made = row.requested, row.id
    assert (asked["methods"], asked["seeds"]) == (["none", "vanilla-kd"], [0, 4])
    assert asked["grid"]["betas"] == [0.2, 0.7]
    assert asked["student"] == "layers:2,4"
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, made)
