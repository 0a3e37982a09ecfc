"""Jobs of every kind over REST: listed, read, changed and deleted, on both databases."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert
from structlog.testing import capture_logs

from api.http.schemas import Page
from api.jobs.schemas import JobDetail, JobShape
from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.lists.job_pages import SORTS
from kdnas.db.models import Job, LatencyBuild
from kdnas.db.queue import claims
from kdnas.db.queue.leases import LeaseOwner, this_host
from kdnas.db.repository import (
    distillations,
    evaluations,
    events,
    jobs,
    pipelines,
    searches,
)
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.settings import Settings
from kdnas.testing.job_rows import make_job
from kdnas.testing.truth import assert_shape

JOBS = "/api/v1/jobs"
SMALL = Architecture.parse("3,4,192,384,gelu")


@dataclass(frozen=True)
class Ids:
    """A pipeline and its search; a search and what was made from it; an evaluation; a build."""

    whole: str
    part: str
    alone: str
    made: str
    scored: str
    build: str


@pytest.fixture
def ids(database: Database) -> Ids:
    with database.write() as session:
        whole = pipelines.create_pipeline(session, {}, name="whole", owner_kind="service").id
        part = searches.create_search(
            session, {}, name="part", owner_kind="service", parent_id=whole
        ).id
        alone = searches.create_search(session, {"seed": 3}, name="alone", owner_kind="service").id
        made = distillations.create_distillation(
            session, {}, SMALL, name="made", owner_kind="service", search_id=alone
        ).id
        pair = NewEvaluation("glue", "RTE", 3, {})
        (scored,) = evaluations.create_evaluations(session, [pair], model="minilm")
        build = jobs.add_job(session, LatencyBuild, {}, stem="latency").id
        jobs.set_status(session, part, "running")
        jobs.set_status(session, part, "succeeded")
        jobs.set_status(session, made, "running")
        jobs.set_labels(session, alone, ["paper", "first"])
        jobs.set_labels(session, part, ["paper"])
    return Ids(whole, part, alone, made, scored, build)


def listed(client: TestClient, query: str = "") -> list[str]:
    answer = client.get(f"{JOBS}?{query}")
    assert answer.status_code == 200, answer.text
    assert_shape(Page[JobShape], answer.json())
    return [row["id"] for row in answer.json()["items"]]


@pytest.mark.databases("sqlite", "postgresql")
def test_what_users_asked_for_is_listed_the_newest_first(client: TestClient, ids: Ids) -> None:
    assert listed(client) == [ids.build, ids.scored, ids.made, ids.alone, ids.whole]
    everything = [ids.build, ids.scored, ids.made, ids.alone, ids.part, ids.whole]
    assert listed(client, "roots=false") == everything


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("kind=search", ["alone"]),
        ("kind=search&roots=false", ["alone", "part"]),
        ("kind=search&kind=pipeline", ["alone", "whole"]),
        ("kind=latency_build", ["build"]),
        ("status=running", ["made"]),
        ("status=running&status=succeeded&roots=false", ["made", "part"]),
        ("status=failed", []),
        ("label=paper", ["alone", "part"]),
        ("label=paper&label=first", ["alone"]),
        ("label=pap", []),
        ("name=AL", ["alone"]),
        ("name=a", ["made", "alone", "part"]),
        ("name=%25", []),
        ("parent=whole", ["part"]),
        ("parent=alone", []),
        ("kind=search&label=paper&status=succeeded", ["part"]),
    ],
)
def test_filters(client: TestClient, ids: Ids, query: str, names: list[str]) -> None:
    found = listed(client, query)
    if query.startswith("name=a"):  # pleasant names of evaluations and builds may have it as well
        found = [one for one in found if one not in (ids.scored, ids.build)]
    assert found == [getattr(ids, name) for name in names]


@pytest.mark.parametrize("sort", [sign + name for name in SORTS for sign in ("", "-")])
def test_pages_meet_without_gap_or_repeat(client: TestClient, ids: Ids, sort: str) -> None:
    whole = listed(client, f"roots=false&sort={sort}")
    found: list[str] = []
    query: str | None = f"roots=false&sort={sort}&limit=2"
    for _ in range(4):
        page = client.get(f"{JOBS}?{query}").json()
        found += [row["id"] for row in page["items"]]
        if page["next_cursor"] is None:
            break
        query = f"roots=false&sort={sort}&limit=2&cursor={page['next_cursor']}"
    assert found == whole
    assert len(whole) == 6


def test_a_cursor_is_that_of_its_list(client: TestClient, ids: Ids) -> None:
    cursor = client.get(f"{JOBS}?limit=1").json()["next_cursor"]
    assert listed(client, f"limit=1&cursor={cursor}") == [ids.scored]
    for other in ("roots=false", "kind=search", "sort=name", "label=paper", "status=running"):
        assert client.get(f"{JOBS}?limit=1&cursor={cursor}&{other}").status_code == 422


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("kind=serch", 422, "unknown kind of job 'serch', did you mean 'search'?"),
        ("kind=search&kind=dance", 422, "unknown kind of job 'dance'. Known: distillation, "),
        ("status=done", 422, "status"),
        ("parent=whol", 404, "there is no job 'whol'; did you mean 'whole'?"),
        ("sort=size", 422, "sort"),
        ("limit=0", 422, "limit"),
        ("colour=red", 422, "colour"),
        ("name=%00", 422, "name"),
    ],
)
def test_what_a_list_refuses(
    client: TestClient, ids: Ids, query: str, status: int, said: str
) -> None:
    answer = client.get(f"{JOBS}?{query}")
    assert answer.status_code == status
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("searches", "search"),
        ("distillations", "distillation"),
        ("evaluations", "evaluation"),
        ("pipelines", "pipeline"),
        ("latency-builds", "latency_build"),
    ],
)
def test_a_kind_shows_what_all_jobs_show_and_its_own_beside(
    client: TestClient, ids: Ids, path: str, kind: str
) -> None:
    own = client.get(f"/api/v1/{path}").json()["items"]
    rows = client.get(f"{JOBS}?kind={kind}&roots=false").json()["items"]
    assert [{name: row[name] for name in JobShape.model_fields} for row in own] == rows
    assert all(row.keys() > set(JobShape.model_fields) for row in own)
    one = client.get(f"/api/v1/{path}/{rows[0]['id']}").json()
    whole = client.get(f"{JOBS}/{rows[0]['id']}").json()
    common = JobDetail.model_fields.keys() - {"spec"}  # an evaluation has both of its in one
    assert {name: one[name] for name in common} == {name: whole[name] for name in common}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["alone", "part"]),
        ("roots=true", ["alone"]),
        ("roots=true&label=paper", ["alone", "part"]),
        ("label=paper&label=first", ["alone"]),
        ("name=PAR", ["part"]),
        ("q=PAR", ["part"]),
        ("parent=whole", ["part"]),
        ("owner_kind=cli", []),
    ],
)
def test_the_list_of_a_kind_has_the_filters_of_all(
    client: TestClient, ids: Ids, query: str, names: list[str]
) -> None:
    found = client.get(f"/api/v1/searches?{query}").json()["items"]
    assert [row["name"] for row in found] == names
    assert client.get(f"/api/v1/searches?{query}&kind=search").status_code == 422


@pytest.mark.databases("sqlite", "postgresql")
def test_a_parent_counts_its_children(client: TestClient, database: Database, ids: Ids) -> None:
    with database.write() as session:
        searches.create_search(session, {}, name="second", parent_id=ids.whole)
    found = client.get(f"{JOBS}/whole").json()
    assert (found["num_children"], found["num_children_ended"]) == (2, 1)
    child = client.get(f"{JOBS}/second").json()
    assert (child["parent_id"], child["num_children"]) == (ids.whole, 0)


@pytest.mark.databases("sqlite", "postgresql")
def test_one_is_read_by_id_and_by_name(client: TestClient, database: Database, ids: Ids) -> None:
    found = client.get(f"{JOBS}/{ids.alone}").json()
    assert_shape(JobDetail, found)
    assert client.get(f"{JOBS}/alone").json() == found
    assert (found["kind"], found["name"], found["status"]) == ("search", "alone", "queued")
    assert (found["requested"], found["resolved"]) == ({"seed": 3}, None)
    assert found["labels"] == ["paper", "first"]
    assert found["href"] == f"/searches/{ids.alone}"
    hrefs = {
        ids.whole: f"/pipelines/{ids.whole}",
        ids.made: f"/distillations/{ids.made}",
        ids.scored: f"/jobs/{ids.scored}",
        ids.build: f"/jobs/{ids.build}",
    }
    for one, href in hrefs.items():
        detail = client.get(f"{JOBS}/{one}").json()
        assert_shape(JobDetail, detail)
        assert detail["href"] == href
    with database.write() as session:
        jobs.resolve(session, ids.alone, {"seed": 3, "backend": {"num_workers": 2}})
    found = client.get(f"{JOBS}/alone").json()
    assert found["requested"] == {"seed": 3}
    assert found["resolved"]["backend"] == {"num_workers": 2}


def test_who_works_on_it_and_since_when(client: TestClient, database: Database, ids: Ids) -> None:
    owner = LeaseOwner.of_this_process("service")
    with database.write() as session:
        claim = claims.claim_next(session, ["search"], owner, 60)
    assert claim is not None
    assert claim.job_id == ids.alone
    with database.write() as session:
        assert jobs.note_phase(session, ids.alone, "latency table")
        jobs.note_progress(session, ids.alone, 2, 8)
    found = client.get(f"{JOBS}/alone").json()
    assert found["worker"] == f"{this_host().split('/')[0]}, process {owner.pid}"
    assert (found["status"], found["phase"]) == ("running", "latency table")
    assert found["phase_since"] is not None
    assert (found["done"], found["total"]) == (2, 8)
    assert found["remaining_seconds"] >= 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jobs/alon", "there is no job 'alon'; did you mean 'alone'?"),
        ("searches/alon", "there is no search 'alon'; did you mean 'alone'?"),
        ("searches/made", "there is no search 'made'"),
        ("latency-builds/zzz", "there is no latency build 'zzz'; GET /api/v1/jobs lists all"),
        ("jobs/%00", "there is no job '\\x00'"),
    ],
)
def test_an_unknown_one_is_not_found(client: TestClient, ids: Ids, path: str, said: str) -> None:
    for answer in (
        client.get(f"/api/v1/{path}"),
        client.patch(f"/api/v1/{path}", json={"note": "x"}),
        client.delete(f"/api/v1/{path}"),
    ):
        assert answer.status_code == 404
        assert said in answer.json()["detail"]


def test_a_name_of_two_kinds_is_not_guessed(
    client: TestClient, database: Database, ids: Ids
) -> None:
    with database.write() as session:
        other = pipelines.create_pipeline(session, {}, name="alone", owner_kind="service").id
    answer = client.get(f"{JOBS}/alone")
    assert answer.status_code == 409
    assert "'alone' is the name of" in answer.json()["detail"]
    assert "say which one by its id" in answer.json()["detail"]
    assert client.get("/api/v1/searches/alone").json()["id"] == ids.alone
    assert client.get("/api/v1/pipelines/alone").json()["id"] == other


@pytest.mark.parametrize(
    ("path", "reference"),
    [("jobs", "alone"), ("searches", "alone"), ("jobs", "build"), ("latency-builds", "build")],
)
def test_one_is_named_noted_and_labelled(
    client: TestClient, database: Database, ids: Ids, path: str, reference: str
) -> None:
    job_id = getattr(ids, reference)
    change = {"name": "best", "note": "look here", "labels": ["a", "b", "a"]}
    answer = client.patch(f"/api/v1/{path}/{job_id}", json=change)
    assert answer.status_code == 200, answer.text
    assert answer.json()["id"] == job_id
    found = client.get(f"{JOBS}/best").json()
    assert (found["id"], found["note"], found["labels"]) == (job_id, "look here", ["a", "b"])
    assert listed(client, "label=b") == [job_id]
    assert listed(client, "label=first") == [] if reference == "alone" else [ids.alone]
    client.patch(f"/api/v1/{path}/best", json={"note": "", "labels": []})
    found = client.get(f"{JOBS}/best").json()
    assert (found["name"], found["note"], found["labels"]) == ("best", None, [])
    assert listed(client, "label=b") == []
    with database.read() as session:
        renamed = [e for e in events.events_since(session) if e.type.endswith("_renamed")]
    assert [(e.type, e.job_id, e.payload["name"]) for e in renamed] == [
        (f"{found['kind']}_renamed", job_id, "best")
    ]


@pytest.mark.databases("sqlite", "postgresql")
def test_a_taken_name_is_refused_and_nothing_is_changed(client: TestClient, ids: Ids) -> None:
    answer = client.patch(f"{JOBS}/alone", json={"note": "late", "name": "part"})
    assert answer.status_code == 409
    assert "there is already a search named 'part' (succeeded)" in answer.json()["detail"]
    assert client.get(f"{JOBS}/alone").json()["note"] is None
    assert client.patch(f"{JOBS}/alone", json={"name": "whole"}).status_code == 200  # of a pipeline


@pytest.mark.parametrize("path", [JOBS, "/api/v1/searches"])
def test_one_is_paused_resumed_and_cancelled(client: TestClient, ids: Ids, path: str) -> None:
    for action, status in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        answer = client.patch(f"{path}/alone", json={"action": action, "note": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert client.get(f"{JOBS}/alone").json()["note"] == action
    refused = client.patch(f"{path}/alone", json={"action": "resume", "note": "again"})
    assert refused.status_code == 409
    assert "is cancelled, so it cannot be resumed; " in refused.json()["detail"]
    assert client.get(f"{JOBS}/alone").json()["note"] == "cancel"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({}, "nothing is to be changed; give action, name, note, labels or priority"),
        ({"name": None}, "nothing is to be changed"),
        ({"action": "dance"}, "action"),
        ({"name": "with space"}, "name"),
        ({"name": "../x"}, "name"),
        ({"labels": ["with space"]}, "labels.0"),
        ({"labels": ["x"] * 21}, "labels"),
        ({"note": "x" * 2001}, "note"),
        ({"note": "\0"}, "holds a NUL"),
        ({"priority": True}, "priority: give a whole number from -"),
        ({"status": "succeeded"}, "status"),
    ],
)
@pytest.mark.parametrize("path", [JOBS, "/api/v1/searches"])
@pytest.mark.databases("sqlite")
def test_a_wrong_change_is_refused(
    client: TestClient, ids: Ids, path: str, change: dict[str, Any], where: str
) -> None:
    answer = client.patch(f"{path}/alone", json=change)
    assert answer.status_code == 422
    assert where in answer.json()["detail"]


@pytest.mark.databases("sqlite", "postgresql")
def test_one_is_deleted(client: TestClient, database: Database, ids: Ids) -> None:
    for path in (f"{JOBS}/{ids.build}", f"/api/v1/evaluations/{ids.scored}"):
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == 404
        assert client.delete(path).status_code == 404
    assert listed(client) == [ids.made, ids.alone, ids.whole]
    with database.read() as session:
        assert events.events_since(session, job_id=ids.build) == []


@pytest.mark.parametrize("force", [False, True])
def test_one_that_runs_is_not_deleted(client: TestClient, ids: Ids, force: bool) -> None:
    answer = client.delete(f"{JOBS}/made?force={str(force).lower()}")
    assert answer.status_code == 409
    assert answer.json()["detail"] == (
        "distillation 'made' is running; cancel it before deleting it"
    )


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("path", [JOBS, "/api/v1/searches"])
def test_what_others_stand_on_is_deleted_with_force_alone(
    client: TestClient, ids: Ids, path: str
) -> None:
    for name, other in (("alone", "distillation 'made'"), ("part", "pipeline 'whole'")):
        answer = client.delete(f"{path}/{name}")
        assert answer.status_code == 409
        kind = f"search {name!r}"
        assert answer.json()["detail"].startswith(f"{other} stands on {kind}; delete it with force")
        assert client.get(f"{JOBS}/{name}").status_code == 200
        assert client.delete(f"{path}/{name}?force=true").status_code == 204
        assert client.get(f"{JOBS}/{name}").status_code == 404
    assert client.get(f"{JOBS}/made").json()["status"] == "running"
    assert client.get(f"{JOBS}/whole").json()["num_children"] == 0
    assert client.get("/api/v1/pipelines/whole").json()["search_id"] is None


@pytest.mark.databases("sqlite", "postgresql")
def test_a_parent_leaves_its_children(client: TestClient, database: Database, ids: Ids) -> None:
    with database.write() as session:
        late = searches.create_search(session, {}, name="late", parent_id=ids.whole).id
    assert client.delete(f"{JOBS}/whole").status_code == 204
    for name, status in (("part", "succeeded"), ("late", "cancelled")):  # nobody waits for it now
        found = client.get(f"{JOBS}/{name}").json()
        assert (found["status"], found["parent_id"]) == (status, None)
    assert set(listed(client, "kind=search")) == {ids.alone, ids.part, late}


def strange_job(database: Database) -> str:
    """A job whose kind no installed package brings."""
    with database.write() as session:
        row = {"id": "counting", "kind": "alchemy", "name": "to-ten", "requested": {"to": 10}}
        session.execute(insert(Job.__table__).values(row | {"status": "failed", "labels": []}))
    return "counting"


def test_a_job_that_nobody_can_run_is_read_changed_and_deleted(
    client: TestClient, database: Database, ids: Ids
) -> None:
    """The package that brought its kind was removed."""
    kind, made = "alchemy", strange_job(database)
    with database.write() as session:
        jobs.rename(session, made, "to-ten")
        jobs.locked_job(session, made).parent_id = ids.whole
        jobs.locked_job(session, ids.part).parent_id = made
    assert made in listed(client, "status=failed&roots=false")
    found = client.get(f"{JOBS}/to-ten").json()
    assert_shape(JobDetail, found)
    assert (found["id"], found["kind"], found["href"]) == (made, kind, f"/jobs/{made}")
    assert (found["parent_id"], found["num_children"]) == (ids.whole, 1)
    changed = client.patch(
        f"{JOBS}/{made}",
        json={"note": "x", "labels": ["old"], "name": "alone"},  # of a search, too
    )
    assert changed.status_code == 200, changed.text
    assert (changed.json()["name"], changed.json()["labels"]) == ("alone", ["old"])
    assert listed(client, "label=old") == [made]
    for action, status in (("resume", "queued"), ("pause", "paused"), ("cancel", "cancelled")):
        answer = client.patch(f"{JOBS}/{made}", json={"action": action})
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    refused = client.patch(f"{JOBS}/{made}", json={"action": "resume"})
    assert (refused.status_code, "is cancelled" in refused.json()["detail"]) == (409, True)
    assert client.get(f"{JOBS}/whole").json()["num_children"] == 1
    assert client.delete(f"{JOBS}/{made}").status_code == 409  # the pipeline stands on it
    with capture_logs() as logged:
        assert client.delete(f"{JOBS}/{made}?force=true").status_code == 204
    assert [(one["job"], one["kind"]) for one in logged if "files may be left" in one["event"]] == [
        (made, kind)
    ]
    assert client.get(f"{JOBS}/{made}").status_code == 404
    assert client.get(f"{JOBS}/part").json()["parent_id"] is None


def test_a_name_that_another_of_an_unknown_kind_has_is_refused(
    client: TestClient, database: Database, ids: Ids
) -> None:
    strange_job(database)
    with database.write() as session:
        row = {"id": "second", "kind": "alchemy", "name": "to-two", "requested": {}}
        session.execute(insert(Job.__table__).values(row | {"status": "failed", "labels": []}))
    answer = client.patch(f"{JOBS}/second", json={"name": "to-ten", "note": "late"})
    assert answer.status_code == 409
    assert "there is already an alchemy named 'to-ten' (failed); " in answer.json()["detail"]
    assert client.get(f"{JOBS}/second").json()["note"] is None


@pytest.mark.parametrize("kind", ["distillation", "evaluation"])
def test_what_is_claimed_while_it_is_deleted_keeps_its_checkpoints(
    client: TestClient, database: Database, settings: Settings, ids: Ids, kind: str
) -> None:
    made = make_job(database, kind)
    with database.write() as session:
        jobs.locked_job(session, made).requested = {"architecture": str(SMALL)}
    folder = settings.home / f"{kind}s" / made / "checkpoints"
    folder.mkdir(parents=True)
    claimed = threading.Event()

    def claim() -> None:
        with database.write() as session:
            jobs.set_status(session, made, "running")
            claimed.set()
            time.sleep(0.5)  # the deletion waits for the end of this

    claimer = threading.Thread(target=claim)
    claimer.start()
    claimed.wait()
    answer = client.delete(f"{JOBS}/{made}")
    claimer.join()
    assert (answer.status_code, "is running" in answer.json()["detail"]) == (409, True)
    assert folder.is_dir()
    assert client.patch(f"{JOBS}/{made}", json={"action": "pause"}).status_code == 200
    assert client.delete(f"{JOBS}/{made}").status_code == 204
    assert not folder.exists()
