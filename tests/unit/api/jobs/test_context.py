"""What a job's work tells: its phase since when, how far it is, and what the user should know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from api.jobs import context as module
from api.jobs.context import JobContext, StoppedError, StoppedStatus
from kdnas.corpus.tokenized import CorpusProgress
from kdnas.db.engine import Database
from kdnas.db.lists import job_pages
from kdnas.db.models import Job, LatencyBuild
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import StopWish, apply_action
from kdnas.db.repository import events, jobs, searches
from kdnas.errors import ConflictError, TrainingError
from kdnas.records import AttemptStarted, GroupProgress
from kdnas.search.at_work import StudentsAtWork
from kdnas.settings import Settings


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        made = searches.create_search(session, {"seed": 3}, name="told", owner_kind="service")
        jobs.set_status(session, made.id, "running")
    return made.id


def context_of(
    database: Database,
    settings: Settings,
    job_id: str,
    *,
    is_lost: Callable[[], bool] = lambda: False,
    wish: Callable[[], StopWish | None] = lambda: None,
    should_stop: Callable[[], bool] = lambda: False,
    at_once: Callable[[], bool] = lambda: False,
    stopped_status: StoppedStatus = "paused",
) -> JobContext:
    with database.read() as session:
        return JobContext(
            jobs.get_job(session, job_id),
            database,
            settings,
            claimed=True,
            is_lost=is_lost,
            wish=wish,
            should_stop=should_stop,
            at_once=at_once,
            stopped_status=stopped_status,
        )


def read(database: Database, job_id: str) -> dict[str, Any]:
    with database.read() as session:
        (row,) = job_pages.read_in_full(session, [job_id])
        return row


def told(database: Database, job_id: str, type: str) -> list[dict[str, Any]]:
    with database.read() as session:
        found = events.events_since(session, job_id=job_id)
    return [dict(event.payload) for event in found if event.type == type]


def test_it_knows_its_job(database: Database, settings: Settings, job_id: str) -> None:
    context = context_of(database, settings, job_id)
    assert (context.id, context.kind, context.called) == (job_id, "search", "search 'told'")
    assert (context.spec, context.status) == ({"seed": 3}, "running")
    with database.write() as session:
        jobs.resolve(session, job_id, {"seed": 3, "backend": {"num_workers": 2}})
    again = context_of(database, settings, job_id)
    assert again.spec == {"seed": 3, "backend": {"num_workers": 2}}
    assert read(database, job_id)["requested"] == {"seed": 3}


def test_a_phase_is_stored_with_its_beginning(
    database: Database, settings: Settings, job_id: str, clock: Clock
) -> None:
    context = context_of(database, settings, job_id)
    before = datetime.now(UTC) - timedelta(seconds=1)
    context.latency(0.02, "1 of 50 blocks")
    first = read(database, job_id)
    assert first["phase"] == "latency table: 1 of 50 blocks"
    assert before < first["phase_since"] <= datetime.now(UTC)
    clock.now += 60
    context.latency(0.04, "2 of 50 blocks")  # the same phase: since when does not change
    second = read(database, job_id)
    assert second["phase"] == "latency table: 2 of 50 blocks"
    assert second["phase_since"] == first["phase_since"]
    context.phase("training")
    third = read(database, job_id)
    assert third["phase"] == "training"
    assert third["phase_since"] >= first["phase_since"]
    assert third["worked_seconds"] >= 0
    with database.write() as session:
        jobs.set_status(session, job_id, "paused")
    last = read(database, job_id)
    assert last["phase"] is None
    assert last["phase_since"] >= third["phase_since"]  # since when it is paused


def test_the_same_phase_is_told_about_once_a_second(
    database: Database, settings: Settings, job_id: str, clock: Clock
) -> None:
    context = context_of(database, settings, job_id)
    for step in range(1, 41):
        context.latency(step / 40, f"{step} of 40 blocks")
        clock.now += 1 / 16  # two and a half seconds for all
    context.objective("trying teacher layers", 1, 4)
    context.objective("trying teacher layers", 2, 4)
    clock.now += module.PHASE_SECONDS
    context.objective("trying teacher layers", 4, 4)
    context.objective("waiting for a measurement", 0, 0)
    assert told(database, job_id, "search_preparing") == [
        {"text": "latency table: 1 of 40 blocks", "share": 0.025},
        {"text": "latency table: 17 of 40 blocks", "share": 0.425},
        {"text": "latency table: 33 of 40 blocks", "share": 0.825},
        {"text": "trying teacher layers: step 1 of 4", "share": 0.25},
        {"text": "trying teacher layers: step 4 of 4", "share": 1.0},
        {"text": "waiting for a measurement", "share": None},
    ]


def test_preparing_an_objective_ends_when_it_is_to_stop(
    database: Database, settings: Settings, job_id: str
) -> None:
    context = context_of(database, settings, job_id, wish=lambda: "in good order")
    with pytest.raises(StoppedError):
        context.objective("waiting for a measurement", 0, 0)
    assert told(database, job_id, "search_preparing") == []


def test_tokenising_is_told_and_a_corpus_that_is_there_is_not(
    database: Database, settings: Settings, job_id: str
) -> None:
    context = context_of(database, settings, job_id)
    context.corpus(CorpusProgress("reused", 7, 900, 20, 20, 0.0))
    assert told(database, job_id, "search_preparing") == []
    context.corpus(CorpusProgress("tokenizing", 7, 900, 5, 20, 1.0))
    assert told(database, job_id, "search_preparing") == [
        {"text": "tokenising the corpus: 7 sequences", "share": 0.25}
    ]
    assert read(database, job_id)["phase"] == "tokenising the corpus: 7 sequences"


def test_a_phase_of_a_job_that_was_paused_meanwhile_is_not_stored(
    database: Database, settings: Settings, job_id: str
) -> None:
    context = context_of(database, settings, job_id)
    with database.write() as session:
        jobs.set_status(session, job_id, "paused")
    context.phase("training")
    assert read(database, job_id)["phase"] is None


def test_progress_is_stored_without_an_event(
    database: Database, settings: Settings, job_id: str
) -> None:
    with database.read() as session:
        before = events.last_event_id(session)
    context_of(database, settings, job_id).progress(3, 12)
    found = read(database, job_id)
    assert (found["done"], found["total"]) == (3, 12)
    assert found["remaining_seconds"] is None  # nobody holds it
    with database.read() as session:
        assert events.last_event_id(session) == before


def test_how_far_the_work_is_is_stored_about_once_a_second_without_an_event(
    database: Database, settings: Settings, job_id: str, clock: Clock
) -> None:
    context = context_of(database, settings, job_id)
    with database.read() as session:
        before = events.last_event_id(session)
    for step in range(1, 31):
        context.working(f"training: step {step} of 30", step, 30)
        clock.now += 1 / 16
    found = read(database, job_id)
    assert (found["phase"], found["done"]) == ("training: step 17 of 30", 17)
    with database.read() as session:
        assert events.last_event_id(session) == before


def test_an_event_has_its_kind_before_it(
    database: Database, settings: Settings, job_id: str
) -> None:
    context_of(database, settings, job_id).event("counted", {"number": 4})
    assert told(database, job_id, "search_counted") == [{"number": 4}]
    with database.write() as session:
        build = jobs.add_job(session, LatencyBuild, {}, stem="latency")
    context_of(database, settings, build.id).event("counted", {"number": 5})
    assert told(database, build.id, "latency_build_counted") == [{"number": 5}]


def test_a_warning_is_told_once_also_after_a_restart(
    database: Database, settings: Settings, job_id: str
) -> None:
    with database.write() as session:
        other = searches.create_search(session, {}, owner_kind="service").id
    for one, text in ((job_id, "one"), (job_id, "one"), (job_id, "two"), (other, "one")):
        context_of(database, settings, one).warn(text)
    assert told(database, job_id, "search_warning") == [{"text": "one"}, {"text": "two"}]
    assert told(database, other, "search_warning") == [{"text": "one"}]


@pytest.mark.parametrize(
    ("asked_by", "answer"),
    [("wish", "in good order"), ("wish", "at once"), ("should_stop", True)],
)
def test_check_breaks_off_where_work_is_to_stop(
    database: Database, settings: Settings, job_id: str, asked_by: str, answer: Any
) -> None:
    said = [None]
    context = context_of(database, settings, job_id, **{asked_by: lambda: said[-1]})
    context.check()
    said.append(answer)
    with pytest.raises(StoppedError):
        context.check()
    assert context.at_once() == (answer == "at once")
    said.append(None)  # resumed before it had stopped
    context.check()


def test_trainings_that_are_let_end_are_told_while_the_job_is_paused(
    database: Database, settings: Settings, job_id: str, clock: Clock
) -> None:
    with database.write() as session:
        leases.acquire(session, Job, job_id, LeaseOwner.of_this_process("service", "claim"), 60)
        apply_action(session, job_id, "pause")
    context = context_of(database, settings, job_id, wish=lambda: "in good order")
    at_work = StudentsAtWork(clock=lambda: clock.now)
    at_work.note(AttemptStarted(("a", "b"), "w"))
    for step in (300, 310):
        at_work.note(GroupProgress(("a", "b"), "w", step, 600))
        context.ending(at_work, step, 600)
        clock.now += 8
    found = read(database, job_id)
    assert found["status"] == "paused"
    assert found["standing"] == ("pausing: 2 students at step 310 of 600, about 4 minutes left")
    assert found["done"] == 310
    with database.write() as session:  # time goes by
        row = session.get_one(Job, job_id)
        row.phase_since = datetime.now(UTC) - timedelta(seconds=100)
        before = row.worked_seconds
    assert context.rest() == "paused"
    after = read(database, job_id)
    assert (after["standing"], after["phase"]) == ("paused", None)
    assert 100 <= after["worked_seconds"] - before < 200


def test_who_has_lost_the_lease_writes_nothing(
    database: Database, settings: Settings, job_id: str
) -> None:
    context = context_of(database, settings, job_id, is_lost=lambda: True)
    for step in (context.check, context.should_stop, context.check_lease, context.succeed):
        with pytest.raises(ConflictError, match="another process took over search 'told'; this"):
            step()
    context.fail(TrainingError("the loss is not finite"))
    assert read(database, job_id)["status"] == "running"


@pytest.mark.parametrize(("stopped_status", "status"), [("paused", "paused"), ("running",) * 2])
def test_what_stopping_leaves_behind(
    database: Database,
    settings: Settings,
    job_id: str,
    stopped_status: StoppedStatus,
    status: str,
) -> None:
    context = context_of(database, settings, job_id, stopped_status=stopped_status)
    assert context.rest() == status
    assert read(database, job_id)["status"] == status


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TrainingError("the loss is not finite"), "the loss is not finite"),
        (ValueError("odd"), "ValueError('odd')"),
    ],
)
def test_a_failure_says_why(
    database: Database, settings: Settings, job_id: str, error: Exception, said: str
) -> None:
    context_of(database, settings, job_id).fail(error)
    found = read(database, job_id)
    assert (found["status"], found["error"]) == ("failed", said)


def test_a_status_that_somebody_else_has_written_is_kept(
    database: Database, settings: Settings, job_id: str
) -> None:
    context = context_of(database, settings, job_id)
    with database.write() as session:
        jobs.set_status(session, job_id, "cancelled")
    context.succeed()
    context.fail(TrainingError("late"))
    assert context.rest() == "cancelled"
    with database.read() as session:
        row = session.get_one(Job, job_id)
        assert (row.status, row.error) == ("cancelled", None)
