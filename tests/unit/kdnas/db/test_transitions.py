"""What a user may do to a piece of work: the table of docs/api.md, cell by cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Evaluation, LatencyBuild, Pipeline, Search
from kdnas.db.records import OwnerKind
from kdnas.db.repository import (
    distillations,
    evaluations,
    events,
    jobs,
    latency_builds,
    leases,
    pipelines,
    searches,
)
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.db.repository.transitions import TRANSITIONS, Action, WorkTable, apply_action
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchStatus

SMALL = Architecture.parse("3,4,192,384,gelu")
TABLES: list[WorkTable] = [Search, Distillation, Evaluation, Pipeline, LatencyBuild]


def make(
    database: Database,
    table: WorkTable,
    status: SearchStatus,
    owner_kind: OwnerKind = "service",
    name: str = "small",
) -> str:
    with database.write() as session:
        if table is Search:
            row = searches.create_search(session, {}, name=name, owner_kind=owner_kind)
            jobs.set_status(session, row.id, status)
            return row.id
        if table is Pipeline:
            made_one = pipelines.create_pipeline(session, {}, name=name, owner_kind=owner_kind)
            jobs.set_status(session, made_one.id, status)
            return made_one.id
        if table is LatencyBuild:
            build = latency_builds.create_build(session, {})
            jobs.set_status(session, build.id, status)
            return build.id
        if table is Evaluation:
            (row_id,) = evaluations.create_evaluations(
                session, [NewEvaluation("glue", "RTE", 0, {})], model=name
            )
            session.get_one(Evaluation, row_id).owner_kind = owner_kind
            jobs.set_status(session, row_id, status)
            return row_id
        made = distillations.create_distillation(
            session, {}, SMALL, name=name, owner_kind=owner_kind
        )
        jobs.set_status(session, made.id, status)
        return made.id


def status_of(database: Database, table: WorkTable, row_id: str) -> SearchStatus:
    with database.read() as session:
        if table is Search:
            return searches.get_search(session, row_id).status
        if table is Pipeline:
            return pipelines.get_pipeline(session, row_id).status
        if table is LatencyBuild:
            return latency_builds.get_build(session, row_id).status
        if table is Evaluation:
            return evaluations.get_evaluation(session, row_id).status
        return distillations.get_distillation(session, row_id).status


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("action", get_args(Action))
def test_every_cell_of_a_column(database: Database, table: WorkTable, action: Action) -> None:
    for status in get_args(SearchStatus):
        check_cell(database, table, action, status)


def check_cell(database: Database, table: WorkTable, action: Action, status: SearchStatus) -> None:
    row_id = make(database, table, status, name=f"was-{status}")
    after = TRANSITIONS[action].get(status)
    with database.read() as session:
        before = events.last_event_id(session)
    if after is None:
        with (
            pytest.raises(ConflictError, match=r"'[\w-]+' (is|has) \w+, so it cannot be \w+; \w+"),
            database.write() as session,
        ):
            apply_action(session, table, row_id, action)
        assert status_of(database, table, row_id) == status
        return
    with database.write() as session:
        assert apply_action(session, table, row_id, action) == after
    assert status_of(database, table, row_id) == after
    if table is LatencyBuild:
        return
    with database.read() as session:
        (event,) = events.events_since(session, before)
    assert event.type == f"{table.__name__.lower()}_status"
    said = {"status": after, "error": None}
    if table is Evaluation:
        about = {"evaluation": row_id, "model": f"was-{status}", "suite": "glue", "task": "RTE"}
        assert event.payload == {**about, "seed": 0, **said}
    else:
        assert event.payload == said
        assert row_id in {event.search_id, event.distillation_id, event.pipeline_id}


def test_the_documented_table_is_this_one() -> None:
    text = Path("docs/api.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
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


@pytest.mark.parametrize(
    ("table", "command"),
    [
        (Search, "`kdnas search --resume small`"),
        (Distillation, "`kdnas full-distill --resume small`"),
        (Pipeline, "`kdnas launch --resume small`"),
        (Evaluation, "the `kdnas evaluate` that started it, run again"),
    ],
)
def test_what_the_command_line_started_is_resumed_there(
    database: Database, table: WorkTable, command: str
) -> None:
    row_id = make(database, table, "running", "cli")
    with database.write() as session:
        assert apply_action(session, table, row_id, "pause") == "paused"
    with pytest.raises(ConflictError, match=re.escape(command)), database.write() as session:
        apply_action(session, table, row_id, "resume")
    with database.write() as session:
        assert apply_action(session, table, row_id, "cancel") == "cancelled"


def test_a_finished_distillation_says_where_its_student_is(database: Database) -> None:
    row_id = make(database, Distillation, "succeeded")
    with database.write() as session:
        distillations.set_distillation_result(
            session, row_id, metrics={"relative": 0.1}, output_path="students/small"
        )
    with (
        pytest.raises(ConflictError, match=r"has succeeded.*student is in students/small"),
        database.write() as session,
    ):
        apply_action(session, row_id, "cancel")


def test_a_cancelled_row_keeps_its_holder_until_it_stops(database: Database) -> None:
    row_id = make(database, Distillation, "running", "cli")
    owner = leases.LeaseOwner.of_this_process("cli")
    with database.write() as session:
        leases.acquire(session, Distillation, row_id, owner, 60)
    with database.write() as session:
        apply_action(session, row_id, "cancel")
        record = distillations.get_distillation(session, row_id)
        (seen,) = distillations.overviews(session, [record])
    assert record.finished_at is not None
    assert seen.holder is not None
    assert (seen.holder.kind, seen.holder.pid) == ("cli", owner.pid)
    assert not seen.abandoned


def test_a_row_that_is_not_there(database: Database) -> None:
    for table in TABLES:
        with pytest.raises(NotFoundError, match="no such"), database.write() as session:
            apply_action(session, table, "no such", "pause")
