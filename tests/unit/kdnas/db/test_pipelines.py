"""Pipelines and their members: written, read, changed with their parts, deleted without them."""

from __future__ import annotations

import pytest

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.lists.job_pages import list_jobs, read_in_full
from kdnas.db.lists.pipeline_pages import LISTING
from kdnas.db.models import Evaluation, Search
from kdnas.db.queue.transitions import apply_action
from kdnas.db.records import MemberFigures, NewMember, Reason
from kdnas.db.repository import distillations, evaluations, events, jobs, pipelines, searches
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.errors import ConflictError, NotFoundError
from kdnas.records import SearchFacts

SMALL, SMALLER = (Architecture.parse(f"3,4,{width},384,gelu") for width in (192, 96))
FIGURES = MemberFigures(reward=0.4, loss_relative=0.5, latency_ms=2.5)


def make(database: Database, name: str = "whole") -> dict[str, str]:
    """A pipeline whose search is done, one student of two distilled, and evaluated once of twice.

    Returns:
        Name of each part → id.
    """
    chosen = NewMember((Reason("chosen", "top 1"), Reason("baseline", "half")), SMALL, FIGURES)
    teacher = NewMember((Reason("teacher", "minilm"),))
    with database.write() as session:
        pipeline = pipelines.create_pipeline(session, {"a": 1}, name=name, owner_kind="service")
        search = searches.create_search(session, {}, name=name, owner_kind="service")
        pipelines.set_pipeline_search(session, pipeline.id, search.id)
        jobs.set_status(session, search.id, "succeeded")
        jobs.set_status(session, pipeline.id, "running")
        pipelines.set_pipeline_stage(session, pipeline.id, "distillation")
        other = NewMember((Reason("random", "seed 0"),), SMALLER)
        ids = pipelines.add_members(
            session, pipeline.id, [teacher, chosen, other], ["a note to read"]
        )
        made = {"pipeline": pipeline.id, "search": search.id}
        made |= dict(zip(("teacher", "chosen", "other"), ids, strict=True))
        for role, status in (("chosen", "succeeded"), ("other", "running")):
            row = distillations.create_distillation(
                session, {}, SMALL, name=f"{name}-{role}", owner_kind="service"
            )
            jobs.set_status(session, row.id, status)  # type: ignore[arg-type]
            pipelines.set_member_distillation(session, made[role], row.id)
            made[f"{role} student"] = row.id
        pairs = [NewEvaluation("glue", "RTE", seed, {}) for seed in (0, 1)]
        first, second = evaluations.create_evaluations(
            session, pairs, model="/student", pipeline_member_id=made["chosen"]
        )
        evaluations.set_figures(session, first, {"main": 0.5})
    return made | {"evaluated": first, "queued": second}


def test_members_come_back_in_order_with_their_parts(database: Database) -> None:
    made = make(database)
    with database.read() as session:
        record = pipelines.get_pipeline(session, "whole")
        teacher, chosen, other = pipelines.list_members(session, record.id)
    assert (record.id, record.status, record.stage) == (made["pipeline"], "running", "distillation")
    assert record.notes == ["a note to read"]
    assert (teacher.role, teacher.architecture, teacher.distillation) == ("teacher", None, None)
    assert (chosen.role, chosen.figures, chosen.architecture) == ("chosen", FIGURES, SMALL)
    assert chosen.reasons == (Reason("chosen", "top 1"), Reason("baseline", "half"))
    assert chosen.distillation is not None
    assert chosen.distillation.id == made["chosen student"]
    assert [e.status for e in chosen.evaluations] == ["succeeded", "queued"]
    assert (other.role, other.evaluations, other.position) == ("random", (), 3)


def test_an_architecture_is_a_member_once(database: Database) -> None:
    made = make(database)
    with pytest.raises(Exception, match=r"(?i)unique"), database.write() as session:
        pipelines.add_members(
            session, made["pipeline"], [NewMember((Reason("chosen", "top 2"),), SMALL)]
        )


def test_an_architecture_is_there_once_more_undistilled(database: Database) -> None:
    """It is no student of its own in the list of pipelines."""
    start = NewMember((Reason("undistilled", "as it starts"),), SMALL)
    chosen = NewMember((Reason("chosen", "top 1"),), SMALL)
    with database.write() as session:
        pipeline = pipelines.create_pipeline(session, {}, name="starts")
        pipelines.add_members(session, pipeline.id, [chosen, start])
        members = pipelines.list_members(session, pipeline.id)
        (row,) = read_in_full(session, [pipeline.id], LISTING)
    assert [m.role for m in members] == ["chosen", "undistilled"]
    assert {m.architecture for m in members} == {SMALL}
    assert (row["num_students"], row["num_distilled"]) == (1, 0)


