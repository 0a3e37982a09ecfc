"""What can be done to a job of any kind: states and times, names, labels, notes, deletion."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from sqlalchemy import select

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.lists import job_pages
from kdnas.db.models import Distillation, Evaluation, Job, JobLabel, Search
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import distillations, evaluations, events, jobs, searches
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.db.repository.jobs import add_job
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchStatus
from kdnas.testing.job_rows import KINDS, TABLES, make_job, status_of

SMALL = Architecture.parse("3,4,192,384,gelu")
START = datetime(2024, 5, 1, tzinfo=UTC)


class Clock:
    """A clock that stands until it is moved on."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(jobs, "utc_now", clock)
    return clock


def read(database: Database, job_id: str) -> Job:
    with database.read() as session:
        row = jobs.get_job(session, job_id)
        session.expunge(row)
    return row


def become(database: Database, job_id: str, status: SearchStatus, error: str | None = None) -> Job:
    with database.write() as session:
        jobs.set_status(session, job_id, status, error)
    return read(database, job_id)


@pytest.mark.parametrize("kind", KINDS)
def test_times_follow_the_status(database: Database, kind: str, clock: Clock) -> None:
    job_id = make_job(database, kind)
    row = read(database, job_id)
    assert (row.started_at, row.finished_at, row.worked_seconds) == (None, None, 0)
    began = clock.later(10)
    row = become(database, job_id, "running")
    assert (row.started_at, row.phase_since, row.finished_at) == (began, began, None)
    paused = clock.later(30)
    row = become(database, job_id, "paused")
    assert (row.started_at, row.worked_seconds) == (began, 30)
    assert row.phase_since == paused  # since when it is so
    clock.later(1000)  # a job at rest works nothing
    become(database, job_id, "queued")
    clock.later(5)
    become(database, job_id, "running")
    failed = clock.later(12)
    row = become(database, job_id, "failed", "no space left")
    assert (row.finished_at, row.error, row.worked_seconds) == (failed, "no space left", 42)
    row = become(database, job_id, "queued")
    assert (row.finished_at, row.error, row.started_at) == (None, None, began)
    become(database, job_id, "running")
    ended = clock.later(8)
    row = become(database, job_id, "succeeded")
    assert (row.started_at, row.finished_at, row.worked_seconds) == (began, ended, 50)


def test_a_phase_is_noted_with_its_time_while_a_job_runs(database: Database, clock: Clock) -> None:
    job_id = make_job(database, "search")

    def note(phase: str | None) -> bool:
        with database.write() as session:
            return jobs.note_phase(session, job_id, phase)

    assert not note("waits for memory")  # it does nothing yet
    become(database, job_id, "running")
    loading = clock.later(3)
    assert note("loads the teacher")
    clock.later(4)
    assert not note("loads the teacher: 3 of 6 layers")
    row = read(database, job_id)
    assert (row.phase, row.phase_since) == ("loads the teacher: 3 of 6 layers", loading)
    training = clock.later(5)
    assert note("trains")
    row = read(database, job_id)
    assert (row.phase, row.phase_since, row.worked_seconds) == ("trains", training, 12)
    clock.later(8)
    row = become(database, job_id, "paused")
    assert (row.phase, row.worked_seconds) == (None, 20)


def test_what_prepares_the_work_does_not_count_as_worked(database: Database, clock: Clock) -> None:
    """Else a search that prepared for five minutes would say so of what is left to train."""
    job_id = make_job(database, "search")

    def prepare_and_work(seconds: float, done: int) -> Job:
        before = become(database, job_id, "running").worked_seconds
        with database.write() as session:
            jobs.note_phase(session, job_id, "latency table")
        began = clock.later(300)
        with database.write() as session:
            jobs.end_preparation(session, job_id, "training", before)
        row = read(database, job_id)
        assert (row.phase, row.phase_since) == ("training", began)
        clock.later(seconds)
        with database.write() as session:
            jobs.note_progress(session, job_id, done, 100)
        return become(database, job_id, "paused")

    become(database, job_id, "running")
    clock.later(120)
    become(database, job_id, "paused")  # before it came to its work
    assert prepare_and_work(20, 10).worked_seconds == 20
    assert prepare_and_work(30, 25).worked_seconds == 50
    with database.write() as session:
        jobs.end_preparation(session, job_id, "training", 0.0)  # paused by somebody in that moment
    assert read(database, job_id).worked_seconds == 50


