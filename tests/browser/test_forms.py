"""The forms that start something: checked here, checked there, and sent once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, MakeService, Service
    from playwright.sync_api import Page, Request

    from kdnas.testing.demo_data import DemoIds

from playwright.sync_api import expect

from kdnas.cli.search import search
from kdnas.db.lists import job_pages, latency_pages
from kdnas.db.models import LatencyBuild, Search
from kdnas.db.repository import distillations, jobs, searches
from kdnas.specs.load import load_preset
from kdnas.specs.objectives import OBJECTIVES
from kdnas.specs.search import SearchSpec
from kdnas.specs.strategies import STRATEGIES

pytestmark = pytest.mark.browser


def keys_of_posts(page: Page) -> list[str | None]:
    keys: list[str | None] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            keys.append(request.headers.get("idempotency-key"))

    page.on("request", note)
    return keys


def test_a_field_that_does_not_fit_is_named_before_anything_is_sent(
    page: Page, service: Service
) -> None:
    keys = keys_of_posts(page)
    page.goto(f"{service.url}/searches/new")
    episodes = page.get_by_label("Episodes")
    expect(episodes).to_have_attribute("placeholder", "15")
    page.get_by_label("Share of the text").fill("3")
    episodes.fill("two")
    page.get_by_role("button", name="Start the search").click()
    expect(episodes).to_be_focused()
    expect(page.locator('[data-path="controller.episodes"] .error')).to_have_text(
        "A number, not “two”."
    )
    expect(page.locator('[data-path="proxy.fraction"] .error')).to_have_text("At most 1.")
    episodes.fill("0")
    episodes.blur()
    expect(page.locator('[data-path="controller.episodes"] .error')).to_have_text("At least 1.")
    page.get_by_label("Begin with").select_option("cluster")
    expect(episodes).to_have_value("10")
    expect(episodes).to_have_attribute("aria-invalid", "false")
    expect(page.locator('[data-path="controller.episodes"] .error')).to_be_hidden()
    assert keys == []


def test_a_search_is_started(page: Page, service: Service) -> None:
    keys = keys_of_posts(page)
    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Begin with").select_option("")
    page.get_by_label("Name", exact=True).fill("from-the-form")
    page.get_by_label("Teacher", exact=True).fill("minilm")
    page.get_by_label("Episodes").fill("3")
    page.get_by_label("Search space").select_option("paper")
    page.get_by_label("Objective").select_option("minilmv2")
    page.get_by_label("Relation heads").fill("12")
    page.get_by_text("All other settings").click()
    page.locator("#form summary").get_by_text("Latency", exact=True).click()
    page.locator('[data-path="latency.threads"] input').fill("2")
    page.get_by_text("The request as JSON").click()
    assert json.loads(page.locator("#form pre").inner_text())["latency"] == {"threads": 2}
    page.get_by_role("button", name="Start the search").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("from-the-form")
    expect(page.locator("#summary .chip")).to_have_text("queued")

    with service.database.read() as session:
        stored = searches.get_search(session, "from-the-form")
    assert stored.owner_kind == "service"
    assert stored.spec["controller"]["episodes"] == 3
    assert stored.spec["controller"]["candidates"] == 20
    assert stored.spec["objective"]["name"] == "minilmv2"
    assert stored.spec["objective"]["relation_heads"] == 12
    assert stored.spec["latency"]["threads"] == 2
    assert stored.spec["space"]["kind"] == "paper"
    assert len(keys) == 1
    assert keys[0]
    page.go_back()
    expect(page.get_by_label("Relation heads")).to_have_value("12")
    assert json.loads(page.locator("#form pre").text_content() or "") == {
        "name": "from-the-form",
        "teacher": {"ref": "minilm"},
        "controller": {"episodes": 3},
        "space": {"kind": "paper"},
        "objective": {"name": "minilmv2", "relation_heads": 12},
        "latency": {"threads": 2},
    }
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, stored.id)


def test_a_goal_without_its_limit_is_told_at_the_limit(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("422")
    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Goal").select_option("limit")
    page.get_by_role("button", name="Start the search").click()
    ratio = page.locator('[data-path="limits.max_latency_ratio"]')
    expect(ratio.locator(".error")).to_contain_text(
        "Goal limit asks for the lowest loss within limits, and there is none"
    )
    expect(ratio.locator("input")).to_be_focused()


def test_rungs_are_asked_for_and_told_at_their_field(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("422")
    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Begin with").select_option("")
    page.get_by_text("The request as JSON").click()
    rungs, keep = (page.locator(f'[data-path="proxy.{name}"]') for name in ("rungs", "keep"))
    options = get_type_hints(search, include_extras=True)
    for field, name in ((rungs, "rungs"), (keep, "keep")):
        expect(field.locator(".help")).to_have_text(options[name].__metadata__[0].help)
    rungs.locator("textarea").fill("30, 120")
    keep.locator("input").fill("3")
    body = page.locator("#form pre")
    assert json.loads(body.inner_text()) == {"proxy": {"rungs": [30, 120], "keep": 3}}
    rungs.locator("textarea").fill("30\n1.5")
    page.get_by_role("button", name="Start the search").click()
    expect(rungs.locator(".error")).to_have_text("A whole number, not 1.5.")
    page.get_by_text("All other settings").click()
    page.get_by_text("Short training of a candidate").click()
    page.locator('[data-path="proxy.steps"] input').fill("120")
    for typed, said in (
        ("120,30", "give each rung once and in rising order, not [120, 30]"),
        ("30,120", "and [120] do not; give smaller ones"),
    ):
        rungs.locator("textarea").fill(typed)
        page.get_by_role("button", name="Start the search").click()
        expect(rungs.locator(".error")).to_contain_text(re.compile(re.escape(said), re.I))
        expect(rungs.locator("textarea")).to_be_focused()


def test_a_strategy_has_fields_of_its_own(page: Page, service: Service) -> None:
    def controller() -> object:
        return json.loads(page.locator("#form pre").inner_text()).get("controller")

    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Begin with").select_option("")
    page.get_by_text("The request as JSON").click()
    chooser = page.get_by_label("Strategy")
    expect(chooser.locator("option")).to_have_text(
        [
            "controller (default)",
            *(f"{name}: {kind.called}" for name, kind in STRATEGIES.items()),
            "a strategy of another package",
        ]
    )
    page.get_by_label("Variant").select_option("once")
    page.get_by_label("Decay of ε").fill("spread")
    asked = {"name": "controller", "variant": "once", "epsilon_decay": "spread"}
    assert controller() == {"strategy": asked}
    chooser.select_option("gp")
    page.get_by_label("Acquisition").select_option("thompson")
    assert controller() == {"strategy": {"name": "gp", "acquisition": "thompson"}}
    chooser.select_option("random")
    expect(page.locator('[data-path^="controller.strategy."]')).to_have_count(1)
    assert controller() == {"strategy": {"name": "random"}}


def test_a_strategy_of_ones_own_is_named_by_its_class(
    page: Page, make_service: MakeService, complaints: Complaints
) -> None:
    complaints.expected.append("422")
    here = make_service()
    here.start()
    page.goto(f"{here.url}/searches/new")
    page.get_by_label("Strategy").select_option(label="a strategy of another package")
    own = page.get_by_label("Its class")
    expect(own).to_have_attribute("placeholder", "package.module:Class")
    wrong = page.locator(".error:visible")
    for refused in ("mine", ""):
        own.fill(refused)
        page.get_by_role("button", name="Start the search").click()
        expect(own).to_be_focused()
        expect(wrong).to_have_text("One such as package.module:Class.")
    own.fill("controller.strategies:RandomStrategy")
    page.get_by_role("button", name="Start the search").click()
    expect(wrong).to_contain_text("KDNAS_ALLOW_CUSTOM_CODE=1")
    here.kill()
    here.environment["KDNAS_ALLOW_CUSTOM_CODE"] = "1"
    here.start()
    page.get_by_role("button", name="Start the search").click()
    expect(page.locator("#summary .chip")).to_have_text("queued")
    with here.database.read() as session:
        (stored,) = jobs.newest_jobs(session, Search)
        assert stored.spec["controller"]["strategy"] == {
            "name": "controller.strategies:RandomStrategy",
            "options": {},
        }
    page.go_back()
    expect(page.get_by_label("Its class")).to_have_value("controller.strategies:RandomStrategy")
    page.get_by_label("Strategy").select_option("random")
    expect(page.get_by_label("Its class")).to_have_count(0)
    page.goto("about:blank")
    here.kill()


def test_a_search_begins_with_a_preset(page: Page, service: Service) -> None:
    def body() -> Any:
        return json.loads(page.locator("#form pre").text_content() or "")

    page.goto(f"{service.url}/searches/new")
    begin = page.get_by_label("Begin with")
    expect(begin.locator("option")).to_have_text(
        ["the defaults", "the preset cluster", "the preset laptop", "the preset paper"]
    )
    assert page.locator("main select").first.get_attribute("id") == "preset"
    expect(begin).to_have_value("laptop")  # as the command line
    expect(page.get_by_label("Goal")).to_have_value("front")
    expect(page.get_by_label("Strategy")).to_have_value("gp")
    expect(page.get_by_label("Episodes")).to_have_value("4")
    asked = SearchSpec.model_validate(body()).model_dump(exclude_unset=True)
    laptop = SearchSpec.read(load_preset("laptop", "search", "hs"), "laptop")
    assert asked == laptop.model_dump(exclude_unset=True) | {
        "objective": asked["objective"],
        "space": asked["space"],
    }
    rate = page.locator('[data-path="proxy.learning_rate"] input')
    expect(rate).to_have_value("0.001")
    page.get_by_label("Objective").select_option("od")  # whose rate is another one
    expect(rate).not_to_have_value("0.001")
    page.get_by_label("Objective").select_option("")
    begin.select_option("paper")
    expect(page.get_by_label("Goal")).to_have_value("")
    expect(page.get_by_label("Strategy")).to_have_value("controller")
    expect(page.get_by_label("Variant")).to_have_value("paper")
    expect(page.get_by_label("Search space")).to_have_value("paper")
    page.get_by_label("Name", exact=True).fill("as-published")
    page.get_by_role("button", name="Start the search").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("as-published")
    with service.database.read() as session:
        stored = searches.get_search(session, "as-published")
    paper = SearchSpec.read(load_preset("paper", "search", "hs"), "paper")
    assert SearchSpec.read(stored.spec, "it") == paper.model_copy(update={"name": "as-published"})
    page.go_back()
    expect(begin).to_have_value("paper")
    begin.select_option("")
    expect(page.get_by_label("Search space")).to_have_value("")
    assert body() == {"name": "as-published"}
    page.goto("about:blank")
    with service.database.write() as session:
        jobs.delete_job(session, stored.id)


def test_what_is_typed_takes_the_place_of_what_a_preset_wrote_to_the_same_end(
    page: Page, service: Service
) -> None:
    """As on the command line: steps, if there are any, win over passes."""

    def body() -> Any:
        return json.loads(page.locator("#form pre").text_content() or "")

    page.goto(f"{service.url}/searches/new")
    steps = page.locator('[data-path="proxy.steps"] input')
    expect(steps).to_have_value("60")
    passes = page.locator('[data-path="proxy.epochs"] input')
    passes.fill("8")
    passes.blur()
    expect(steps).to_have_value("")
    assert body()["proxy"]["epochs"] == 8
    assert "steps" not in body()["proxy"]
    page.get_by_label("Begin with").select_option("paper")
    price = page.locator('[data-path="reward.latency_price"] input')
    alpha = page.locator('[data-path="reward.alpha"] input')
    expect(alpha).not_to_have_value("")
    price.fill("0.1")
    price.blur()
    expect(alpha).to_have_value("")
    assert body()["reward"]["latency_price"] == 0.1


def test_what_was_typed_stays_where_the_objective_changes(page: Page, service: Service) -> None:
    def body() -> Any:
        return json.loads(page.locator("#form pre").text_content() or "")

    page.goto(f"{service.url}/searches/new")
    begin, objective = page.get_by_label("Begin with"), page.get_by_label("Objective")
    episodes, strategy = page.get_by_label("Episodes"), page.get_by_label("Strategy")
    rate = page.locator('[data-path="proxy.learning_rate"] input')
    expect(rate).to_have_value("0.001")
    page.get_by_label("Name", exact=True).fill("typed")
    episodes.fill("7")
    strategy.select_option("evolution")
    objective.select_option("od")
    expect(rate).to_have_value("0.0002")
    page.reload()
    expect(rate).to_have_value("0.0002")
    page.get_by_text("All other settings").click()
    page.get_by_text("Short training of a candidate").click()
    rate.fill("0.0003")
    objective.select_option("hs")
    weight = page.locator('[data-path="objective.last_weight"] input')
    expect(weight).to_have_value("3")
    asked = body()
    assert (asked["name"], asked["goal"]) == ("typed", "front")
    assert asked["controller"]["episodes"] == 7
    assert asked["controller"]["strategy"] == {"name": "evolution"}
    assert asked["proxy"]["learning_rate"] == 0.0003
    begin.select_option("")
    expect(page.get_by_label("Goal")).to_have_value("")
    assert body() == {
        "name": "typed",
        "controller": {"episodes": 7, "strategy": {"name": "evolution"}},
        "objective": {"name": "hs"},
        "proxy": {"learning_rate": 0.0003},
    }
    begin.select_option("paper")  # who chooses one wants what it says
    expect(episodes).to_have_value("15")
    expect(strategy).to_have_value("controller")
    assert body()["name"] == "typed"


def test_an_objective_has_fields_of_its_own(page: Page, service: Service) -> None:
    def objective() -> object:
        return json.loads(page.locator("#form pre").inner_text()).get("objective")

    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Begin with").select_option("")
    page.get_by_text("The request as JSON").click()
    assert objective() is None
    chooser = page.get_by_label("Objective")
    expect(chooser.locator("option")).to_have_text(
        ["hs (default)", *(f"{name}: {kind.called}" for name, kind in OBJECTIVES.items())]
    )
    page.get_by_label("Layer mapping").select_option("uniform")
    assert objective() == {"name": "hs", "mapping": "uniform"}
    chooser.select_option("od")
    expect(page.get_by_text("Where the loss is taken: masked tokens, or all.")).to_be_visible()
    expect(page.locator('[data-path="objective.lm_head"]')).to_have_count(0)  # nobody fills it in
    expect(page.get_by_label("Layer mapping")).to_have_count(0)
    page.get_by_label("Fit a masked-LM head").fill("200")
    page.get_by_label("Positions").select_option("all")
    assert objective() == {"name": "od", "fit_lm_head": 200, "positions": "all"}
    page.get_by_label("Objective").select_option("minilmv2")
    page.get_by_label("Teacher layer").fill("search")
    page.get_by_label("Relations", exact=True).fill("qq\nvv")
    assert objective() == {"name": "minilmv2", "relations": ["qq", "vv"], "teacher_layer": "search"}


def test_what_the_service_refuses_is_shown_at_its_field(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("422")
    keys = keys_of_posts(page)
    page.goto(f"{service.url}/searches/new")
    page.get_by_label("Teacher", exact=True).fill("/etc/no-such-teacher")
    page.get_by_role("button", name="Start the search").click()
    problem = page.locator('[data-path="teacher.ref"] .error, #form [role=alert]')
    expect(problem.locator("visible=true").first).to_contain_text("/etc/no-such-teacher")
    assert len(keys) == 1

    with page.expect_response(lambda answer: answer.request.method == "POST"):
        # The same again: the same key.
        page.get_by_role("button", name="Start the search").click()
    page.get_by_label("Episodes").fill("2")
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.get_by_role("button", name="Start the search").click()
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]


def test_a_taken_name_is_said(page: Page, service: Service, complaints: Complaints) -> None:
    complaints.expected.append("409")
    page.goto(f"{service.url}/searches/new")
    name = page.get_by_label("Name", exact=True)
    name.fill("under-8-ms")
    page.get_by_role("button", name="Start the search").click()
    expect(page.locator('[data-path="name"] .error')).to_contain_text("under-8-ms")
    expect(name).to_be_focused()


def test_the_distil_button_leads_to_a_queued_distillation(
    page: Page, service: Service, ids: DemoIds
) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    row = page.locator("#candidates tbody tr").first.get_by_role("button")
    architecture = row.inner_text()
    row.click()
    page.locator("#panel").get_by_role("link", name="Distil").click()
    expect(page.get_by_label("Architecture")).to_have_value(architecture)
    page.get_by_label("Name", exact=True).fill("the-winner")
    page.get_by_label("Steps", exact=True).fill("500")
    page.get_by_role("button", name="Start the distillation").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("the-winner")
    expect(page.locator("#summary .chip")).to_have_text("queued")
    with service.database.read() as session:
        stored = distillations.get_distillation(session, "the-winner")
    assert str(stored.architecture) == architecture
    assert stored.spec["teacher"]["ref"] == "bert-base-uncased"
    assert stored.spec["training"]["steps"] == 500


def test_a_latency_table_is_asked_for_and_watched(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/latency")
    page.get_by_role("link", name="Measure a table").click()
    page.get_by_label("Teacher", exact=True).fill("minilm")
    page.get_by_label("Length").fill("16")
    page.get_by_role("button", name="Measure").click()
    builds = page.locator("#builds")
    expect(builds.get_by_role("row")).to_have_count(2)
    expect(builds).to_contain_text("minilm")
    expect(builds.locator(".chip")).to_have_text("queued")

    with service.database.read() as session:
        (made,) = job_pages.list_jobs(session, {}, latency_pages.BUILDS).items
        (build,) = job_pages.read_in_full(session, [made["id"]], latency_pages.BUILDS)
    assert build["spec"]["latency"]["length"] == 16
    with service.database.write() as session:
        jobs.note_progress(session, build["id"], 40, 100)
    expect(builds.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    with service.database.write() as session:
        jobs.set_status(session, build["id"], "failed", "the machine is too busy")
    expect(builds).to_contain_text("the machine is too busy")
    builds.get_by_role("button", name="Resume").click()
    expect(builds.locator(".chip")).to_have_text("queued")
    builds.get_by_role("button", name="Cancel").click()
    builds.get_by_role("button", name="Cancel for good?").click()
    expect(builds).to_be_hidden()
    with service.database.read() as session:
        assert jobs.get_job(session, build["id"], LatencyBuild).status == "cancelled"


@pytest.mark.parametrize(
    ("path", "typed", "folded", "said"),
    [
        (
            "/searches/new",
            {
                "name": "Größe-測試-1",
                "corpus.source": "/nowhere/a.txt",
                "backend.gpu_fraction": "0.3",
            },
            "backend.gpu_fraction",
            "1/n",
        ),
        (
            "/distillations/new",
            {"architecture": "4,12,576,768", "training.accumulate": "64"},
            "training.accumulate",
            "above batch_size",
        ),
        (
            "/evaluations/new",
            {"model.ref": "/nowhere/model", "stride": "9000"},
            "stride",
            "8192",
        ),
        (
            "/pipelines/new",
            {
                "search.teacher.ref": "/nowhere",
                "evaluation.max_steps": "2",
                "search.backend.gpu_fraction": "0.3",
            },
            "search.backend.gpu_fraction",
            "1/n",
        ),
        (
            "/task-distillations/new",
            {"task": "RTE", "grid.betas": "0.1\n0.1"},
            "grid.betas",
            "must differ",
        ),
    ],
)
def test_each_form_unfolds_and_marks_the_fields_that_the_service_refuses(
    page: Page,
    service: Service,
    complaints: Complaints,
    path: str,
    typed: dict[str, str],
    folded: str,
    said: str,
) -> None:
    complaints.expected.append("422")
    page.goto(f"{service.url}{path}")
    expect(page.locator(".submit button")).to_be_enabled()
    page.wait_for_timeout(500)  # the fields of alternatives come after the form
    for name, value in typed.items():
        page.evaluate(
            "([name, value]) => {"
            "  const field = document.getElementById('form').elements.namedItem(name);"
            "  field.value = value;"
            "  field.dispatchEvent(new Event('input', { bubbles: true }));"
            "}",
            [name, value],
        )
    page.locator(".submit button").click()
    wrong = page.locator(f'[data-path="{folded}"] .error')
    expect(wrong).to_be_visible()
    expect(wrong).to_contain_text(re.compile(re.escape(said), re.I))
    marked = page.locator("[data-wrong]")
    expect(marked.first.locator("input, select, textarea")).to_be_focused()