def test_pages_count_what_is_done(database: Database) -> None:
    made = make(database)
    make(database, "other-whole")
    with database.read() as session:
        wanted = {"status": ["running"], "q": "WHOLE"}
        first = list_jobs(session, wanted, LISTING, sort="name", limit=1)
        second = list_jobs(session, wanted, LISTING, sort="name", limit=1, cursor=first.next_cursor)
        none = list_jobs(session, {"owner_kind": "cli"}, LISTING)
        (whole,) = read_in_full(session, [made["pipeline"]], LISTING)
    assert [row["name"] for row in (*first.items, *second.items)] == ["whole", "other-whole"]
    counts = {"num_students": 2, "num_distilled": 1, "num_evaluations": 2, "num_evaluated": 1}
    assert {key: whole[key] for key in counts} == counts
    assert (whole["search_name"], whole["search_status"]) == ("whole", "succeeded")
    assert none.items == []
    _, chosen, other = whole["members"]
    assert chosen["distillation"]["name"] == "whole-chosen"
    assert [score["score"] for score in chosen["evaluations"]] == [0.5, None]
    assert other["distillation"]["status"] == "running"


def test_what_is_done_to_a_pipeline_is_done_to_its_parts(database: Database) -> None:
    made = make(database)

    def statuses() -> dict[str, str]:
        with database.read() as session:
            found = {
                "search": searches.get_search(session, made["search"]).status,
                "pipeline": pipelines.get_pipeline(session, made["pipeline"]).status,
            }
            for name in ("chosen student", "other student"):
                found[name] = distillations.get_distillation(session, made[name]).status
            for name in ("evaluated", "queued"):
                found[name] = evaluations.get_evaluation(session, made[name]).status
        return dict(found)

    done = {"search": "succeeded", "chosen student": "succeeded", "evaluated": "succeeded"}
    for action, after in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        with database.write() as session:
            apply_action(session, made["pipeline"], action)  # type: ignore[arg-type]
        changed = dict.fromkeys(("pipeline", "other student", "queued"), after)
        assert statuses() == done | changed
    with pytest.raises(ConflictError, match="start a new pipeline"), database.write() as session:
        apply_action(session, made["pipeline"], "resume")


def test_events_of_all_parts_are_the_pipelines(database: Database) -> None:
    made = make(database)
    with database.write() as session:
        pipelines.set_pipeline_search(session, made["pipeline"], made["search"])
        jobs.set_status(session, made["search"], "running")
        jobs.set_status(session, made["other student"], "failed", "why")
        jobs.set_status(session, made["queued"], "running")
    with database.read() as session:
        own = events.events_since(session, job_id=made["pipeline"])
        tail = events.start_of_tail(session, made["pipeline"], 2)
    assert [event.type for event in own[:3]] == [
        "pipeline_created",
        "search_status",
        "pipeline_status",
    ]
    assert [event.type for event in own[-3:]] == [
        "search_status",
        "distillation_status",
        "evaluation_status",
    ]
    assert [event.id for event in own if event.id > tail] == [own[-2].id, own[-1].id]


def test_deleting_keeps_results_and_ends_what_waits(database: Database) -> None:
    made = make(database)
    with pytest.raises(ConflictError, match="cancel it before"), database.write() as session:
        jobs.delete_job(session, made["pipeline"])
    with database.write() as session:
        jobs.set_status(session, made["pipeline"], "failed", "one student failed")
        jobs.delete_job(session, made["pipeline"])
    with database.read() as session:
        with pytest.raises(NotFoundError, match="there is no pipeline") as unknown:
            pipelines.get_pipeline(session, made["pipeline"])
        assert unknown.value.listed_in == "pipelines"
        assert session.get_one(Search, made["search"]).status == "succeeded"
        row = session.get_one(Evaluation, made["queued"])
        assert (row.status, row.pipeline_member_id) == ("cancelled", None)
        left = events.events_since(session)
    assert made["pipeline"] not in {event.root_job_id for event in left}
    assert (left[-1].type, left[-1].payload["job"]) == ("pipeline_deleted", made["pipeline"])
    assert left[-2].job_id == made["queued"]  # cancelled as a part of it: no page tells of it now
    assert left[-2].root_job_id is None
    assert not [event for event in left[:-1] if event.type.startswith("pipeline")]


def test_a_searchs_facts_come_back(database: Database) -> None:
    facts = SearchFacts(
        teacher={"layers": 2},
        embedding={"vocab_size": 9},
        axes={"layers": [1, 2]},
        head_multiple=2,
        allowed=[0, 5],
        latency_profile="p",
        family="bert-512",
        teacher_fingerprint="f",
        teacher_ms=3.5,
    )
    with database.write() as session:
        search = searches.create_search(session, {})
        assert searches.search_facts(session, search.id) is None
        searches.set_search_facts(session, search.id, facts)
    with database.read() as session:
        assert searches.search_facts(session, search.id) == facts