def test_progress_and_resolution_are_beside_the_request(database: Database) -> None:
    with database.write() as session:
        job_id = searches.create_search(session, {"seed": None}).id
        assert searches.get_search(session, job_id).spec == {"seed": None}
        jobs.resolve(session, job_id, {"seed": 7})
        jobs.note_progress(session, job_id, 3, 10)
    row = read(database, job_id)
    assert (row.requested, row.resolved, row.spec) == ({"seed": None}, {"seed": 7}, {"seed": 7})
    assert (row.done, row.total) == (3, 10)


def test_a_job_that_is_not_there_is_refused_by_everything(database: Database) -> None:
    with database.write() as session:
        for change in (
            lambda: jobs.get_job(session, "gone"),
            lambda: jobs.locked_job(session, "gone"),
            lambda: jobs.require_job(session, "gone"),
            lambda: jobs.set_status(session, "gone", "paused"),
            lambda: jobs.note_phase(session, "gone", "waits"),
            lambda: jobs.note_progress(session, "gone", 1, 2),
            lambda: jobs.resolve(session, "gone", {}),
            lambda: jobs.rename(session, "gone", "other"),
            lambda: jobs.set_note(session, "gone", "a note"),
            lambda: jobs.set_labels(session, "gone", ["a"]),
            lambda: jobs.delete_job(session, "gone"),
        ):
            with pytest.raises(NotFoundError, match="there is no job 'gone'"):
                change()
        assert jobs.status_of(session, "gone") is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_renamed(database: Database, kind: str) -> None:
    job_id = make_job(database, kind, name="before")
    make_job(database, kind, name="taken")
    with database.write() as session:
        jobs.rename(session, job_id, "after")
        jobs.rename(session, job_id, "after")  # it has it already: nothing happens
    with database.read() as session:
        table = TABLES[KINDS.index(kind)]
        assert jobs.get_job(session, "after", table).id == job_id
        with pytest.raises(NotFoundError, match="'before'"):
            jobs.get_job(session, "before", table)
        told = events.payloads_of(session, f"{kind}_renamed", job_id)
    assert [payload["name"] for payload in told] == ["after"]
    noun = kind.replace("_", " ")
    taken = rf"there is already an? {noun} named 'taken' \(queued\); choose another name"
    with pytest.raises(ConflictError, match=taken), database.write() as session:
        jobs.rename(session, job_id, "taken")
    assert read(database, job_id).name == "after"


def test_one_of_several_gets_a_name_that_all_want_at_once(database: Database) -> None:
    ids = [make_job(database, "search", name=f"number-{i}") for i in range(4)]
    barrier = Barrier(len(ids))

    def rename(job_id: str) -> str:
        barrier.wait()
        try:
            with database.write() as session:
                jobs.rename(session, job_id, "wanted")
        except ConflictError as error:
            return str(error)
        return "renamed"

    with ThreadPoolExecutor(len(ids)) as pool:
        found = sorted(pool.map(rename, ids))
    assert found[0] == "renamed"
    assert all("already a search named 'wanted'" in told for told in found[1:])
    with database.read() as session:
        assert jobs.get_job(session, "wanted").id in ids


