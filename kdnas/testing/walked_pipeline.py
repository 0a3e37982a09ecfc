"""Pipelines walked through their real stages on the made-up landscape, and how they look there."""

from __future__ import annotations

from typing import Any

from api.pipelines.advance import advance, begin_pipeline
from kdnas.db.engine import Database
from kdnas.db.records import MemberRecord, OwnerKind, PipelineRecord
from kdnas.db.repository import pipelines, searches
from kdnas.specs.pipeline import PipelineSpec
from kdnas.testing import demo_data

SCORES = {"SST-2": 0.92, "STS-B": 0.88, "RTE": 0.66}
"""The teacher's."""


def pipeline_spec(**parts: Any) -> PipelineSpec:
    """A request whose search is one of the made-up ones."""
    asked = {
        "search": demo_data.spec("made-up", episodes=3) | {"name": None},
        "choose": {"top": 2},
        "evaluation": {"suite": "glue", "tasks": list(SCORES), "seeds": 2},
    }
    return PipelineSpec.read(asked | parts, "made-up pipeline")


def add_pipeline(
    database: Database,
    name: str,
    *,
    distilled: int | None = None,
    owner_kind: OwnerKind = "service",
    **parts: Any,
) -> str:
    """Write a pipeline with its search done; returns its id.

    Args:
        database: empty or not.
        name: of the pipeline.
        distilled: so many students are distilled and evaluated, the next is at work; None has all
            of them done, and the pipeline succeeded.
        owner_kind: who runs it.
        parts: of the request.
    """
    with database.write() as session:
        spec = pipeline_spec(name=name, **parts)
        record = begin_pipeline(session, spec, owner_kind)
    record = end_search(database, record)
    with database.read() as session:
        members = pipelines.list_members(session, record.id)
    students = [member for member in members if member.distillation is not None]
    for number, member in enumerate(students):
        if distilled is None or number < distilled:
            _train(database, member)
        elif number == distilled:
            _train(database, member, until=1400)
    with database.write() as session:
        advance(session, record.id)
    with database.write() as session:
        for member in pipelines.list_members(session, record.id):
            _score(session, member)
        advance(session, record.id)
    return record.id


def end_search(database: Database, record: PipelineRecord) -> PipelineRecord:
    """Do a pipeline's search, and let the pipeline choose."""
    assert record.search_id is not None
    with database.write() as session:
        searches.set_search_facts(session, record.search_id, demo_data.search_facts())
    demo_data.add_search(
        database, record.name, episodes=3, candidates_each=6, search_id=record.search_id
    )
    with database.write() as session:
        return advance(session, record.id)


def _train(database: Database, member: MemberRecord, until: int | None = None) -> None:
    made = member.distillation
    assert made is not None
    steps = 0 if member.role == "undistilled" else 4000
    demo_data.train(database, made.id, made.name, steps=steps, until=until)


def _score(session: Any, member: MemberRecord) -> None:
    """Give a member scores that follow the landscape; one that has learned nothing is its rim."""
    loss = 0.0 if member.architecture is None else demo_data.landscape(member.architecture).relative
    loss = 1.0 if member.role == "undistilled" else loss
    for one in member.evaluations:
        demo_data.score(
            session, one.id, one.model, SCORES[one.task] - 0.2 * loss + 0.004 * one.seed
        )
