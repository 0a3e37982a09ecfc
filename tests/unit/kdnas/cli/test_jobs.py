"""`kdnas jobs` and the lists of single kinds, beside REST on the same database."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from api.http.app import create_app
from api.logs.job_log import JobLog
from kdnas.cli.main import app
from kdnas.cli.screens.event_words import OF_EVERY_KIND, SENTENCES, in_words
from kdnas.db.engine import Database
from kdnas.db.models import Job
from kdnas.db.queue import coordinators, leases
from kdnas.db.records import EventRecord
from kdnas.db.repository import events, jobs, searches, sweeps
from kdnas.errors import ConflictError, KdnasError, NotFoundError, RequestError, SpecError
from kdnas.records import MiniKDResult
from kdnas.settings import Settings
from kdnas.specs.sweep import SweepSpec
from kdnas.testing import demo_data, demo_pipelines
from kdnas.testing.benchmark_space import BENCHMARK_SPACE

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.databases("sqlite")
"""One test says that PostgreSQL does the same."""


@pytest.fixture
def settings(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database_url)
    monkeypatch.delenv("KDNAS_STORE", raising=False)
    return Settings.from_environment()


@pytest.fixture
def rest(settings: Settings, database: Database) -> Iterator[TestClient]:
    service = create_app(settings, database, coordinator=False)
    with TestClient(service, base_url="http://127.0.0.1:8000/api/v1") as client:
        yield client


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as somebody who follows a job waits for more of it."""
    waiting, sleep = threading.Event(), time.sleep

    def noted(seconds: float) -> None:
        waiting.set()
        sleep(seconds)

    monkeypatch.setattr("kdnas.cli.screens.following.time.sleep", noted)
    return waiting