def test_labels_are_each_once_in_their_order_and_found(database: Database) -> None:
    first, second = (make_job(database, kind) for kind in ("search", "evaluation"))

    def labelled(*labels: str) -> set[str]:
        with database.read() as session:
            page = job_pages.list_jobs(session, {"label": labels})
        return {row["id"] for row in page.items}

    with database.write() as session:
        jobs.set_labels(session, first, ["spring", "paper", "spring"])
        jobs.set_labels(session, second, ["paper"])
    assert read(database, first).labels == ["spring", "paper"]
    assert labelled("paper") == {first, second}
    assert labelled("paper", "spring") == {first}
    with database.write() as session:
        jobs.set_labels(session, first, ["autumn", "paper"])
        jobs.set_labels(session, second, [])
        counted = job_pages.list_labels(session)
    assert (labelled("spring"), labelled("paper"), labelled("autumn")) == (set(), {first}, {first})
    assert [(row["label"], row["num_jobs"]) for row in counted] == [("autumn", 1), ("paper", 1)]
    with database.write() as session:
        jobs.delete_job(session, first)
        assert session.scalars(select(JobLabel)).all() == []


def test_labels_given_at_the_start_are_found_as_well(database: Database) -> None:
    with database.write() as session:
        row = add_job(session, Search, {}, labels=["paper", "spring", "paper"])
        page = job_pages.list_jobs(session, {"label": ["spring"]})
        assert row.labels == ["paper", "spring"]
        assert [found["id"] for found in page.items] == [row.id]


def test_a_note_is_kept_until_it_is_emptied(database: Database) -> None:
    job_id = make_job(database, "pipeline")
    for note, kept in (("look at its\nsecond student", "look at its\nsecond student"), ("", None)):
        with database.write() as session:
            jobs.set_note(session, job_id, note)
        assert read(database, job_id).note == kept


def test_deleting_a_parent_cancels_children_that_are_not_over(database: Database) -> None:
    parent = make_job(database, "pipeline", "failed", name="whole")
    asked: tuple[tuple[str, SearchStatus], ...] = (
        ("search", "succeeded"),
        ("distillation", "running"),
        ("distillation", "failed"),
        ("evaluation", "queued"),
        ("evaluation", "paused"),
    )
    children = {
        status: make_job(database, kind, status, parent_id=parent) for kind, status in asked
    }
    with database.write() as session:
        assert [child.id for child in jobs.children(session, parent)] == list(children.values())
        jobs.delete_job(session, parent)
        assert jobs.children(session, parent) == []
    assert status_of(database, parent) is None
    stay = {"succeeded": "succeeded", "failed": "failed"}
    for status, child in children.items():
        row = read(database, child)
        assert (row.status, row.parent_id) == (stay.get(status, "cancelled"), None)
    with database.read() as session:
        told = events.events_since(session, job_id=children["running"])
    assert told[-1].payload["status"] == "cancelled"


def test_what_was_paused_is_not_deleted_while_a_process_works_on_it(database: Database) -> None:
    job_id, owner = make_job(database, "search", "paused"), LeaseOwner.of_this_process("service")
    with database.write() as session:
        leases.acquire(session, Job, job_id, owner, 60)
    told = "is paused, and a process works on it still; wait until that has ended, or cancel it"
    with pytest.raises(ConflictError, match=told), database.write() as session:
        jobs.delete_job(session, job_id)
    with database.write() as session:
        leases.release(session, Job, job_id, owner)
    with database.write() as session:
        jobs.delete_job(session, job_id)
    assert status_of(database, job_id) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_is_not_deleted(database: Database, kind: str) -> None:
    job_id = make_job(database, kind, "running")
    told = "is running; cancel it before deleting it"
    with pytest.raises(ConflictError, match=told), database.write() as session:
        jobs.delete_job(session, job_id)
    assert status_of(database, job_id) == "running"
    become(database, job_id, "cancelled")
    with database.write() as session:
        jobs.delete_job(session, job_id, with_standing=False)
        assert session.get(TABLES[KINDS.index(kind)], job_id) is None
        (left,) = events.events_since(session)
        assert (left.type, left.payload["job"]) == (f"{kind}_deleted", job_id)


