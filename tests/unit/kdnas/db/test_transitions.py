"""What a user may do to a piece of work: the table of docs/api.md, cell by cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Job
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import TRANSITIONS, Action, apply_action, stop_wish
from kdnas.db.repository import distillations, events, jobs
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchStatus
from kdnas.testing.job_rows import KINDS, make_job, status_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", get_args(Action))
def test_every_cell_of_a_column(database: Database, kind: str, action: Action) -> None:
    for status in get_args(SearchStatus):
        check_cell(database, kind, action, status)


def check_cell(database: Database, kind: str, action: Action, status: SearchStatus) -> None:
    job_id = make_job(database, kind, status, name=f"was-{status}")
    after = TRANSITIONS[action].get(status)
    with database.read() as session:
        before = events.last_event_id(session)
        row = jobs.get_job(session, job_id)
        called, about = re.escape(row.called), row.about
    if after is None:
        with (
            pytest.raises(
                ConflictError, match=rf"^{called} (is|has) \w+, so it cannot be \w+; \w+"
            ),
            database.write() as session,
        ):
            apply_action(session, job_id, action)
        assert status_of(database, job_id) == status
        return
    with database.write() as session:
        assert apply_action(session, job_id, action) == after
    assert status_of(database, job_id) == after
    with database.read() as session:
        (event,) = events.events_since(session, before)
    assert event.type == f"{kind}_status"
    at_once = {"at_once": True} if action == "pause_now" else {}
    assert event.payload == {**about, "status": after, "error": None, **at_once}
    assert (event.kind, event.job_id, event.root_job_id) == (kind, job_id, job_id)


def test_an_evaluations_events_say_what_it_evaluates(database: Database) -> None:
    job_id = make_job(database, "evaluation", "running")
    with database.read() as session:
        payload = events.events_since(session)[-1].payload
    about = {"evaluation": job_id, "model": "m", "suite": "glue", "task": "RTE", "seed": 0}
    assert payload == {**about, "status": "running", "error": None}


def test_the_documented_table_is_this_one() -> None:
    text = Path("docs/api.md").read_text("utf-8")
    cells = r"([^|]+) \| " * len(get_args(Action))
    rows = re.findall(rf"^\| `(\w+)` \| {cells.rstrip()}", text, re.MULTILINE)
    documented = {
        (action, status): cell.strip("` ")
        for status, *cells in rows
        for action, cell in zip(get_args(Action), cells, strict=True)
        if status in get_args(SearchStatus)
    }
    assert documented == {
        (action, status): TRANSITIONS[action].get(status, "409")
        for action in get_args(Action)
        for status in get_args(SearchStatus)
    }


def held(database: Database, kind: str = "search", parent_id: str | None = None) -> str:
    """A running job of the service on which this process works."""
    job_id = make_job(database, kind, "running", parent_id=parent_id)
    with database.write() as session:
        leases.acquire(session, Job, job_id, LeaseOwner.of_this_process("service"), 60)
    return job_id


def wish(database: Database, job_id: str) -> str | None:
    with database.read() as session:
        return stop_wish(session, job_id)


def test_who_works_on_it_learns_how_to_stop(database: Database) -> None:
    job_id = held(database)
    assert wish(database, job_id) is None
    with database.write() as session:
        apply_action(session, job_id, "pause")
    assert wish(database, job_id) == "in good order"
    with pytest.raises(ConflictError, match="is paused"), database.write() as session:
        apply_action(session, job_id, "pause")  # sent twice by mistake, it loses nothing
    with database.write() as session:
        assert apply_action(session, job_id, "pause_now") == "paused"
    assert wish(database, job_id) == "at once"
    with pytest.raises(ConflictError, match="is paused"), database.write() as session:
        apply_action(session, job_id, "pause_now")
    with database.write() as session:
        assert apply_action(session, job_id, "resume") == "queued"  # by another process
    assert wish(database, job_id) == "at once"
    cancelled = held(database)
    with database.write() as session:
        apply_action(session, cancelled, "cancel")
        jobs.delete_job(session, cancelled)
    assert wish(database, cancelled) == "at once"


def test_a_pause_is_taken_back_while_trainings_come_to_their_end(database: Database) -> None:
    job_id = held(database)
    for _ in range(2):
        with database.write() as session:
            apply_action(session, job_id, "pause")
        with database.write() as session:
            assert apply_action(session, job_id, "resume") == "running"
        assert wish(database, job_id) is None
    with database.write() as session:
        assert apply_action(session, job_id, "pause_now") == "paused"
    assert wish(database, job_id) == "at once"


def test_parts_that_let_trainings_end_are_paused_at_once_with_their_pipeline(
    database: Database,
) -> None:
    parent_id = make_job(database, "pipeline", "running")
    search_id = held(database, parent_id=parent_id)
    other_id = make_job(database, "distillation", "running", parent_id=parent_id)
    with database.write() as session:
        apply_action(session, parent_id, "pause")
    assert wish(database, search_id) == "in good order"
    with database.write() as session:
        assert apply_action(session, parent_id, "pause_now") == "paused"
    assert wish(database, search_id) == "at once"
    assert wish(database, other_id) == "in good order"  # nobody works on it
    with pytest.raises(ConflictError, match="is paused"), database.write() as session:
        apply_action(session, parent_id, "pause_now")


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("search", "kdnas search --resume small"),
        ("distillation", "kdnas full-distill --resume small"),
        ("pipeline", "kdnas launch --resume small"),
        ("evaluation", "the `kdnas evaluate` that started it, run again"),
        ("task_distillation", "kdnas task-distill --resume small"),
    ],
)
def test_what_the_command_line_started_is_resumed_there(
    database: Database, kind: str, command: str
) -> None:
    job_id = make_job(database, kind, "running", name="small", owner_kind="cli")
    told = re.escape(f"which resumes it with {command}")
    with pytest.raises(ConflictError, match=told), database.write() as session:
        apply_action(session, job_id, "resume")  # its process was killed
    with database.write() as session:
        leases.acquire(session, Job, job_id, LeaseOwner.of_this_process("cli"), 60)
    left = pytest.raises(ConflictError, match=r"is running, .* leave it to go on")
    with left, database.write() as session:
        apply_action(session, job_id, "resume")
    with database.write() as session:
        assert apply_action(session, job_id, "pause") == "paused"
    with pytest.raises(ConflictError, match=told), database.write() as session:
        apply_action(session, job_id, "resume")
    with database.write() as session:
        assert apply_action(session, job_id, "cancel") == "cancelled"


def test_a_finished_distillation_says_where_its_student_is(database: Database) -> None:
    job_id = make_job(database, "distillation", "succeeded")
    with database.write() as session:
        distillations.set_distillation_result(
            session, job_id, metrics={"relative": 0.1}, output_path="students/small"
        )
    with (
        pytest.raises(ConflictError, match=r"has succeeded.*student is in students/small"),
        database.write() as session,
    ):
        apply_action(session, job_id, "cancel")


def test_a_cancelled_row_keeps_its_holder_until_it_stops(database: Database) -> None:
    job_id = make_job(database, "distillation", "running", owner_kind="cli")
    owner = leases.LeaseOwner.of_this_process("cli")
    with database.write() as session:
        leases.acquire(session, Distillation, job_id, owner, 60)
    with database.write() as session:
        apply_action(session, job_id, "cancel")
        record = distillations.get_distillation(session, job_id)
        holder = leases.holder(session, Distillation, job_id)
    assert record.finished_at is not None
    assert holder is not None
    assert (holder.kind, holder.pid) == ("cli", owner.pid)


def test_a_job_that_is_not_there(database: Database) -> None:
    missing = pytest.raises(NotFoundError, match="there is no job 'no such'")
    with missing, database.write() as session:
        apply_action(session, "no such", "pause")