def run(*arguments: str, code: int = 0, answer: str | None = None) -> str:
    result = CliRunner().invoke(app, arguments, input=answer, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def refused(*arguments: str, error: type[KdnasError] = ConflictError) -> str:
    """What the program says as it ends with code 2."""
    assert issubclass(error, RequestError)
    with pytest.raises(error) as caught:
        run(*arguments)
    return str(caught.value)


def add(database: Database, name: str, owner: str = "service") -> str:
    with database.write() as session:
        made = searches.create_search(session, demo_data.spec(name), name=name, owner_kind=owner)  # type: ignore[arg-type]
    return made.id


def set_status(database: Database, job_id: str, *statuses: str, error: str | None = None) -> None:
    with database.write() as session:
        for status in statuses:
            jobs.set_status(session, job_id, status, error if status == "failed" else None)  # type: ignore[arg-type]


def add_pipeline(database: Database) -> tuple[str, str]:
    """A failed pipeline with a part of each kind; returns its id and its search's."""
    search = demo_data.add_search(database, "first", episodes=1, candidates_each=8)
    made = demo_pipelines.add_pipeline(database, "week", search, failing=True)
    return made, search


def test_nothing_yet(settings: Settings, rest: TestClient) -> None:
    assert run("jobs", "list") == (
        "no job yet; start one with kdnas search, or ask the service for one\n"
    )
    assert json.loads(run("jobs", "list", "--json")) == []
    assert run("jobs", "list", "--status", "failed") == "no such job; kdnas jobs list shows all\n"


@pytest.mark.databases("sqlite", "postgresql")
def test_json_is_what_the_service_answers(
    settings: Settings, rest: TestClient, database: Database
) -> None:
    pipeline, search = add_pipeline(database)
    by_hand = add(database, "by-hand", "cli")
    set_status(database, by_hand, "running", "paused")
    with database.write() as session:
        jobs.set_labels(session, by_hand, ["paper"])
    for options, query in {
        (): "",
        ("--all", "--limit", "500"): "roots=false&limit=500",
        ("--kind", "search", "--kind", "pipeline"): "kind=search&kind=pipeline",
        ("--status", "failed", "--all"): "status=failed&roots=false",
        ("--label", "paper"): "label=paper",
        ("--name", "wee"): "name=wee",
        ("--parent", "week", "--limit", "9"): "parent=week&limit=9",
    }.items():
        printed = json.loads(run("jobs", "list", "--json", *options))
        assert printed == rest.get(f"/jobs?{query}").json()["items"], options
        assert printed, options
    for job_id in (pipeline, search, by_hand):
        assert (
            json.loads(run("jobs", "show", job_id, "--json")) == rest.get(f"/jobs/{job_id}").json()
        )
    distilled = rest.get("/distillations").json()["items"][0]["id"]
    for kind, one in {
        "searches": search,
        "distillations": distilled,
        "pipelines": pipeline,
    }.items():
        listed = rest.get(f"/{kind}", params={"limit": 20}).json()["items"]
        assert json.loads(run(kind, "list", "--json")) == listed
        assert json.loads(run(kind, "show", one, "--json")) == rest.get(f"/{kind}/{one}").json()
    curve = rest.get(f"/distillations/{distilled}/curve?limit=10000").json()
    assert json.loads(run("distillations", "losses", distilled)) == curve
    report = run("pipelines", "report", "week", "--format", "json")
    assert json.loads(report) == rest.get("/pipelines/week/report").json()
    queried = rest.get("/distillations?objective=hs&status=failed").json()["items"]
    assert queried == json.loads(
        run("distillations", "list", "--objective", "hs", "--status", "failed", "--json")
    )
    assert rest.get("/distillations?objective=od").json()["items"] == []


def test_a_line_each(settings: Settings, database: Database) -> None:
    pipeline, _ = add_pipeline(database)
    running = add(database, "under-8-ms")
    with database.write() as session:
        jobs.set_labels(session, running, ["paper", "rerun"])
        jobs.set_status(session, running, "running")
        owner = leases.LeaseOwner.of_this_process("service")
        leases.acquire(session, Job, running, owner, 60)
        jobs.note_phase(session, running, "training")
        jobs.note_progress(session, running, 171, 300)
    header, first, second = run("jobs", "list").splitlines()
    assert header.split() == ["name", "kind", "status", "done", "labels", "created", "id"]
    does = r"running: training, \d+ s +57 % +paper, rerun"
    assert re.fullmatch(rf"under-8-ms +search +{does} +\d+ s ago +{running}", first)
    does = r"failed \d+ s ago; (\d+) of \1 parts ended"
    assert re.fullmatch(rf"week +pipeline +{does} +\d+ \w+ ago +{pipeline}", second)
    assert "… the newest 3; more with --limit" in run("jobs", "list", "--all", "--limit", "3")


def test_a_line_says_what_failed_of_a_sweep(settings: Settings, database: Database) -> None:
    with database.write() as session:
        made = sweeps.create_sweep(session, SweepSpec().to_json(), name="swept")
        for index, error in enumerate((None, "out of memory")):
            found = MiniKDResult(str(index), BENCHMARK_SPACE[index], None, error, 60, 1.0)
            sweeps.add_state(session, made.id, 0, index, found, None)
        jobs.set_status(session, made.id, "running")
        jobs.note_progress(session, made.id, 2, 2)
        jobs.set_status(session, made.id, "succeeded")
    assert re.search(r"^swept +sweep .* 100 %, 1 failed  ", run("jobs", "list"), re.MULTILINE)


@pytest.mark.parametrize("columns", [60, 80, 100, 300])
def test_a_terminal_is_kept_to(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    made = add(database, "a-name-that-is-rather-long-and-longer")
    lines = run("jobs", "list").splitlines()
    assert made in lines[1]  # whole, to be copied
    assert columns < 80 or max(map(len, lines)) <= columns


def test_one_in_full(settings: Settings, database: Database) -> None:
    pipeline, search = add_pipeline(database)
    text = run("jobs", "show", "week")
    head, does, *_ = text.splitlines()
    assert head == f"pipeline 'week'  (id {pipeline})"
    assert re.fullmatch(r"failed \d+ s ago, \S+ \S+ UTC", does)
    for part in (
        "next         kdnas jobs resume week\n",
        "error        1 of 6 distillations failed",
        f"page         /pipelines/{pipeline}  in the dashboard",
        "started by   the service\n",
        "\n1 search: 1 succeeded\n",
        "\n12 distillations: 11 succeeded, 1 failed\n",
        "kdnas jobs list --parent week --kind evaluation --limit",
        "\nrequested\n  name: week\n",
    ):
        assert part in text
    assert "part of      pipeline 'week'  (id " in run("jobs", "show", search)
    assert re.search(r"^  week-\S+: RTE with seed 2 +failed", text, re.MULTILINE)
    parts = text.split("12 distillations")[1].splitlines()
    assert " failed " in parts[1]  # first what is not done, with the reason below
    assert parts[2] == "    the loss is not finite at step 500; use a lower learning rate"


def test_what_was_decided_is_told_from_what_was_asked_for(
    settings: Settings, database: Database
) -> None:
    made = add(database, "one")
    asked = demo_data.spec("one")
    with database.write() as session:
        resolved = {**asked, "proxy": {**asked["proxy"], "dtype": "bfloat16"}}
        jobs.resolve(session, made, resolved)
    text = run("jobs", "show", "one")
    assert text.endswith("\ndecided beside that\n  proxy: {dtype: bfloat16}\n")


@pytest.mark.parametrize(
    ("owner", "statuses", "way"),
    [
        ("cli", ["running", "paused"], "kdnas search --resume one"),
        ("cli", ["running"], "kdnas search --resume one"),
        ("service", ["running", "paused"], "kdnas jobs resume one"),
        ("service", [], "kdnas serve, whose coordinator takes it up"),
    ],
)
def test_the_way_on(
    settings: Settings, database: Database, owner: str, statuses: list[str], way: str
) -> None:
    set_status(database, add(database, "one", owner), *statuses)
    assert f"next         {way}\n" in run("jobs", "show", "one")


def test_pause_resume_and_cancel_say_who_works_on_it(
    settings: Settings, rest: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdnas.cli.screens.job_actions.WORDS_SECONDS", 0.2)
    made = add(database, "one")
    set_status(database, made, "running")
    owner = leases.LeaseOwner.of_this_process("service")
    with database.write() as session:
        leases.acquire(session, Job, made, owner, 60)
    stops = f"process {owner.pid} on \\S+, which works on it, stops within seconds"
    assert re.fullmatch(
        rf"paused search 'one'; {stops}; go on with: kdnas jobs resume one\n",
        run("jobs", "pause", "one"),
    )
    again = rest.patch(f"/jobs/{made}", json={"action": "pause"})
    assert refused("jobs", "pause", "one") == again.json()["detail"]
    assert run("jobs", "resume", made) == "resumed search 'one': at work\n"  # it goes on itself
    with database.write() as session:
        leases.release(session, Job, made, owner)
    run("jobs", "pause", "one")
    assert run("jobs", "resume", made) == (
        "resumed search 'one': no coordinator looks after the queue; start one with: kdnas serve\n"
    )
    with database.write() as session:
        leases.acquire(session, Job, made, owner, 60)
    with database.write() as session:
        coordinators.note_alive(session, owner, 1, 0)
    set_status(database, made, "failed", error="why")
    assert run("jobs", "resume", "one") == "resumed search 'one': waiting in the queue\n"
    again = rest.patch(f"/jobs/{made}", json={"action": "resume"})
    assert refused("jobs", "resume", "one") == again.json()["detail"]
    printed = json.loads(run("jobs", "cancel", "one", "--json"))
    assert printed == rest.get(f"/jobs/{made}").json()
    assert printed["status"] == "cancelled"
    again = rest.patch(f"/jobs/{made}", json={"action": "cancel"})
    assert refused("jobs", "cancel", "one") == again.json()["detail"]


def test_a_pause_says_which_trainings_it_waits_for_and_how_not_to(
    settings: Settings, rest: TestClient, database: Database
) -> None:
    made = add(database, "one")
    set_status(database, made, "running")
    with database.write() as session:
        leases.acquire(session, Job, made, leases.LeaseOwner.of_this_process("service"), 60)
    ending = "pausing: 2 students at step 310 of 600, about 4 minutes left"

    def at_work() -> None:  # it sees that it is to pause, and says what it waits for
        while jobs_status() != "paused":
            time.sleep(0.01)
        with database.write() as session:
            jobs.note_ending(session, made, ending, 310, 600)

    def jobs_status() -> str | None:
        with database.read() as session:
            return jobs.status_of(session, made)

    worker = threading.Thread(target=at_work)
    worker.start()
    said = run("jobs", "pause", "one")
    worker.join()
    assert said == (
        f"paused search 'one'; {ending}; at once, which loses their training, with: kdnas jobs "
        "pause --now one; go on with: kdnas jobs resume one\n"
    )
    assert rest.get(f"/jobs/{made}").json()["standing"] == ending
    assert ending in run("jobs", "show", "one")
    assert ending in run("jobs", "list")
    said = run("jobs", "pause", "--now", "one")
    assert "stops within seconds" in said
    assert "Now paused at once, by cli" in [
        text for event in events_of(database, made) if (text := in_words(event))
    ]
    again = rest.patch(f"/jobs/{made}", json={"action": "pause_now"})
    assert again.status_code == 409
    assert refused("jobs", "pause", "--now", "one") == again.json()["detail"]


def events_of(database: Database, job_id: str) -> list[EventRecord]:
    with database.read() as session:
        return events.events_since(session, job_id=job_id)


def test_what_the_command_line_started_is_resumed_there(
    settings: Settings, rest: TestClient, database: Database
) -> None:
    made = add(database, "one", "cli")
    set_status(database, made, "running", "paused")
    said = refused("jobs", "resume", "one")
    assert said.endswith("which resumes it with kdnas search --resume one")
    assert rest.patch(f"/jobs/{made}", json={"action": "resume"}).json()["detail"] == said


def test_cancelling_a_pipeline_cancels_its_parts(settings: Settings, database: Database) -> None:
    search = demo_data.add_search(database, "first", episodes=1, candidates_each=8)
    made = demo_pipelines.add_pipeline(database, "week", search, stage="distillation")
    assert run("jobs", "cancel", "week") == "cancelled pipeline 'week'\n"
    with database.read() as session:
        left = {one.status for one in jobs.children(session, made)}
    assert left <= {"succeeded", "cancelled"}
    assert "cancelled" in left


def test_deleting_asks_and_says_what_stands_on_it(
    settings: Settings, database: Database, rest: TestClient
) -> None:
    _, search = add_pipeline(database)
    asked = run("jobs", "delete", "first", answer="n\n", code=1)
    assert "pipeline 'week' stands on it, and is kept without it\n" in asked
    assert "Delete search 'first' for good?" in asked
    kept = rest.delete(f"/jobs/{search}")
    assert kept.status_code == 409
    assert refused("jobs", "delete", "first", "--yes") == kept.json()["detail"]
    run("jobs", "delete", "first", answer="", code=1)  # nobody there to answer
    assert rest.get(f"/jobs/{search}").status_code == 200
    assert run("jobs", "delete", "first", answer="y\n").endswith("deleted search 'first'\n")
    assert rest.get(f"/jobs/{search}").status_code == 404
    parts = len(rest.get("/jobs?parent=week&limit=500").json()["items"])
    assert f"its {parts} parts are kept\n" in run("jobs", "delete", "week", answer="n\n", code=1)


def test_deleting_by_scripts(settings: Settings, database: Database) -> None:
    made = add(database, "one")
    assert "add --yes" in refused("jobs", "delete", "one", "--json", error=SpecError)
    set_status(database, made, "running")
    assert refused("jobs", "delete", "one") == (
        "search 'one' is running; cancel it before deleting it"
    )
    set_status(database, made, "cancelled")
    assert json.loads(run("jobs", "delete", "one", "--yes", "--json")) == {
        **{"id": made, "kind": "search", "name": "one", "deleted": True}
    }
    add_pipeline(database)
    assert run("jobs", "delete", "first", "--yes", "--force") == "deleted search 'first'\n"


def test_names_labels_and_notes(settings: Settings, rest: TestClient, database: Database) -> None:
    made = add(database, "one")
    add(database, "taken")
    assert run("jobs", "rename", "one", "two") == "search 'one' is now 'two'\n"
    assert "already a search named 'taken'" in refused("jobs", "rename", "two", "taken")
    for wrong in ("-x y", "a" * 101):
        said = refused("jobs", "rename", "two", "--", wrong, error=SpecError)
        assert "jobs rename: name: " in said
        assert rest.patch(f"/jobs/{made}", json={"name": wrong}).status_code == 422
    assert run("jobs", "label", "two", "paper", "a/b", "paper") == (
        "labels of search 'two': paper, a/b\n"
    )
    assert run("jobs", "label", "two", "c") == "labels of search 'two': paper, a/b, c\n"
    assert run("jobs", "label", "two") == "labels of search 'two': paper, a/b, c\n"
    assert "did you mean 'paper'" in refused(
        "jobs", "label", "two", "--remove", "papr", error=NotFoundError
    )
    assert run("jobs", "label", "two", "--remove", "c") == "labels of search 'two': paper, a/b\n"
    assert "letters, digits and any of" in refused(
        "jobs", "label", "two", "no good", error=SpecError
    )
    many = [f"l{number}" for number in range(19)]
    assert "at most 20" in refused("jobs", "label", "two", *many, error=SpecError)
    printed = json.loads(run("jobs", "note", "two", "the good one", "--json"))
    assert (printed["note"], printed["labels"]) == ("the good one", ["paper", "a/b"])
    assert run("jobs", "note", "two", "") == "took away the note of search 'two'\n"
    assert rest.get(f"/jobs/{made}").json()["note"] is None
    assert run("jobs", "label", "two", "--remove") == "labels of search 'two': none\n"


def test_what_is_not_there_is_told_with_the_nearest(settings: Settings, database: Database) -> None:
    assert "give one with kdnas jobs label" in refused(
        "jobs", "list", "--label", "x", error=NotFoundError
    )
    with database.write() as session:
        made = searches.create_search(session, demo_data.spec("first"), name="first")
        jobs.set_labels(session, made.id, ["paper"])
    for arguments, error, said in (
        (("list", "--kind", "searches"), SpecError, "did you mean 'search'"),
        (("list", "--status", "runing"), SpecError, "did you mean 'running'"),
        (("list", "--label", "papers"), NotFoundError, "did you mean 'paper'?"),
        (("list", "--label", "x"), NotFoundError, "there are paper"),
        (("list", "--parent", "frist"), NotFoundError, "did you mean 'first'?"),
        *(
            ((command, "frist"), NotFoundError, "there is no job 'frist'; did you mean 'first'?")
            for command in ("show", "watch", "logs", "pause", "resume", "cancel", "delete")
        ),
    ):
        assert said in refused("jobs", *arguments, error=error)
    run("jobs", "list", "--limit", "0", code=2)


def test_watching_until_it_is_over(
    settings: Settings, database: Database, waits: threading.Event
) -> None:
    made = add(database, "one")
    set_status(database, made, "running")

    def later() -> None:
        waits.wait(60)
        with database.write() as session:
            jobs.note_phase(session, made, "training")
        set_status(database, made, "succeeded")

    lines = while_others(later, lambda: run("jobs", "watch", "one", "--tail", "1")).splitlines()
    words = [line[21:] for line in lines]
    assert words == ["Now running", "Now succeeded"]
    events = [json.loads(line) for line in run("jobs", "watch", made, "--json").splitlines()]
    assert [event["type"] for event in events] == ["search_created"] + 2 * ["search_status"]
    assert {event["job_id"] for event in events} == {made}


def test_watching_tells_of_parts_and_fails_with_them(
    settings: Settings, rest: TestClient, database: Database
) -> None:
    pipeline, _ = add_pipeline(database)
    text = run("jobs", "watch", "week", "--tail", "1000", code=1)
    assert re.search(r"  Distillation 'week-7': Now failed: the loss is not finite", text)
    assert re.search(r"  week-13: RTE, seed 2: now failed: out of memory", text)
    assert text.endswith(
        "The pipeline is failed: 1 of 6 distillations failed; resume the pipeline to try again\n"
    )
    assert run("jobs", "watch", pipeline, "--tail", "0", code=1) == ""


def test_a_job_that_is_deleted_while_it_is_watched(
    settings: Settings, database: Database, waits: threading.Event
) -> None:
    made = add(database, "one")

    def later() -> None:
        waits.wait(60)
        with database.write() as session:
            jobs.delete_job(session, made)

    while_others(later, lambda: run("jobs", "watch", "one", code=1))


@pytest.mark.parametrize(
    ("of", "words"), [("SENTENCES", SENTENCES), ("OF_EVERY_KIND", OF_EVERY_KIND)]
)
def test_events_have_words_where_the_dashboard_has_them(of: str, words: dict[str, object]) -> None:
    script = (ROOT / "api/dashboard/static/js/parts.js").read_text("utf-8")
    table = script.split(f"const {of} = {{")[1].split("\n};")[0]
    assert set(re.findall(r"^  (\w+): \(p\)", table, re.MULTILINE)) == set(words)


def test_logs(settings: Settings, database: Database, waits: threading.Event) -> None:
    made = add(database, "one")
    assert run("jobs", "logs", "one") == ""
    JobLog.of(settings, made).publish(b"first\nsecond\nthird\n")
    assert run("jobs", "logs", "one", "--tail", "2") == "second\nthird\n"
    by_hand = add(database, "by-hand", "cli")
    assert "keeps no log" in refused("jobs", "logs", by_hand, error=NotFoundError)

    def later() -> None:
        waits.wait(60)
        JobLog.of(settings, made).publish("first\nsecond\nthird\nfünfte\n".encode())
        set_status(database, made, "cancelled")

    followed = while_others(later, lambda: run("jobs", "logs", "one", "--follow", "--tail", "1"))
    assert followed == "third\nfünfte\n"


def while_others(others: Callable[[], None], do: Callable[[], str]) -> str:
    """Do something while others do theirs."""
    thread = threading.Thread(target=others)
    thread.start()
    try:
        return do()
    finally:
        thread.join()
