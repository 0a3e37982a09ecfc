"""What becomes of a job when the work on it ends, stops or breaks off."""

from __future__ import annotations

import errno
import time

import pytest

from api.jobs.context import JobContext, StoppedStatus
from api.jobs.work import at_work, do_job
from kdnas.db.engine import Database
from kdnas.db.models import Search
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import jobs, searches
from kdnas.errors import (
    ConflictError,
    NoRoomError,
    NotFoundError,
    OutOfReachError,
    StoreError,
    TrainingError,
)
from kdnas.records import AttemptStarted, GroupProgress, SearchRecord
from kdnas.search.at_work import StudentsAtWork
from kdnas.settings import Settings


@pytest.fixture
def claimed(database: Database) -> SearchRecord:
    """A search that a coordinator has claimed with the token ``claim``."""
    with database.write() as session:
        record = searches.create_search(session, {}, owner_kind="service")
        jobs.set_status(session, record.id, "running")
        leases.acquire(
            session, Search, record.id, LeaseOwner.of_this_process("service", "claim"), 60
        )
    return record


@pytest.mark.parametrize(
    ("error", "claim", "status"),
    [
        (NoRoomError("the cluster is full"), "claim", "running"),
        (NoRoomError("the cluster is full"), None, "failed"),
        (OutOfReachError("the cluster did not answer"), "claim", "running"),
        (OutOfReachError("the cluster did not answer"), None, "failed"),
        (TrainingError("the loss is not finite"), "claim", "failed"),
    ],
)
def test_what_the_cluster_cannot_do_at_present_a_coordinator_tries_again(
    database: Database,
    settings: Settings,
    claimed: SearchRecord,
    error: Exception,
    claim: str | None,
    status: str,
) -> None:
    if claim is None:  # the command line
        with database.write() as session:
            owner = LeaseOwner.of_this_process("service", "claim")
            leases.release(session, Search, claimed.id, owner)

    def fail() -> None:
        with at_work(database, settings, claimed.id, claim, lambda: False, "running") as context:
            assert context.status == "running"
            assert context.claimed is (claim is not None)
            raise error

    with pytest.raises(type(error)):
        fail()
    with database.read() as session:
        found = searches.get_search(session, claimed.id)
        assert leases.holder(session, Search, claimed.id) is None
    assert (found.status, found.error) == (status, str(error) if status == "failed" else None)


@pytest.fixture
def own(database: Database) -> SearchRecord:
    """A search of the command line."""
    with database.write() as session:
        return searches.create_search(session, {"seed": 7}, name="own", owner_kind="cli")


class CleanUp:
    """Notes what was cleaned up."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, job_id: str, database: Database, settings: Settings) -> None:
        self.done.append(job_id)


def test_a_job_that_is_done_has_succeeded_and_is_cleaned_up(
    database: Database, settings: Settings, own: SearchRecord
) -> None:
    clean_up, seen = CleanUp(), []

    def run(context: JobContext) -> None:
        with database.read() as session:
            assert leases.holder(session, Search, own.id) is not None
            assert jobs.status_of(session, own.id) == "running"
        seen.append((context.spec, context.claimed))

    assert do_job(own.id, database, settings, run, clean_up=clean_up) == "succeeded"
    assert seen == [({"seed": 7}, False)]
    assert clean_up.done == [own.id]
    with database.read() as session:
        assert leases.holder(session, Search, own.id) is None
    with pytest.raises(ConflictError, match="search 'own' has succeeded; start a new one"):
        do_job(own.id, database, settings, run)
    with pytest.raises(NotFoundError, match="there is no job 'nothing'"):
        do_job("nothing", database, settings, run)


@pytest.mark.parametrize("status", ["paused", "running"])
def test_a_job_that_was_to_stop_is_not_cleaned_up(
    database: Database, settings: Settings, own: SearchRecord, status: StoppedStatus
) -> None:
    clean_up = CleanUp()

    def run(context: JobContext) -> None:
        context.check()
        raise AssertionError("it should have stopped")

    found = do_job(
        own.id,
        database,
        settings,
        run,
        should_stop=lambda: True,
        stopped_status=status,
        clean_up=clean_up,
    )
    assert found == status
    assert clean_up.done == []
    assert do_job(own.id, database, settings, lambda _: None, clean_up=clean_up) == "succeeded"


def test_a_job_that_is_cancelled_meanwhile_stays_so_and_is_cleaned_up(
    database: Database, settings: Settings, own: SearchRecord
) -> None:
    clean_up = CleanUp()

    def run(context: JobContext) -> None:
        with database.write() as session:
            jobs.set_status(session, own.id, "cancelled")

    assert do_job(own.id, database, settings, run, clean_up=clean_up) == "cancelled"
    assert clean_up.done == [own.id]


def test_a_paused_job_says_what_it_lets_end_though_nothing_is_heard_of_that(
    database: Database, settings: Settings, claimed: SearchRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while losses are read, for minutes: whoever is silent is killed."""
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 0.05)

    def run(context: JobContext) -> None:
        at_work = StudentsAtWork()
        at_work.note(AttemptStarted(("a", "b"), "w"))
        at_work.note(GroupProgress(("a", "b"), "w", 600, 600))
        context.trains(at_work, lambda: 50, 100)
        with database.write() as session:
            jobs.set_status(session, claimed.id, "paused")
        until = time.monotonic() + 30
        while phase() != "pausing: 2 students at step 600 of 600":
            assert time.monotonic() < until, phase()
            time.sleep(0.02)
        context.check()

    def phase() -> str | None:
        with database.read() as session:
            return jobs.phase_of(session, claimed.id)

    assert do_job(claimed.id, database, settings, run, claim="claim") == "paused"
    assert phase() is None


def test_whose_row_is_gone_stops(
    database: Database, settings: Settings, claimed: SearchRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.lease.RENEW_SECONDS", 0.05)
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 0.05)

    def run(context: JobContext) -> None:
        with database.write() as session:
            jobs.set_status(session, claimed.id, "cancelled")
            jobs.delete_job(session, claimed.id)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            context.check_lease()
            time.sleep(0.02)
        pytest.fail("it never stopped")

    with pytest.raises(ConflictError, match="another process took over"):
        do_job(claimed.id, database, settings, run, claim="claim")


def test_what_was_paused_before_its_runner_began_is_left_alone(
    database: Database, settings: Settings, claimed: SearchRecord
) -> None:
    with database.write() as session:
        jobs.set_status(session, claimed.id, "paused")

    def run(context: JobContext) -> None:
        raise AssertionError("nothing is to be done")

    assert do_job(claimed.id, database, settings, run, claim="claim") == "paused"


def test_whose_lease_it_is_not_does_nothing(
    database: Database, settings: Settings, claimed: SearchRecord
) -> None:
    for claim in ("another", None):
        with pytest.raises(ConflictError):
            do_job(claimed.id, database, settings, lambda _: None, claim=claim)
    with database.read() as session:
        assert jobs.status_of(session, claimed.id) == "running"


def test_a_full_disk_is_told_in_a_sentence(
    database: Database, settings: Settings, claimed: SearchRecord
) -> None:
    def fill(context: JobContext) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/made/predictions.jsonl")

    with pytest.raises(
        StoreError, match=r"/made/predictions.jsonl could not be written \(No space"
    ):
        do_job(claimed.id, database, settings, fill, claim="claim")
    with database.read() as session:
        row = jobs.get_job(session, claimed.id)
    assert row.status == "failed"
    assert row.error is not None
    assert row.error.endswith("and where the result goes, and resume")
