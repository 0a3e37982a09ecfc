"""Jobs of all kinds as a list: filters, roots, children, pages, and what nobody knows any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Table, insert

from kdnas.db.base import new_id, utc_now
from kdnas.db.engine import Database
from kdnas.db.lists import job_pages
from kdnas.db.lists.job_pages import SORTS
from kdnas.db.models import Job
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import jobs
from kdnas.errors import RequestError
from kdnas.testing.job_rows import KINDS, make_job


def ids(database: Database, **wanted: Any) -> list[str]:
    with database.read() as session:
        page = job_pages.list_jobs(session, wanted, descending=False)
    assert page.next_cursor is None
    return [row["id"] for row in page.items]


def row_of(database: Database, job_id: str) -> dict[str, Any]:
    with database.read() as session:
        (row,) = job_pages.read_in_full(session, [job_id])
        return row


def test_jobs_are_listed_by_kind(database: Database) -> None:
    made = {kind: make_job(database, kind) for kind in KINDS}
    assert ids(database) == list(made.values())
    for kind in KINDS:
        assert ids(database, kind=[kind]) == [made[kind]]
    assert ids(database, kind=KINDS[:2]) == [made[kind] for kind in KINDS[:2]]
    assert ids(database, kind=["alchemy"]) == []


def test_jobs_are_listed_by_status(database: Database) -> None:
    queued, running = make_job(database), make_job(database, "evaluation", "running")
    failed = make_job(database, "pipeline", "failed")
    assert ids(database, status=["running"]) == [running]
    assert ids(database, status=["queued", "failed"]) == [queued, failed]
    assert ids(database, status=["failed"], kind=["search"]) == []


def test_jobs_are_listed_by_all_of_their_labels(database: Database) -> None:
    both, one, _ = (make_job(database) for _ in range(3))
    with database.write() as session:
        jobs.set_labels(session, both, ["paper", "spring"])
        jobs.set_labels(session, one, ["paper"])
    assert ids(database, label=["paper"]) == [both, one]
    assert ids(database, label=["spring", "paper"]) == [both]
    assert ids(database, label=["pap"]) == []


def test_jobs_are_listed_by_a_part_of_the_name(database: Database) -> None:
    otter = make_job(database, "search", name="Quiet-Otter")
    share = make_job(database, "distillation", name="100_quiet")
    make_job(database, "evaluation", name="third")
    assert ids(database, name="quiet") == [otter, share]
    assert ids(database, name="OTTER") == [otter]
    assert ids(database, name="%") == []
    assert ids(database, name="_") == [share]


def test_parts_are_listed_under_their_parents_and_counted(database: Database) -> None:
    parent, alone = make_job(database, "pipeline"), make_job(database, "search")
    search = make_job(database, "search", "succeeded", parent_id=parent)
    student = make_job(database, "distillation", "running", parent_id=parent)
    failed = make_job(database, "evaluation", "failed", parent_id=parent)
    assert ids(database, roots=True) == [parent, alone]
    assert ids(database, parent=parent) == [search, student, failed]
    assert ids(database, parent=parent, status=["running"]) == [student]
    assert ids(database, parent=alone) == []
    whole, part = row_of(database, parent), row_of(database, search)
    assert (whole["num_children"], whole["num_children_ended"]) == (3, 2)
    assert (part["num_children"], part["num_children_ended"], part["parent_id"]) == (0, 0, parent)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [False, True])
def test_pages_go_on_where_the_last_one_ended(
    database: Database, sort: str, descending: bool
) -> None:
    for number, kind in enumerate(KINDS):
        name = None if kind == "evaluation" else f"number-{number % 3}"
        make_job(database, kind, "succeeded" if number % 2 else "queued", name=name)

    def page(limit: int, cursor: str | None = None) -> job_pages.PageOf[job_pages.Row]:
        with database.read() as session:
            return job_pages.list_jobs(
                session,
                {},
                sort=sort,
                descending=descending,
                limit=limit,
                cursor=cursor,
            )

    whole = [row["id"] for row in page(50).items]
    assert len(set(whole)) == len(KINDS)
    found: list[str] = []
    cursor = None
    while len(found) < len(whole):
        part = page(2, cursor)
        found += [row["id"] for row in part.items]
        cursor = part.next_cursor
    assert found == whole
    assert cursor is None


def test_a_cursor_of_another_list_is_refused(database: Database) -> None:
    for _ in range(3):
        make_job(database)
    with database.read() as session:
        cursor = job_pages.list_jobs(session, {}, limit=1).next_cursor
        assert cursor is not None
        with pytest.raises(RequestError):
            job_pages.list_jobs(session, {"roots": True}, limit=1, cursor=cursor)
        with pytest.raises(RequestError):
            job_pages.list_jobs(session, {}, limit=1, cursor="nonsense")


def test_a_row_says_who_works_on_it_and_what_remains(database: Database) -> None:
    job_id = make_job(database, "search", "running")
    owner = LeaseOwner.of_this_process("service")
    with database.write() as session:
        leases.acquire(session, Job, job_id, owner, 60)
        jobs.note_progress(session, job_id, 25, 100)
        row = jobs.locked_job(session, job_id)
        row.worked_seconds, row.phase_since = 50.0, utc_now() - timedelta(seconds=50)
    seen = row_of(database, job_id)
    host = owner.host.split("/")[0]
    assert seen["worker"] == f"{host}, process {owner.pid}"
    assert seen["remaining_seconds"] == pytest.approx(300, rel=0.2)
    with database.write() as session:
        leases.release(session, Job, job_id, owner)
        dead = replace(owner, pid=2**22 + 1, token="dead")
        leases.acquire(session, Job, job_id, dead, 60)
        jobs.set_status(session, job_id, "paused")
    seen = row_of(database, job_id)
    assert (seen["worker"], seen["remaining_seconds"]) == (None, None)


def test_one_is_read_with_what_was_asked_for(database: Database) -> None:
    job_id = make_job(database, "distillation", name="small")
    with database.write() as session:
        jobs.resolve(session, job_id, {"seed": 7})
        jobs.set_note(session, job_id, "keep it")
    seen = row_of(database, job_id)
    assert (seen["requested"], seen["resolved"], seen["note"]) == ({}, {"seed": 7}, "keep it")
    assert (seen["kind"], seen["name"], seen["status"]) == ("distillation", "small", "queued")


def read_rows(database: Database, wanted: Sequence[str]) -> list[dict[str, Any]]:
    with database.read() as session:
        return job_pages.read_jobs(session, wanted)


def test_rows_come_in_the_order_asked_for(database: Database) -> None:
    first, second = make_job(database), make_job(database, "evaluation")
    found = read_rows(database, [second, "gone", first])
    assert [row["id"] for row in found] == [second, first]


def test_a_job_of_a_kind_that_nobody_knows_is_listed_all_the_same(database: Database) -> None:
    """The package that brought the kind may have been removed since."""
    known, strange = make_job(database, "search", name="known"), new_id()
    table = Job.__table__
    assert isinstance(table, Table)
    with database.write() as session:
        values = {"id": strange, "kind": "alchemy", "name": "gold", "requested": {"lead": 1}}
        session.execute(insert(table).values(**values))
    child = make_job(database, "evaluation", parent_id=known)
    assert ids(database) == [known, strange, child]
    assert ids(database, kind=["alchemy"]) == [strange]
    assert ids(database, roots=True, name="gold") == [strange]
    seen = row_of(database, strange)
    assert (seen["kind"], seen["name"], seen["requested"]) == ("alchemy", "gold", {"lead": 1})
    assert (seen["status"], seen["worker"]) == ("queued", None)
    for reference in (strange, "gold"):
        with database.read() as session:
            found = jobs.get_job(session, reference)
            assert (found.id, found.called, found.kind) == (strange, "alchemy 'gold'", "alchemy")
