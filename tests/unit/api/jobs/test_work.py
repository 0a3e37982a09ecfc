"""What becomes of a row when the work on it breaks off."""

from __future__ import annotations

import pytest

from api.jobs.work import at_work
from kdnas.db.engine import Database
from kdnas.db.models import Search
from kdnas.db.repository import jobs, leases, searches
from kdnas.db.repository.leases import LeaseOwner
from kdnas.errors import NoRoomError, OutOfReachError, TrainingError
from kdnas.records import SearchRecord


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
    database: Database, claimed: SearchRecord, error: Exception, claim: str | None, status: str
) -> None:
    if claim is None:  # the command line
        with database.write() as session:
            owner = LeaseOwner.of_this_process("service", "claim")
            leases.release(session, Search, claimed.id, owner)

    def fail() -> None:
        with at_work(database, claimed, claim, lambda: False, "running") as work:
            assert work.status == "running"
            raise error

    with pytest.raises(type(error)):
        fail()
    with database.read() as session:
        found = searches.get_search(session, claimed.id)
        assert leases.holder(session, Search, claimed.id) is None
    assert (found.status, found.error) == (status, str(error) if status == "failed" else None)