def test_what_others_stand_on_is_deleted_only_on_purpose(database: Database) -> None:
    with database.write() as session:
        search = searches.create_search(session, {}, name="base").id
        students = [
            distillations.create_distillation(
                session, {}, SMALL, name=f"student-{i}", search_id=search
            ).id
            for i in range(5)
        ]
        pair = NewEvaluation("glue", "RTE", 3, {})
        (scored,) = evaluations.create_evaluations(
            session, [pair], model="m", distillation_id=students[0]
        )
    for job_id, told in (
        (
            search,
            r"^distillation 'student-0', distillation 'student-1', distillation 'student-2' and "
            r"2 more stand on search 'base'; delete it with force, and they are kept without it$",
        ),
        (
            students[0],
            "^the evaluation on RTE with seed 3 stands on distillation 'student-0'; delete it",
        ),
    ):
        with pytest.raises(ConflictError, match=told), database.write() as session:
            jobs.delete_job(session, job_id, with_standing=False)
    with database.write() as session:
        jobs.delete_job(session, search)
        jobs.delete_job(session, students[0])
        jobs.delete_job(session, students[1], with_standing=False)  # nothing stands on it
    with database.read() as session:
        assert session.get_one(Distillation, students[2]).search_id is None
        assert session.get_one(Evaluation, scored).distillation_id is None


def test_a_part_is_deleted_from_its_parent_only_on_purpose(database: Database) -> None:
    parent = make_job(database, "pipeline", name="whole")
    part = make_job(database, "search", name="part", parent_id=parent)
    told = "^pipeline 'whole' stands on search 'part'"
    with pytest.raises(ConflictError, match=told), database.write() as session:
        jobs.delete_job(session, part, with_standing=False)
    with database.write() as session:
        jobs.delete_job(session, part)
        assert jobs.children(session, parent) == []


def test_an_unknown_name_is_answered_with_the_nearest(database: Database) -> None:
    make_job(database, "search", name="quiet-otter")
    make_job(database, "distillation", name="loud-otter")
    with database.read() as session:
        for table, wanted, told in (
            (Search, "quiet-oter", "^there is no search 'quiet-oter'; did you mean 'quiet-otter'?"),
            (Job, "loud-ottr", "^there is no job 'loud-ottr'; did you mean 'loud-otter'?"),
            (Search, "zzz", "^there is no search 'zzz'$"),
            (Distillation, "quiet-otter", "^there is no distillation 'quiet-otter'; "),
            (Job, "zzz", "^there is no job 'zzz'$"),
            (Job, "a\0b", "there is no job 'a.x00b'"),
        ):
            with pytest.raises(NotFoundError, match=told):
                jobs.get_job(session, wanted, table)


def test_a_part_that_is_called_as_its_parent_is_read_by_its_id(database: Database) -> None:
    """A pipeline gives its search its own name."""
    pipeline = make_job(database, "pipeline", name="both")
    search = make_job(database, "search", name="both", parent_id=pipeline)
    with database.read() as session:
        assert jobs.get_job(session, "both").id == pipeline
        assert jobs.get_job(session, search).id == search
        assert jobs.get_job(session, "both", Search).id == search


def test_a_name_that_two_kinds_have_asks_for_an_id(database: Database) -> None:
    search = make_job(database, "search", name="both")
    evaluation = make_job(database, "evaluation", name="both")
    told = (
        rf"^'both' is the name of a search \(id {search}\) and of an evaluation "
        rf"\(id {evaluation}\); say which one by its id$"
    )
    with database.read() as session:
        with pytest.raises(ConflictError, match=told):
            jobs.get_job(session, "both")
        assert jobs.get_job(session, "both", Search).id == search
        assert jobs.get_job(session, "both", Evaluation).id == evaluation
        assert isinstance(jobs.get_job(session, evaluation), Evaluation)
        with pytest.raises(NotFoundError, match="there is no search"):
            jobs.get_job(session, evaluation, Search)


def test_a_child_is_told_of_on_its_first_parents_page(database: Database) -> None:
    parent = make_job(database, "pipeline")
    child = make_job(database, "pipeline", parent_id=parent)
    grandchild = make_job(database, "search", parent_id=child)
    with database.read() as session:
        of_all = events.events_since(session, job_id=parent)
        own = events.events_since(session, job_id=grandchild)
    assert [event.job_id for event in of_all] == [parent, child, grandchild]
    assert [(event.kind, event.root_job_id) for event in own] == [("search", parent)]
