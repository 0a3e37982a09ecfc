"""What the pages show of a database that looks used."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright", reason="the browser tests need the package playwright")

if TYPE_CHECKING:
    from conftest import Complaints, OpenPage, Service
    from playwright.sync_api import Page, Route


from playwright.sync_api import expect
from scipy.stats import spearmanr

from kdnas.db.journal import DatabaseJournal
from kdnas.db.repository import jobs, searches, sweeps
from kdnas.db.repository.events import append_event
from kdnas.records import Losses, Reading, SearchFacts
from kdnas.search_space import SearchSpace
from kdnas.specs.search import SearchSpec
from kdnas.specs.sweep import SweepSpec
from kdnas.testing import demo_data
from kdnas.testing.journal_contract import new_candidates, result_of

pytestmark = pytest.mark.browser

PAGES = [
    "/searches",
    "/searches/new",
    "/searches/distil-bert-week-09",
    "/pipelines",
    "/pipelines/new",
    "/compare?search=distil-bert-week-09&search=random-baseline",
    "/distillations",
    "/distillations/new",
    "/distillations/student-8-ms",
    "/task-distillations",
    "/task-distillations/new",
    "/task-distillations/rte-students",
    "/evaluations",
    "/evaluations/new",
    "/latency",
    "/sweeps/starts-of-240",
]
GOES_BY = {
    "reward": ("reward", "best reward so far"),
    "limit": ("loss", "lowest loss so far, within the limits"),
    "front": ("hypervolume", "hypervolume so far"),
}
CHARTS = ["episodes", "tradeoff", "predicted", "coverage", "parallel"]


def column(page: Page, table: str, number: int) -> list[str]:
    return page.locator(f"{table} tbody tr td:nth-child({number})").all_inner_texts()


def drawn(page: Page, *ids: str) -> None:
    """Wait until these charts are there."""
    for name in ids:
        expect(page.locator(f"#{name}[data-drawn]")).to_be_visible()


@pytest.mark.parametrize(
    "kind",
    ["jobs", "searches", "sweeps", "pipelines", "distillations", "task-distillations"],
)
def test_what_there_is_not_is_told_and_nothing_else(
    page: Page, service: Service, complaints: Complaints, kind: str
) -> None:
    complaints.expected.append("404")
    page.goto(f"{service.url}/{kind}/nowhere")
    expect(page.locator("#problem")).to_contain_text("there is no ")
    page.wait_for_timeout(3000)  # the stream of its events is asked for again after two seconds
    expect(page.locator("#banner")).to_be_hidden()
    assert len(complaints.said) < 6


def test_a_sweep_shows_what_it_has_read(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/jobs?kind=sweep")
    page.get_by_role("link", name="starts-of-240").click()
    drawn(page, "tradeoff", "foretold")
    expect(page.locator("#summary")).to_contain_text("240 of 240 states")
    read = [state for number, state in enumerate(SearchSpace.paper().states) if number % 10 == 0]
    teacher_ms = demo_data.latency_ms(demo_data.TEACHER)
    fast = [state for state in read if demo_data.latency_ms(state) <= 0.4 * teacher_ms]
    best = min(fast, key=lambda state: demo_data.landscape(state).relative)
    row = page.locator("#readings tbody tr").nth(2)
    expect(row).to_contain_text("40 % of the teacher's")
    expect(row).to_contain_text(str(best))
    expect(row).to_contain_text(f"{demo_data.landscape(best).relative:.3f}")
    expect(page.locator("#tradeoff [data-plot]")).to_have_attribute(
        "aria-label", re.compile(r"240 states by latency and loss after 60 steps")
    )
    page.locator("#readings [data-step]").select_option("0")
    expect(page.locator("#tradeoff [data-plot]")).to_have_attribute(
        "aria-label", re.compile(r"240 states by latency and loss at the start")
    )
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="CSV").click()
    file = downloaded.value
    assert file.suggested_filename.endswith(".csv")
    with file.path().open() as text:
        rows = list(csv.DictReader(text))
    start, end = ([float(row["loss"]) for row in rows if row["step"] == n] for n in ("0", "60"))
    assert len(start) == len(end) == 240
    order = f"Rank correlation with the last one {spearmanr(start, end).statistic:.3f}, over 240"
    expect(page.locator("#foretold [data-caption]")).to_contain_text(order)


def test_a_sweep_of_two_seeds_counts_its_states_once(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("409")  # it has no reading yet
    asked = SweepSpec.model_validate({"seeds": (0, 1), "states": 5}).to_json()
    with service.database.write() as session:
        made = sweeps.create_sweep(session, asked, name="two-seeds", owner_kind="service")
        jobs.set_status(session, made.id, "running")
        jobs.note_progress(session, made.id, 3, 10)
        jobs.set_status(session, made.id, "paused")
    page.goto(f"{service.url}/sweeps/{made.id}")
    expect(page.locator("#summary")).to_contain_text("3 of 10: 5 states under 2 seeds")
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, made.id)


def test_a_sweep_that_has_read_nothing_says_so(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("409")
    with service.database.write() as session:
        made = sweeps.create_sweep(
            session, SweepSpec().to_json(), name="just-asked-for", owner_kind="service"
        )
    page.goto(f"{service.url}/sweeps/{made.id}")
    expect(page.locator("#summary")).to_contain_text("Not begun yet")
    expect(page.locator("#readings")).to_contain_text("No state has been read yet.")
    expect(page.locator("#tradeoff")).to_contain_text("No state has been read yet.")
    expect(page.locator("#foretold")).to_contain_text("There is one reading of each state.")
    expect(page.get_by_role("link", name="CSV")).to_have_count(0)
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, made.id)


def test_the_list_shows_all_searches_and_filters_them(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(5)
    expect(page.get_by_role("link", name="under-8-ms")).to_be_visible()
    expect(rows.filter(has_text="under-8-ms")).to_contain_text("8 / 15 episodes")
    expect(rows.filter(has_text="distil-bert-week-09")).to_contain_text(re.compile(r"0\.\d{3}"))

    page.get_by_label("Status").select_option("failed")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("gpu-trial")
    page.get_by_label("Status").select_option("")
    page.get_by_label("Name", exact=True).fill("base")
    expect(rows).to_have_count(1)
    page.get_by_label("Name", exact=True).fill("nothing like it")
    expect(page.get_by_text("Nothing fits these filters.")).to_be_visible()


def test_a_filter_that_the_browser_brings_back_counts(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    rows = page.locator("#table tbody tr")
    page.get_by_label("Status").select_option("failed")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="gpu-trial").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("gpu-trial")
    page.go_back()
    expect(page.get_by_label("Status")).to_have_value("failed")
    expect(rows.first).to_contain_text("gpu-trial")
    expect(rows).to_have_count(1)


def test_the_list_is_sorted_by_name(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    button = page.get_by_role("button", name="Name")
    button.click()
    expect(page.locator("#table th[aria-sort=descending]")).to_have_text("Name")
    button.click()
    expect(page.locator("#table th[aria-sort=ascending]")).to_have_text("Name")
    expect(page.locator("#table tbody tr").first).to_contain_text("distil-bert-week-09")
    names = column(page, "#table", 2)
    assert names == sorted(names)


def test_two_ticked_searches_are_compared(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    compare = page.locator("#compare")
    expect(compare).to_have_attribute("aria-disabled", "true")
    page.get_by_label("Compare distil-bert-week-09").check()
    page.get_by_label("Compare random-baseline").check()
    page.get_by_role("link", name="Compare 2").click()
    drawn(page, "best", "fronts")
    expect(page.locator("#figures thead th")).to_have_text(
        ["distil-bert-week-09", "random-baseline"]
    )
    expect(page.locator("#best .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("#figures")).to_contain_text("Architectures explored")


def test_what_a_search_has_found_goes_by_its_goal(page: Page, service: Service) -> None:
    made = {
        goal: demo_data.add_search(
            service.database, f"of-{goal}", goal=goal, episodes=2, candidates_each=10
        )
        for goal in ("limit", "front")
    }
    page.goto(f"{service.url}/searches")
    rows = page.locator("#table tbody tr")
    expect(rows.filter(has_text="distil-bert-week-09")).to_contain_text(
        re.compile(r"0\.\d{3} reward")
    )
    expect(rows.filter(has_text="of-limit")).to_contain_text(re.compile(r"0\.\d{3} loss"))
    front = rows.filter(has_text="of-front")
    expect(front).to_contain_text(re.compile(r"\d\.\d{3} hypervolume"))
    assert front.locator("td").all_inner_texts()[5:7] == ["–", "–"]

    tiles = page.locator("#summary .tile dt")
    page.goto(f"{service.url}/searches/of-limit")
    expect(tiles).to_have_text(["Lowest loss", "Architecture", "Latency", "Explored", "Of these"])
    page.goto(f"{service.url}/searches/of-front")
    expect(tiles).to_have_text(
        ["Hypervolume", "On the front", "Lowest loss", "Latencies", "Explored", "Of these"]
    )
    covered = page.locator("#summary .tile dd").first.inner_text().split()[0]
    expect(page.locator("#ranking")).to_contain_text(f"Hypervolume {covered}: the share")
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    expect(tiles.first).to_have_text("Best reward")

    page.goto(f"{service.url}/compare?search=of-limit&search=of-front")
    found = page.locator("#figures tr", has_text="Found").locator("td")
    expect(found).to_have_text([re.compile(r"loss$"), re.compile(rf"^{covered} hypervolume$")])
    best = page.locator("#best")
    expect(best.locator(".empty")).to_have_text(
        "These searches have different goals (limit, front), and what each goes by cannot be put "
        "on one axis; their Pareto fronts can be compared."
    )
    drawn(page, "fronts")
    for goal, (word, axis) in GOES_BY.items():
        name = {"reward": "distil-bert-week-09"}.get(goal, f"of-{goal}")
        page.goto(f"{service.url}/compare?search={name}")
        drawn(page, "best")
        expect(best.locator(".ytitle")).to_have_text(axis)
        figures = best.locator("[data-plot]").evaluate("(plot) => [...plot.data[0].y]")
        steps = [after - before for before, after in itertools.pairwise(figures)]
        assert all(step <= 0 if goal == "limit" else step >= 0 for step in steps)
        expect(page.locator("#figures tr", has_text="Found")).to_contain_text(f"{figures[-1]:.3f}")

        page.goto(f"{service.url}/searches/{name}")
        drawn(page, "episodes")
        chart = page.locator("#episodes")
        expect(chart.get_by_role("heading")).to_have_text(f"{word.capitalize()} by episode")
        expect(chart.locator(".ytitle")).to_have_text(word)
        lines = chart.locator("[data-plot]").evaluate(
            "(plot) => Object.fromEntries(plot.data.map((t) => [t.name, [...t.y]]))"
        )
        assert lines.pop(axis if goal == "front" else "best so far") == figures
        assert lines.pop("ε")[0] == 1
        assert (lines == {}) == (goal == "front")  # no candidate alone has a hypervolume
        for mean, top in zip(lines.get("mean", []), lines.get("best", []), strict=True):
            assert mean > top if goal == "limit" else mean < top
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        for search_id in made.values():
            jobs.delete_job(session, search_id)


def test_what_searches_differ_in_is_named_where_they_are_compared(
    page: Page, service: Service
) -> None:
    plain = demo_data.spec("plain")
    plain["proxy"] |= {"steps": 60}
    plain["corpus"] |= {"fingerprint": "one"}
    other = demo_data.spec("other")
    other["proxy"] |= {"steps": 120, "learning_rate": 5e-4, "batch_size": 8, "rungs": [0, 30]}
    other["controller"]["strategy"] = {
        "name": "gp",
        "acquisition": "thompson",
        "confidence": 1,
    }
    other["corpus"] |= {"fingerprint": "two", "max_length": 64}
    other["student"] |= {"init": "random"}
    other["limits"] |= {"max_latency_ratio": 0.3}
    front = plain | {"name": "front", "goal": "front"}
    output = plain | {"name": "output", "reward": plain["reward"] | {"loss": "output"}}
    with service.database.write() as session:
        made = [
            searches.create_search(session, asked, name=asked["name"]).id
            for asked in (plain, other, front, output)
        ]
        facts = demo_data.search_facts()
        searches.set_search_facts(session, made[0], facts)
        searches.set_search_facts(session, made[1], replace(facts, latency_profile="another"))
    notice, figures = page.locator("#problem .notice"), page.locator("#figures tr")
    page.goto(f"{service.url}/compare?search=plain&search=other")
    expect(notice).to_have_text(
        "These searches differ in text, greatest length, steps, learning rate, batch size, start "
        "of students, limits and latency table, so what they have found does not mean the same."
    )
    for label, cells in {
        "Limits": ["–", "30 % of the teacher's latency"],
        "Strategy": ["controller", "gp"],
        "Its options": ["variant learning, confidence 1", "acquisition thompson"],
        "Steps of a training": ["60", "120"],
        "Rungs": ["–", "after 0, 30 steps, keep 5"],
        "Text": ["hub:wikimedia/wikipedia"] * 2,
        "Architectures of the space": ["2,400"] * 2,
        "Price of latency": [re.compile(r"\d")] * 2,
    }.items():
        expect(figures.filter(has_text=label).locator("td")).to_have_text(cells)
    page.goto(f"{service.url}/compare?search=front&search=plain")
    expect(notice).to_contain_text("differ in goal and reward, so")
    for label in ("Price of latency", "Target latency β"):
        cells = figures.filter(has_text=label).locator("td")
        expect(cells).to_have_text(["–", re.compile(r"\d")])
    page.goto(f"{service.url}/compare?search=plain&search=output")
    expect(page.locator("#fronts .empty")).to_have_text(
        "These searches go by different losses (relative, output), so that their Pareto fronts "
        "cannot be put on one axis."
    )
    expect(page.locator("#fronts [data-plot]")).not_to_have_attribute("role", "img")
    page.goto(f"{service.url}/compare?search=plain&search=plain")
    expect(figures.first).to_be_visible()
    expect(notice).to_have_count(0)
    page.goto("about:blank")
    with service.database.write() as session:
        for search_id in made:
            jobs.delete_job(session, search_id)


def test_the_words_of_a_search_fit_its_strategy_and_goal(page: Page, service: Service) -> None:
    made = [
        demo_data.add_search(
            service.database, f"by-{strategy}", strategy=strategy, goal=goal, episodes=2
        )
        for strategy, goal in (("random", "front"), ("controller", "reward"))
    ]
    caption, focus = page.locator("#episodes [data-caption]"), page.locator("#parallel select")
    best = page.locator("#parallel .path[data-best]")
    page.goto(f"{service.url}/searches/by-random")
    drawn(page, "episodes", "tradeoff", "parallel")
    expect(caption).to_have_text("As the search goes on.")
    expect(page.locator("#predicted .empty")).to_have_text(
        "The strategy random predicted nothing in this search."
    )
    expect(focus).to_have_value("pareto")
    expect(best).to_have_count(0)
    expect(page.locator("#parallel [data-caption]")).to_have_text("A line is an architecture.")
    tile = page.locator("#summary .tile", has_text="Latencies").locator("dd")
    expect(tile).to_have_text(
        re.compile(r"^(\d\.\d\d to \d\.\d\d|\d+\.\d to \d+\.\d) ms \d+\u00a0% to \d+\u00a0%")
    )
    front = page.locator("#tradeoff [data-plot]").evaluate("(plot) => plot.data.at(-1).marker")
    assert front["symbol"] == "circle-open"  # what lies below is seen

    page.goto(f"{service.url}/searches/by-controller")
    drawn(page, "episodes", "parallel")
    expect(caption).to_have_text("As the search goes on; ε is the share left to chance.")
    expect(focus).to_have_value("top")
    expect(best).to_have_count(1)
    page.goto("about:blank")
    with service.database.write() as session:
        for search_id in made:
            jobs.delete_job(session, search_id)


def test_a_strategy_is_named_however_it_was_asked_for(page: Page, service: Service) -> None:
    """Before strategies had options, a request held the name alone."""
    stored = demo_data.spec("by-its-name")
    stored["controller"] = {"strategy": "evolution", "variant": "once", "episodes": 2}
    with service.database.write() as session:
        old = searches.create_search(session, stored, name="by-its-name")
    page.goto(f"{service.url}/searches/by-its-name")
    expect(page.locator("#summary")).to_contain_text("strategy evolution ·")
    page.goto(f"{service.url}/compare?search=by-its-name&search=random-baseline")
    row = page.locator("#figures tr", has_text="Strategy")
    expect(row.locator("td")).to_have_text(["evolution", "random"])
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, old.id)


def test_a_search_shows_every_chart(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    expect(page.get_by_role("heading", level=1)).to_have_text("distil-bert-week-09")
    expect(page.locator("#summary")).to_contain_text("Episode 15 of 15")
    drawn(page, *CHARTS)
    expect(page.locator("#episodes .legend")).to_contain_text("controller picks")
    expect(page.locator("#episodes .legend")).to_contain_text("ε")
    expect(page.locator("#tradeoff .legend")).to_contain_text("Pareto front")
    assert page.locator("#tradeoff .points path").count() > 250
    expect(page.locator("#predicted")).to_contain_text("predicted relative loss")
    assert page.locator("#predicted .points path").count() > 200
    assert page.locator("#parallel .path").count() > 250
    assert page.locator("#parallel .path[data-best]").count() == 1
    cells = page.locator("#coverage td").all_inner_texts()
    assert len(cells) == 20
    assert sum(map(int, cells)) == 300
    page.locator("#coverage [data-across]").select_option("activation")
    assert len(page.locator("#coverage td").all_inner_texts()) == 12


def test_each_source_has_its_colour_in_every_chart_and_is_a_filter(
    page: Page, service: Service
) -> None:
    asked = demo_data.spec("sources", episodes=2, strategy="gp")
    first = [(n, ("size", "reading", "random")[n % 3], 0.8) for n in range(20, 29)]
    with service.database.write() as session:
        made = searches.create_search(session, asked, name="sources")
        jobs.set_status(session, made.id, "running")
    demo_data.add_episode(service.database, made.id, 1, first)
    demo_data.add_episode(service.database, made.id, 2, [(n, "gp", 0.8) for n in range(30, 34)])
    with service.database.write() as session:
        jobs.set_status(session, made.id, "succeeded")
    page.goto(f"{service.url}/searches/sources")
    drawn(page, "episodes", "tradeoff", "predicted")
    found: dict[str, set[str]] = {}
    for name in ("episodes", "tradeoff", "predicted"):
        traces = page.locator(f"#{name} [data-plot]").evaluate(
            "(plot) => plot.data.filter((t) => t.showlegend !== false)"
            ".map((t) => [t.name, t.marker?.color ?? t.line.color])"
        )
        for source, tint in traces:
            found.setdefault(source, set()).add(tint[:7])  # without its transparency
    sources = {"size picks", "reading picks", "random picks", "gp picks"}
    tints = [found.pop(source) for source in sorted(sources)]
    assert [len(one) for one in tints] == [1] * 4
    assert len(set.union(*tints)) == 4
    others = found["mean"] | found["best"] | found["best so far"]
    assert not others & set.union(*tints)

    chooser, rows = page.locator("#candidates [name=source]"), page.locator("#candidates tbody tr")
    expect(chooser.locator("option")).to_have_text(["all", "gp", "random", "reading", "size"])
    expect(rows).to_have_count(13)
    chooser.select_option("size")
    expect(rows).to_have_count(3)
    expect(rows.locator("td:last-child")).to_have_text(["size"] * 3)
    chooser.select_option("reading")
    demo_data.add_episode(service.database, made.id, 3, [(40, "reading", 0.8), (41, "mine", 0.8)])
    expect(chooser.locator("option").last).to_have_text("mine")
    expect(rows).to_have_count(4)
    expect(chooser).to_have_value("reading")  # what was chosen stays as others come
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, made.id)


def test_a_search_says_how_sure_it_is(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    sure = page.locator("#sureness")
    expect(sure.locator("[data-drawn]")).to_have_count(3, timeout=120_000)  # models are fitted
    expect(sure).to_contain_text(re.compile(r"standard deviation of 0\.\d{4} \(\d+ degrees"))
    expect(sure).to_contain_text("would have found a best reward of")
    expect(sure.locator("[data-chart=axes] .legend")).to_contain_text("reward")
    expect(page.locator("#tradeoff .legend")).to_contain_text("Pareto front ± noise")
    expect(page.locator("#tradeoff .errorbar").first).to_be_visible()
    marked = page.locator("#ranking tbody tr", has_text="≈ 1")
    expect(marked.first).to_be_visible()
    assert page.locator("#ranking tbody tr").first.inner_text().count("≈") == 0
    rows = page.locator("#candidates tbody tr")
    expect(rows.filter(has_text="≈ best").first).to_be_visible()
    expect(rows.first).not_to_contain_text("≈")  # the best itself, by which they are sorted
    expect(page.locator("#candidates [data-noted]")).to_have_text(
        "≈ best: noise between seeds cannot tell it from the best."
    )

    page.goto(f"{service.url}/searches/gpu-trial")
    expect(page.locator("#sureness")).to_contain_text("no state was trained with two seeds")


def test_what_noise_cannot_tell_from_the_front_is_marked(page: Page, service: Service) -> None:
    made = demo_data.add_search(service.database, "far", episodes=4, goal="front")
    page.goto(f"{service.url}/searches/far")
    expect(page.locator("#sureness")).to_contain_text(
        re.compile(r"cannot tell \d+ other states? from those of the front"), timeout=120_000
    )
    expect(page.locator("#tradeoff .legend")).to_contain_text("≈ front")
    rows = page.locator("#candidates tbody tr")
    expect(rows.filter(has_text="≈ front").first).to_be_visible()
    expect(page.locator("#candidates [data-noted]")).to_contain_text("those of the Pareto front")
    page.goto("about:blank")  # or it would go on reading what is gone
    with service.database.write() as session:
        jobs.delete_job(session, made)


def test_a_running_search_says_how_far_it_is_and_when_it_ends(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/under-8-ms")
    expect(page.locator("#summary .chip")).to_have_text("running")
    expect(page.locator("#summary")).to_contain_text("Episode 9 of 15 · 171 of 300 candidates")
    # Nobody works on it, so that no time is promised.
    expect(page.locator("[data-standing]")).to_contain_text(
        re.compile(r"^its process is gone; no coordinator looks after the queue · for \d+")
    )
    assert page.get_by_role("button", name="Pause").is_enabled()
    assert page.get_by_role("button", name="Cancel").is_enabled()
    assert page.get_by_role("button", name="Resume").count() == 0


def test_the_sliders_change_the_order(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    rows = page.locator("#ranking tbody tr")
    expect(rows).to_have_count(15)
    before = column(page, "#ranking", 3)
    alpha = page.locator("#ranking [data-alpha]")
    assert float(alpha.input_value()) == pytest.approx(-0.15, abs=0.01)

    alpha.fill("-1.2")  # latency counts for almost everything
    expect(rows.first.locator("td").nth(1)).not_to_have_text("1 =")
    fast = column(page, "#ranking", 3)
    assert fast != before
    alpha.fill("0")  # only the loss counts
    expect(page.locator("[data-alpha-out]")).to_have_text("0.00")
    expect(rows.first.locator("td").nth(2)).not_to_have_text(fast[0])
    losses = [float(text) for text in column(page, "#ranking", 6)]
    assert losses == sorted(losses)

    page.get_by_role("button", name="Back to the search's own").click()
    expect(rows.first.locator("td").nth(1)).to_have_text("1 =")
    assert column(page, "#ranking", 3) == before


def test_states_are_ranked_by_another_goal(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    ranking, rows = page.locator("#ranking"), page.locator("#ranking tbody tr")
    goal, alpha = ranking.get_by_role("combobox", name="Goal"), ranking.locator("[data-alpha]")
    expect(rows).to_have_count(15)
    expect(goal).to_have_value("reward")
    before = column(page, "#ranking", 3)

    goal.select_option("limit")
    expect(ranking.get_by_text("that are fast enough")).to_be_visible()
    expect(alpha).to_be_hidden()
    expect(ranking.locator("[data-max-latency-ratio-out]")).to_have_text("any")
    lowest = column(page, "#ranking", 3)[0]  # it is slow
    ranking.locator("[data-max-latency-ratio]").fill("0.3")
    expect(ranking.locator("[data-max-latency-ratio-out]")).to_have_text("30 %")
    expect(rows.first).not_to_contain_text(lowest)
    losses = [float(text) for text in column(page, "#ranking", 4)]
    assert losses == sorted(losses)
    assert all(float(share.removesuffix("%")) <= 30 for share in column(page, "#ranking", 7))
    ranking.locator("[data-max-latency-ratio]").fill("0.02")
    expect(ranking.locator(".empty")).to_have_text("Nothing that was explored is so fast.")

    goal.select_option("front")
    expect(ranking.get_by_text("Hypervolume ", exact=False).first).to_be_visible()
    expect(ranking.locator("input[type=range]:visible")).to_have_count(0)
    losses = [float(text) for text in column(page, "#ranking", 2)]
    assert losses == sorted(losses, reverse=True)
    latencies = [float(text.removesuffix(" ms")) for text in column(page, "#ranking", 4)]
    assert latencies == sorted(latencies)

    ranking.get_by_role("button", name="Back to the search's own").click()
    expect(alpha).to_be_visible()
    expect(rows.first.locator("td").nth(1)).to_have_text("1 =")
    assert column(page, "#ranking", 3) == before


def test_the_sliders_follow_the_keyboard(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    beta = page.locator("#ranking [data-beta]")
    expect(beta).to_be_enabled()
    beta.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-beta-out]")).to_have_text("0.61")


def test_candidates_are_sorted_filtered_and_paged(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    rows = page.locator("#candidates tbody tr")
    expect(rows).to_have_count(25)
    rewards = [float(text) for text in column(page, "#candidates", 3)]
    assert rewards == sorted(rewards, reverse=True)
    marked = rows.filter(has_text="≈ best").first  # after they are shown
    expect(marked).to_be_visible(timeout=120_000)
    first = column(page, "#candidates", 1)

    page.locator("#candidates").get_by_role("button", name="Next").click()
    expect(page.get_by_text("Rows 26 to 50")).to_be_visible()
    second = column(page, "#candidates", 1)
    assert not set(first) & set(second)
    page.locator("#candidates").get_by_role("button", name="Previous").click()
    expect(page.locator("#candidates").get_by_text("Rows 1 to 25")).to_be_visible()
    assert column(page, "#candidates", 1) == first

    page.locator("#candidates").get_by_role("button", name="Latency").click()
    page.locator("#candidates").get_by_role("button", name="Latency").click()
    expect(page.locator("#candidates th[aria-sort=ascending]")).to_have_text("Latency")
    expect(rows.first).not_to_contain_text(first[0])
    latencies = [float(text.removesuffix(" ms")) for text in column(page, "#candidates", 8)]
    assert latencies == sorted(latencies)

    head = page.locator("#candidates th").filter(has_text="Start")
    expect(head).to_have_attribute("title", "held-out relative loss before the first step")
    head.get_by_role("button").click()
    expect(page.locator("#candidates th[aria-sort=descending]")).to_have_text("Start")
    starts = [float(text) for text in column(page, "#candidates", 7)]
    assert starts == sorted(starts, reverse=True)
    assert all(0 < start < 1 for start in starts)

    page.locator("#candidates [name=source]").select_option("controller")
    expect(rows.locator("td:last-child").filter(has_text="random")).to_have_count(0)
    page.locator("#candidates [name=activation]").select_option("silu")
    page.locator("#candidates [name=max_latency_ms]").fill("4")
    expect(rows.filter(has_not_text="silu")).to_have_count(0)
    expect(rows.first).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(25)


def test_a_page_of_rows_is_turned_once_however_often_next_is_pressed(
    page: Page, service: Service
) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    following = page.locator("#candidates").get_by_role("button", name="Next")
    expect(following).to_be_visible()
    following.evaluate("(button) => { button.click(); button.click(); }")
    expect(page.get_by_text("Rows 26 to 50")).to_be_visible()
    following.evaluate(  # the sorting is on its way when the old page's button is pressed
        """(button) => {
          document.querySelector("#candidates [data-key=sort-latency_ms]").click();
          button.click();
        }"""
    )
    expect(page.locator("#candidates").get_by_text("Rows 1 to 25")).to_be_visible()
    expect(page.locator("#candidates th[aria-sort]")).to_have_text("Latency")


def test_what_preparing_a_search_found_amiss_is_seen(page: Page, service: Service) -> None:
    text = "reward.loss mean cannot rank students of different depth"
    with service.database.write() as session:
        search = searches.get_search(session, "distil-bert-week-09")
        facts = SearchFacts({}, {}, {}, 1, None, "p", "f", "t", 10.0, [text])
        searches.set_search_facts(session, search.id, facts)
        append_event(session, "search_warning", {"text": text}, job_id=search.id)
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    expect(page.locator("#summary .notice.warn")).to_have_text(text)
    expect(page.locator("#log li").filter(has_text=f"Warning: {text}")).to_have_count(1)


def test_a_chosen_point_is_shown_and_can_be_distilled(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    drawn(page, "tradeoff")
    plot = page.locator("#tradeoff [data-plot]")
    noted = page.locator("#tradeoff .legend")  # it is drawn once more when the noise is known
    expect(noted).to_contain_text("Pareto front ± noise", timeout=120_000)
    plot.scroll_into_view_if_needed()
    point = page.locator("#tradeoff .trace").last.locator(".point").nth(3).bounding_box()
    assert point is not None
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    expect(page.locator("#tradeoff .hoverlayer")).to_contain_text("reward")
    expect(page.locator("#tradeoff .hoverlayer")).to_contain_text(", at the start 0.")
    page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    panel = page.locator("#panel")
    expect(panel).to_contain_text("Relative loss")
    expect(panel).to_contain_text("Loss at the start")
    expect(panel).to_contain_text("ms (")
    architecture = panel.get_by_role("heading", level=2).inner_text()
    assert len(architecture.split(",")) == 5
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()

    page.get_by_role("button", name=column(page, "#candidates", 1)[0]).click()
    expect(panel.locator("[data-drawn] .scatterlayer")).to_be_visible()
    best = panel.get_by_role("heading", level=2).inner_text()
    panel.get_by_role("link", name="Distil").click()
    expect(page.get_by_label("Architecture")).to_have_value(best)
    expect(page.locator("#form .notice")).to_contain_text("distil-bert-week-09")


def test_a_late_answer_does_not_replace_what_was_chosen_since(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/distil-bert-week-09")
    names = page.locator("#candidates tbody td:first-child button")
    first, second = names.nth(0).inner_text(), names.nth(1).inner_text()
    assert first != second
    held: list[Route] = []
    page.route("**/api/v1/candidates/*", lambda route: held.append(route), times=1)
    title = page.locator("#panel-title")
    names.nth(0).click()
    expect(title).to_have_text("Candidate")
    names.nth(1).click()
    expect(title).to_have_text(second)
    with page.expect_request_finished():
        held[0].continue_()
    page.wait_for_timeout(200)
    expect(title).to_have_text(second)


def test_a_distillation_shows_its_curves_and_where_the_student_is(
    page: Page, service: Service
) -> None:
    page.goto(f"{service.url}/distillations")
    expect(page.locator("#table tbody tr").filter(has_text="student-")).to_have_count(2)
    page.get_by_role("link", name="student-5-ms").click()
    expect(page.locator("#summary")).to_contain_text("/data/models/student-5-ms")
    drawn(page, "training", "held-out")
    expect(page.locator("#held-out .trace")).to_have_count(2)
    expect(page.locator("#spec")).to_contain_text("bert-base-uncased")


def test_the_latency_explorer_finds_an_architecture(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/latency")
    drawn(page, "spread", "by-layers")
    expect(page.locator("#facts")).to_contain_text("2,400")
    expect(page.locator("#by-layers .trace")).to_have_count(4)
    page.get_by_label("Find").fill("6,,576,1536,gelu")
    rows = page.locator("#entries tbody tr")
    expect(page.locator("#entries")).to_contain_text("5 fit")
    expect(rows).to_have_count(5)
    page.get_by_label("Find").fill("7")
    expect(page.get_by_text("No architecture of this table fits.")).to_be_visible()


def test_an_unknown_search_is_said_to_be_unknown(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("404")
    page.goto(f"{service.url}/searches/no-such-search")
    expect(page.get_by_role("alert")).to_contain_text("no-such-search")
    expect(page.locator("#charts")).to_be_hidden()


def test_a_queued_search_has_nothing_to_show_yet(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches/wide-students")
    expect(page.locator("#summary .chip")).to_have_text("queued")
    for chart in ("episodes", "tradeoff", "parallel", "candidates", "ranking"):
        expect(page.locator(f"#{chart} .empty")).to_be_visible()


def test_what_rungs_stopped_says_why_and_what_that_saved(page: Page, service: Service) -> None:
    journal = DatabaseJournal(service.database)
    with service.database.write() as session:
        spec = SearchSpec.read({"proxy": {"steps": 20, "rungs": [5]}}, "test").to_json()
        search_id = searches.create_search(session, spec, name="with-rungs").id
        jobs.set_status(session, search_id, "succeeded")
    whole, stopped = journal.begin_episode(
        search_id, 1, None, None, None, new_candidates()
    ).candidates
    journal.start_attempt([whole.id, stopped.id], "worker")
    reading = Reading(5, Losses(0.1, 0.2, 0.712, 0.4))
    done = replace(result_of(whole.id, whole.architecture), readings=(reading,))
    journal.finish_candidate(whole.id, "context", done, 0.5, None)
    ended = replace(
        result_of(stopped.id, stopped.architecture), losses=None, steps=5, readings=(reading,)
    )
    note = "stopped after 5 of 20 steps: a loss of 0.712 by then foretells 0.600"
    journal.finish_candidate(stopped.id, "context", ended, None, note)

    page.goto(f"{service.url}/searches/with-rungs")
    saved = page.locator(".tile").filter(has_text="Rungs saved")
    expect(saved).to_contain_text(re.compile("38\\s?% of the steps"))
    expect(page.locator(".tile").filter(has_text="Of these")).to_contain_text("1 stopped early")
    table = page.locator("#candidates")
    table.get_by_label("Status").select_option("stopped")
    row = table.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("[data-status=stopped]").locator("..")).to_have_attribute("title", note)
    row.get_by_role("button").click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text(note)
    expect(panel).to_contain_text(re.compile("Relative loss after 5 steps\\s*0.712"))
    with service.database.write() as session:
        jobs.delete_job(session, search_id)


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_a_phone(open_page: OpenPage, service: Service, path: str) -> None:
    page = open_page(width=390, height=844, scheme="dark")
    page.goto(service.url + path)
    page.wait_for_load_state("load")
    expect(page.locator("main .skeleton")).to_have_count(0, timeout=120_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_switch_between_light_and_dark_is_kept(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    page.evaluate("localStorage.clear()")


def test_the_keyboard_reaches_the_content_first(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/searches")
    expect(page.locator("#table tbody tr")).to_have_count(5)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    for first in ("Launch a pipeline", "Start a search"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name=first)).to_be_focused()


def test_a_page_that_is_not_there_is_a_page(
    page: Page, service: Service, complaints: Complaints
) -> None:
    complaints.expected.append("404")
    page.goto(f"{service.url}/nowhere")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    expect(page.locator("main code")).to_have_text("/nowhere")
    page.get_by_role("link", name="Searches").click()
    expect(page.locator("#table tbody tr")).to_have_count(5)


def test_on_a_phone_one_sees_where_one_is(open_page: OpenPage, service: Service) -> None:
    page = open_page(390, 844)
    for path, name in {"/searches": "Searches", "/latency": "Latency"}.items():
        page.goto(service.url + path)
        link = page.get_by_role("navigation", name="Main").get_by_role("link", name=name)
        expect(link).to_have_attribute("aria-current", "page")
        expect(link).to_be_in_viewport(ratio=1)


def test_a_long_name_leaves_the_other_columns_in_sight(
    open_page: OpenPage, service: Service
) -> None:
    with service.database.write() as session:
        name = "w" * 60
        search = searches.create_search(session, demo_data.spec(name), name=name)
    try:
        page = open_page()
        page.goto(f"{service.url}/searches")
        expect(page.get_by_role("link", name=name)).to_be_visible()
        expect(page.get_by_role("columnheader", name="Ended")).to_be_in_viewport(ratio=1)
    finally:
        with service.database.write() as session:
            jobs.delete_job(session, search.id)
