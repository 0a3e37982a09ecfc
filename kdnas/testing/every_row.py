"""A small database with rows in every table and every kind of work in every state.

    python -m kdnas.testing.every_row tests/data/databases

writes one SQLite file and one PostgreSQL dump of the newest revision. Those of older revisions stay
as they were made, so that migrations are tried on what older programs wrote.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import count, product
from pathlib import Path
from typing import Any

import psycopg

from kdnas.architecture import Architecture
from kdnas.db import migrate
from kdnas.db import models as m
from kdnas.db.engine import Database, Session, parse_url
from kdnas.db.models.values import (
    ATTEMPT_OUTCOMES,
    CANDIDATE_STATUSES,
    DELIVERY_STATUSES,
    FINAL_STATUSES,
    MEMBER_ROLES,
    OWNER_KINDS,
    PIPELINE_STAGES,
    STATUSES,
)
from kdnas.records import CANDIDATE_ENDS, MiniKDContext, SweepFacts, TaskRun
from kdnas.search_space import SearchSpace
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.testing import demo_data, demo_tasks
from kdnas.testing.postgres import fresh_database, programs, running_server
from kdnas.testing.walked_pipeline import pipeline_spec

BEGAN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
STUDENT = "3,4,288,512,gelu"
LEASE = {
    "lease_token": "token-1",
    "lease_owner_kind": "service",
    "lease_host": "node-1",
    "lease_pid": 4242,
    "lease_process_started": 1772442000.25,
    "lease_expires_at": BEGAN + timedelta(minutes=2),
}


SWEPT = SweepFacts(
    axes={axis: list(values) for axis, values in SearchSpace.paper().axes.items()},
    head_multiple=1,
    num_states=len(SearchSpace.paper()),
    drawn=[7],
    context=asdict(
        MiniKDContext(
            teacher="teacher-artefact",
            corpus="corpus-artefact",
            objective={"name": "hs"},
            student={"init": "teacher"},
            proxy={"seed": 0, "steps": 60, "held_out": 256},
            dtype="float32",
            engine_version="7",
        )
    ),
    latency_profile="cpu-fingerprint",
    family="bert",
    teacher_fingerprint="teacher-fingerprint",
    teacher_ms=41.5,
    embedding={"vocab_size": 30522},
)
PHASE = {"phase": "training", "phase_since": BEGAN + timedelta(minutes=1), "worked_seconds": 4.5}


def fill(session: Session) -> None:
    """Write the rows into an empty, migrated database; the same ones each time."""
    numbers = count(1)
    profile = m.LatencyProfile(
        id="profile-1",
        fingerprint="cpu-fingerprint",
        family="bert",
        teacher_fingerprint="teacher-fingerprint",
        device="cpu",
        runtime="eager",
        num_threads=1,
        dtype="float32",
        length_tokens=128,
        node="node-1",
        teacher_ms=41.5,
        quality={"r2": 0.99},
        build_seconds=50.0,
        created_at=BEGAN,
        completed_at=BEGAN + timedelta(minutes=1),
    )
    latency = m.Latency(
        profile_id="profile-1", architecture=STUDENT, latency_ms=9.5, spread_ms=0.2, measured=True
    )
    context = m.MiniKDContext(fingerprint="context-1", content={"seed": 0}, created_at=BEGAN)
    unknown = m.MiniKDContext(fingerprint="context-2", content=None, created_at=BEGAN)
    _add(session, profile, latency, context, unknown)
    loss = m.DistillationLoss(
        context="context-1",
        architecture=STUDENT,
        repeat=1,
        loss_training=0.4,
        loss_mean=0.3,
        loss_relative=0.25,
        loss_output=0.45,
        loss_start=0.5,
        curve=[[1, 0.9, 1e-4], [60, 0.4, 1e-5]],
        num_steps=60,
        train_seconds=12.5,
        created_at=BEGAN,
    )
    _add(session, loss)
    for status, owner in product(STATUSES, OWNER_KINDS):
        ending = f"{status}-{owner}"
        _search(session, ending, status, owner, loss.id, numbers)
        _sweep(session, ending, status, owner)
        _distillation(session, ending, status, owner)
        _evaluation(session, ending, status, owner)
        _pipeline(session, ending, status, owner)
        _task_distillation(session, ending, status, owner)
    for status in STATUSES:
        _add(
            session,
            m.LatencyBuild(
                id=f"latency-{status}",
                requested={
                    "teacher": {"ref": "bert-base-uncased"},
                    "latency": {"device": "cpu"},
                    "space": "paper",
                },
                done=100 if status == "succeeded" else 25,
                total=100,
                profile_id="profile-1" if status == "succeeded" else None,
                **_work(status),
            ),
        )
    _add(
        session,
        m.Grid(
            id="grid-1",
            model="bert-base-uncased",
            task="RTE",
            trials=[{"learning_rate": 2e-5, "score": 0.6}],
            chosen={"learning_rate": 2e-5, "score": 0.6},
            created_at=BEGAN,
        ),
        m.Grid(
            id="grid-2",
            model="bert-base-uncased",
            task="CoLA",
            trials=[],
            chosen=None,
            created_at=BEGAN,
            **LEASE,
        ),
        m.CoordinatorRow(
            id="token-1",
            host="node-1",
            pid=4242,
            max_running=2,
            num_running=1,
            started_at=BEGAN,
            seen_at=BEGAN,
            webhook_url="https://example.org/hook",
        ),
        m.Token(
            id="anna000001",
            name="anna",
            role="operator",
            digest=bytes(range(32)),
            expires_at=BEGAN + timedelta(days=30),
            last_used_at=BEGAN + timedelta(minutes=2),
            revoked_at=None,
            created_at=BEGAN,
        ),
        m.Token(
            id="bob0000001",
            name="bob",
            role="viewer",
            digest=bytes(range(1, 33)),
            expires_at=None,
            last_used_at=None,
            revoked_at=BEGAN + timedelta(days=1),
            created_at=BEGAN,
        ),
        *(_delivery(number, status) for number, status in enumerate(DELIVERY_STATUSES, start=1)),
        m.IdempotencyKey(
            route="POST /api/v1/searches",
            key="key-1",
            request_fingerprint="request-1",
            response_status=201,
            response={"id": "search-queued-service"},
            created_at=BEGAN,
        ),
        m.IdempotencyKey(
            route="POST /api/v1/searches",
            key="key-2",
            request_fingerprint="request-2",
            response_status=None,
            response=None,
            created_at=BEGAN,
        ),
    )


def _delivery(number: int, status: str) -> m.WebhookDelivery:
    """A message of a webhook about a search that was deleted since."""
    is_over = status != "pending"
    return m.WebhookDelivery(
        id=f"delivery-{status}",
        event_id=number,
        type="search_status",
        kind="search",
        job_id=f"gone-{number}",
        job_name=f"gone-{number}",
        job_status="succeeded",
        url="https://example.org/hook",
        body=f'{{"event": {number}}}',
        status=status,
        num_attempts=2,
        detail="the receiver answered 204" if status == "delivered" else "Connection refused",
        created_at=BEGAN,
        last_attempt_at=BEGAN + timedelta(seconds=4),
        next_attempt_at=None if is_over else BEGAN + timedelta(seconds=6),
        give_up_at=BEGAN + timedelta(days=1),
        finished_at=BEGAN + timedelta(seconds=5) if is_over else None,
    )


def _add(session: Session, *rows: Any) -> None:
    """Write rows one after the other: no relationship tells SQLAlchemy which comes first."""
    for row in rows:
        session.add(row)
        session.flush()


def _work(status: str) -> dict[str, Any]:
    """State, times, error and lease of a piece of work."""
    return {
        "status": status,
        "error": "the teacher is gone" if status == "failed" else None,
        "created_at": BEGAN,
        "started_at": None if status == "queued" else BEGAN + timedelta(minutes=1),
        "finished_at": BEGAN + timedelta(minutes=9) if status in FINAL_STATUSES else None,
        **({**LEASE, **PHASE} if status == "running" else {}),
    }


def _search(
    session: Session, ending: str, status: str, owner: str, loss: int, numbers: count[int]
) -> None:
    search = f"search-{ending}"
    _add(
        session,
        m.Search(
            id=search,
            name=search,
            requested=demo_data.spec(search, episodes=1),
            resolved=None if status == "queued" else demo_data.spec(search, episodes=1),
            note="the one of March" if status == "succeeded" else None,
            labels=["march"] if status == "succeeded" else [],
            facts=None if status == "queued" else {"head_multiple": 1, "warnings": []},
            owner_kind=owner,
            owner="anna" if owner == "service" else None,
            **_work(status),
        ),
    )
    _add(
        session,
        m.Event(
            job_id=search,
            root_job_id=search,
            type=f"search_{status}",
            payload={"search_id": search, "status": status},
            created_at=BEGAN,
        ),
    )
    if status == "succeeded":
        _add(session, m.JobLabel(job_id=search, label="march"))
    if status == "queued":
        return
    _add(
        session,
        m.Episode(
            search_id=search,
            number=1,
            epsilon=0.9,
            global_best=None,
            previous_best=None,
            controller_loss=None,
            started_at=BEGAN,
            finished_at=BEGAN if status in FINAL_STATUSES else None,
        ),
    )
    states = SearchSpace.paper().states
    for position, candidate_status in enumerate(CANDIDATE_STATUSES):
        number = next(numbers)
        architecture: Architecture = states[position]
        candidate = f"candidate-{number}"
        good = candidate_status == "succeeded"
        stopped = candidate_status == "stopped"
        ended = candidate_status in CANDIDATE_ENDS
        outcomes = (*ATTEMPT_OUTCOMES, None) if candidate_status == "running" else ()
        _add(
            session,
            m.Candidate(
                id=candidate,
                search_id=search,
                episode=1,
                position=position,
                state_index=position,
                architecture=str(architecture),
                layers=architecture.layers,
                heads=architecture.heads,
                hidden=architecture.hidden,
                intermediate=architecture.intermediate,
                activation=architecture.activation,
                source="random",
                status=candidate_status,
                latency_ms=9.5,
                latency_ratio=0.25,
                params_millions=14.5,
                loss_relative=0.25 if good else None,
                reward=0.5 if good else None,
                distillation_loss_id=loss if good else None,
                error="out of memory" if candidate_status == "failed" else None,
                note="stopped after 30 of 120 steps" if stopped else None,
                readings=[[30, 0.5, 0.25, 0.75, 0.125]] if good or stopped else None,
                num_steps=120 if good else 30 if stopped else None,
                created_at=BEGAN,
                num_attempts=len(outcomes),
                finished_at=BEGAN if ended else None,
            ),
        )
        _add(
            session,
            m.SearchState(
                search_id=search,
                state_index=position,
                architecture=str(architecture),
                num_candidates=1,
                num_finished=int(ended),
                num_attempts=len(outcomes),
                trained=good,
                failed=candidate_status == "failed",
                stopped=stopped,
                candidate_id=candidate if good else None,
            ),
        )
        for outcome in outcomes:
            _add(
                session,
                m.Attempt(
                    candidate_id=candidate,
                    worker="node-1",
                    outcome=outcome,
                    error="killed" if outcome == "interrupted" else None,
                    started_at=BEGAN,
                    finished_at=BEGAN if outcome else None,
                ),
            )
    _add(
        session,
        m.ControllerState(search_id=search, episode=1, state=b"\x00\x01state", created_at=BEGAN),
    )


def _sweep(session: Session, ending: str, status: str, owner: str) -> None:
    sweep = f"sweep-{ending}"
    asked = {"steps": [0, 60], "seeds": [0], "teacher": {"ref": "minilm"}}
    _add(
        session,
        m.Sweep(
            id=sweep,
            name=sweep,
            requested=asked,
            resolved=None if status == "queued" else asked,
            facts=None if status == "queued" else SWEPT.to_json(),
            owner_kind=owner,
            **_work(status),
        ),
    )
    if status != "queued":
        readings = [[0, 0.1, 0.4, 0.6, None], [60, 0.09, 0.35, 0.55, 0.7]]
        failed = status == "failed"
        _add(
            session,
            m.SweepState(
                sweep_id=sweep,
                seed=0,
                state_index=7,
                architecture=STUDENT,
                readings=[] if failed else readings,
                error="out of memory" if failed else None,
                train_seconds=12.5,
                finished_at=BEGAN,
            ),
        )


def _task_distillation(session: Session, ending: str, status: str, owner: str) -> None:
    job = f"task-{ending}"
    asked = TaskDistillationSpec(name=job, task="RTE", methods=("universal-kd-il",)).to_json()
    _add(
        session,
        m.TaskDistillation(
            id=job,
            name=job,
            requested=asked,
            resolved=None if status == "queued" else asked,
            task="RTE",
            student="first-layers:3",
            facts=None if status == "queued" else demo_tasks.task_facts().to_json(),
            owner_kind=owner,
            **_work(status),
        ),
    )
    if status != "queued":
        run = demo_tasks.task_run("universal-kd-il", 0, epochs=1, samples=1)
        if status == "failed":
            run = TaskRun("universal-kd-il", 0, error="out of memory")
        _add(
            session,
            m.TaskDistillationRun(task_distillation_id=job, finished_at=BEGAN, **run.to_json()),
        )


def _distillation(session: Session, ending: str, status: str, owner: str) -> None:
    distillation = f"distillation-{ending}"
    _add(
        session,
        m.Distillation(
            id=distillation,
            name=distillation,
            architecture=STUDENT,
            requested={"architecture": STUDENT, "training": {"steps": 100}},
            owner_kind=owner,
            search_id=f"search-{ending}" if owner == "service" else None,
            done=100 if status == "succeeded" else 40,
            total=None if status == "queued" else 100,
            metrics={"relative": 0.2} if status == "succeeded" else {},
            artefact=f"distillations/{distillation}" if status == "succeeded" else None,
            output_path=None,
            **_work(status),
        ),
    )
    _add(
        session,
        m.DistillationCurvePoint(
            distillation_id=distillation, step=10, loss=0.5, learning_rate=1e-3
        ),
        m.DistillationReading(
            distillation_id=distillation,
            step=0,
            loss_training=0.6,
            loss_mean=0.5,
            loss_relative=0.4,
            loss_output=0.7,
        ),
        m.Event(
            job_id=distillation,
            root_job_id=distillation,
            type=f"distillation_{status}",
            payload={"distillation_id": distillation, "status": status},
            created_at=BEGAN,
        ),
    )


def _evaluation(session: Session, ending: str, status: str, owner: str) -> None:
    evaluation = f"evaluation-{ending}"
    _add(
        session,
        m.Evaluation(
            id=evaluation,
            model=f"distillation:distillation-{ending}",
            distillation_id=f"distillation-{ending}",
            suite="glue",
            task="SST-2",
            seed=0,
            requested={"suite": "glue", "tasks": ["SST-2"], "seeds": 1},
            owner_kind=owner,
            resolved={"key": "key-1"} if status == "succeeded" else None,
            done=100 if status == "succeeded" else 50,
            total=100,
            metrics={"accuracy": 0.9} if status == "succeeded" else {},
            **_work(status),
        ),
    )
    _add(
        session,
        m.Event(
            job_id=evaluation,
            root_job_id=f"distillation-{ending}",
            type=f"evaluation_{status}",
            payload={"evaluation": evaluation, "status": status},
            created_at=BEGAN,
        ),
    )


def _pipeline(session: Session, ending: str, status: str, owner: str) -> None:
    for stage in PIPELINE_STAGES:
        pipeline = f"pipeline-{ending}-{stage}"
        _add(
            session,
            m.Pipeline(
                id=pipeline,
                name=pipeline,
                requested=pipeline_spec(name=pipeline).to_json(),
                owner_kind=owner,
                stage=stage,
                search_id=f"search-{ending}",
                notes=["no student is under the budget 0.1"],
                **_work(status),
            ),
        )
        _add(
            session,
            m.Event(
                job_id=pipeline,
                root_job_id=pipeline,
                type=f"pipeline_{status}",
                payload={"pipeline_id": pipeline, "status": status},
                created_at=BEGAN,
            ),
        )
    # The last one, which is done, has members, one of them evaluated for it.
    for position, role in enumerate(MEMBER_ROLES):
        student = role not in ("teacher", "variant")
        _add(
            session,
            m.PipelineMember(
                id=f"member-{ending}-{role}",
                pipeline_id=pipeline,
                position=position,
                role=role,
                architecture=STUDENT if student else None,
                reasons=[{"role": role, "about": ""}],
                figures={"latency_ms": 9.5},
                variant={"layers": 1} if role == "variant" else None,
                distillation_id=f"distillation-{ending}" if role == "chosen" else None,
            ),
        )
    _add(
        session,
        m.Evaluation(
            id=f"evaluation-of-member-{ending}",
            model="bert-base-uncased",
            pipeline_member_id=f"member-{ending}-chosen",
            parent_id=pipeline,
            suite="glue",
            task="RTE",
            seed=1,
            requested={"suite": "glue", "tasks": ["RTE"], "seeds": 2},
            owner_kind=owner,
            **_work(status),
        ),
    )


def counted(database: Database) -> dict[str, int]:
    """Rows of each table."""
    with database.read() as session:
        tables = migrate.METADATA.tables
        return {name: session.query(tables[name]).count() for name in sorted(migrate.our_tables())}


def write_both(folder: Path) -> None:
    """Write a SQLite file and a PostgreSQL dump, packed and named by their revision."""
    revision = migrate.head()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "kdnas.db"
        _make(f"sqlite:///{path}")
        _pack(folder / f"{revision}.db.gz", path.read_bytes())
    with running_server() as server, fresh_database(server) as url:
        _make(url)
        _pack(folder / f"{revision}.sql.gz", _dumped(url).encode())


def read_back(file: Path, url: str) -> None:
    """Write what a file holds into an empty database of its dialect."""
    content = gzip.decompress(file.read_bytes())
    if file.name.endswith(".db.gz"):
        Path(url.removeprefix("sqlite:///")).write_bytes(content)
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(content)


def _pack(file: Path, content: bytes) -> None:
    file.write_bytes(gzip.compress(content, mtime=0))


def _make(url: str) -> None:
    migrate.upgrade(url)
    with Database(parse_url(url)) as database:
        with database.write() as session:
            fill(session)
        if empty := [name for name, rows in counted(database).items() if not rows]:
            raise SystemExit(f"no rows in {', '.join(empty)}: write some in {__file__}")


def _dumped(url: str) -> str:
    """What ``pg_dump`` says, as INSERTs that any client can send to any server."""
    program = programs() / "pg_dump"
    options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments"]
    done = subprocess.run([program, *options, url], check=True, stdout=subprocess.PIPE, text=True)
    # A backslash begins a command of psql's alone; settings are not the same in every version.
    strange = ("\\", "SET ")
    return "".join(x for x in done.stdout.splitlines(True) if not x.startswith(strange))


if __name__ == "__main__":
    write_both(Path(sys.argv[1]))
