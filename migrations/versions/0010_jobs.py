"""Jobs: state, request and lease of all kinds in one table, and events of one subject.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)
STATES = "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')"
OWNERS = "owner_kind IN ('cli', 'service')"
STATE: Mapping[str, Any] = {
    "status": sa.Text(),
    "error": sa.Text(),
    "created_at": MOMENT,
    "started_at": MOMENT,
    "finished_at": MOMENT,
    "lease_token": sa.Text(),
    "lease_owner_kind": sa.Text(),
    "lease_host": sa.Text(),
    "lease_pid": sa.Integer(),
    "lease_process_started": sa.Double(),
    "lease_expires_at": MOMENT,
}
"""Columns that every kind had, by the same names in ``jobs``."""


class Kind(NamedTuple):
    """A table of one kind as it was: what goes to ``jobs``, and how it is written there."""

    name: str
    table: str
    resolved: str = "NULL"  # the request with nothing left open, where it stood in its place
    named: bool = True
    owned: bool = True
    done: str = "NULL"
    total: str = "NULL"
    own: Mapping[str, tuple[Any, str]] = MappingProxyType({})  # column → type, SQL from j


KINDS = (
    Kind("search", "searches", "CASE WHEN facts IS NULL THEN NULL ELSE spec END"),
    Kind(
        "distillation",
        "distillations",
        "CASE WHEN total_steps IS NULL THEN NULL ELSE spec END",
        done="step",
        total="total_steps",
        own={
            "step": (sa.Integer(), "coalesce(j.done, 0)"),
            "total_steps": (sa.Integer(), "j.total"),
        },
    ),
    Kind("task_distillation", "task_distillations", owned=False),
    Kind(
        "evaluation",
        "evaluations",
        named=False,
        done="CAST(share * 1000 AS INTEGER)",
        total="1000",
        own={"share": (sa.Double(), "coalesce(1.0 * j.done / nullif(j.total, 0), 0.0)")},
    ),
    Kind("pipeline", "pipelines"),
    Kind(
        "latency_build",
        "latency_builds",
        named=False,
        owned=False,
        done="CAST(share * 100 AS INTEGER)",
        total="100",
        own={"share": (sa.Double(), "coalesce(1.0 * j.done / nullif(j.total, 0), 0.0)")},
    ),
)
SUBJECTS = {"search": "searches", "distillation": "distillations", "pipeline": "pipelines"}
ON_DELETE = {"search": "CASCADE", "distillation": "CASCADE", "pipeline": "SET NULL"}
CHILDREN = (
    "SELECT p.id FROM pipelines p WHERE p.search_id = jobs.id",
    "SELECT m.pipeline_id FROM pipeline_members m WHERE m.distillation_id = jobs.id",
    "SELECT m.pipeline_id FROM pipeline_members m JOIN evaluations e "
    "ON e.pipeline_member_id = m.id WHERE e.id = jobs.id",
)


def upgrade() -> None:
    _create_jobs()
    _create_coordinators()
    for kind in KINDS:
        _fill_jobs(kind)
    _take_requests_of_evaluations_apart()
    for parent in CHILDREN:
        op.execute(
            f"UPDATE jobs SET parent_id = ({parent} LIMIT 1) "
            "WHERE parent_id IS NULL AND kind <> 'pipeline'"
        )
    for kind in KINDS:
        _keep_only_its_own(kind)
    _events_of_jobs()


def downgrade() -> None:
    _events_of_subjects()
    for kind in KINDS:
        _give_back(kind)
    op.drop_table("coordinators")
    op.drop_table("job_labels")
    op.drop_table("jobs")


def _dialect() -> str:
    return op.get_bind().dialect.name


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("owner_kind", sa.Text(), nullable=False),
        sa.Column("requested", DOCUMENT, nullable=False),
        sa.Column("resolved", DOCUMENT, nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("phase_since", MOMENT, nullable=True),
        sa.Column("done", sa.Integer(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("labels", DOCUMENT, nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("worked_seconds", sa.Double(), nullable=False),
        *(
            sa.Column(name, kind, nullable=name not in {"status", "created_at"})
            for name, kind in STATE.items()
        ),
        sa.CheckConstraint(STATES, name=op.f("ck_jobs_status")),
        sa.CheckConstraint(OWNERS, name=op.f("ck_jobs_owner_kind")),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["jobs.id"], name=op.f("fk_jobs_parent_id_jobs"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("kind", "name", name=op.f("uq_jobs_kind_name")),
    )
    op.create_index(op.f("ix_jobs_kind_status_id"), "jobs", ["kind", "status", "id"])
    op.create_index(op.f("ix_jobs_kind_created_at_id"), "jobs", ["kind", "created_at", "id"])
    op.create_index(op.f("ix_jobs_created_at_id"), "jobs", ["created_at", "id"])
    op.create_index(op.f("ix_jobs_parent_id"), "jobs", ["parent_id"])
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "label", name=op.f("pk_job_labels")),
    )
    op.create_index(op.f("ix_job_labels_label_job_id"), "job_labels", ["label", "job_id"])


def _create_coordinators() -> None:
    op.create_table(
        "coordinators",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=False),
        sa.Column("num_running", sa.Integer(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_coordinators")),
    )


def _fill_jobs(kind: Kind) -> None:
    state = ", ".join(STATE)
    owner = "owner_kind" if kind.owned else "'service'"
    op.execute(
        "INSERT INTO jobs (id, kind, name, owner_kind, requested, resolved, done, total, labels, "
        f"worked_seconds, {state}) SELECT id, '{kind.name}', {'name' if kind.named else 'NULL'}, "
        f"{owner}, spec, {kind.resolved}, {kind.done}, {kind.total}, '[]', 0.0, {state} "
        f"FROM {kind.table}"
    )


def _take_requests_of_evaluations_apart() -> None:
    """An evaluation's spec had the request as one entry beside what decides its figures."""
    jobs = _jobs()
    connection = op.get_bind()
    rows = connection.execute(
        sa.select(jobs.c.id, jobs.c.requested).where(jobs.c.kind == "evaluation")
    ).all()
    for row_id, spec in rows:
        about = {name: value for name, value in spec.items() if name != "request"}
        connection.execute(
            jobs.update()
            .where(jobs.c.id == row_id)
            .values(requested=spec.get("request", about), resolved=about or None)
        )


def _put_requests_of_evaluations_back() -> None:
    jobs = _jobs()
    connection = op.get_bind()
    rows = connection.execute(
        sa.select(jobs.c.id, jobs.c.requested, jobs.c.resolved).where(jobs.c.kind == "evaluation")
    ).all()
    for row_id, requested, resolved in rows:
        of_service = resolved is None or requested != resolved
        spec = {**({"request": requested} if of_service else {}), **(resolved or {})}
        connection.execute(
            jobs.update().where(jobs.c.id == row_id).values(requested=spec, resolved=None)
        )


def _jobs() -> sa.TableClause:
    return sa.table(
        "jobs",
        sa.column("id", sa.Text()),
        sa.column("kind", sa.Text()),
        sa.column("requested", DOCUMENT),
        sa.column("resolved", DOCUMENT),
    )


def _keep_only_its_own(kind: Kind) -> None:
    """Take from a kind's table what is in ``jobs`` now."""
    table = kind.table
    with op.batch_alter_table(table) as batch_op:
        batch_op.drop_index(batch_op.f(f"ix_{table}_status_id"))
        batch_op.drop_constraint(batch_op.f(f"ck_{table}_status"), type_="check")
        if kind.owned:
            batch_op.drop_constraint(batch_op.f(f"ck_{table}_owner_kind"), type_="check")
            batch_op.drop_column("owner_kind")
        if kind.named:
            batch_op.drop_constraint(batch_op.f(f"uq_{table}_name"), type_="unique")
            batch_op.drop_column("name")
        for column in ("spec", *kind.own, *STATE):
            batch_op.drop_column(column)
        batch_op.create_foreign_key(
            batch_op.f(f"fk_{table}_id_jobs"), "jobs", ["id"], ["id"], ondelete="CASCADE"
        )


def _give_back(kind: Kind) -> None:
    """Give a kind's table back what was taken to ``jobs``."""
    if kind.name == "evaluation":
        _put_requests_of_evaluations_back()
    table = kind.table
    columns: dict[str, tuple[Any, str]] = {
        "spec": (DOCUMENT, "coalesce(j.resolved, j.requested)"),
        **({"name": (sa.Text(), "coalesce(j.name, j.id)")} if kind.named else {}),
        **({"owner_kind": (sa.Text(), "j.owner_kind")} if kind.owned else {}),
        **{name: (what, value) for name, (what, value) in kind.own.items()},
        **{name: (what, f"j.{name}") for name, what in STATE.items()},
    }
    with op.batch_alter_table(table) as batch_op:
        batch_op.drop_constraint(batch_op.f(f"fk_{table}_id_jobs"), type_="foreignkey")
        for name, (what, _) in columns.items():
            batch_op.add_column(sa.Column(name, what, nullable=True))
    for name, (_, value) in columns.items():
        op.execute(
            f"UPDATE {table} SET {name} = (SELECT {value} FROM jobs j WHERE j.id = {table}.id)"
        )
    required = {"spec", "name", "owner_kind", "step", "share", "status", "created_at"}
    with op.batch_alter_table(table) as batch_op:
        for name, (what, _) in columns.items():
            if name in required:
                batch_op.alter_column(name, existing_type=what, nullable=False)
        batch_op.create_check_constraint(batch_op.f(f"ck_{table}_status"), STATES)
        if kind.owned:
            batch_op.create_check_constraint(batch_op.f(f"ck_{table}_owner_kind"), OWNERS)
        if kind.named:
            batch_op.create_unique_constraint(batch_op.f(f"uq_{table}_name"), ["name"])
        batch_op.create_index(batch_op.f(f"ix_{table}_status_id"), ["status", "id"])


def _events_of_jobs() -> None:
    """An event had columns for three kinds, and named an evaluation in its payload."""
    with op.batch_alter_table("events") as batch_op:
        batch_op.add_column(sa.Column("job_id", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("root_job_id", sa.Text(), nullable=True))
    named = {
        "sqlite": "json_extract(events.payload, '$.evaluation')",
        "postgresql": "events.payload ->> 'evaluation'",
    }[_dialect()]
    evaluation = f"(SELECT e.id FROM evaluations e WHERE e.id = {named})"
    op.execute(
        f"UPDATE events SET job_id = coalesce({evaluation}, search_id, distillation_id, "
        f"pipeline_id), root_job_id = coalesce(pipeline_id, distillation_id, search_id, "
        f"{evaluation})"
    )
    with op.batch_alter_table("events", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        for subject, table in SUBJECTS.items():
            batch_op.drop_index(batch_op.f(f"ix_events_{subject}_id_id"))
            batch_op.drop_constraint(
                batch_op.f(f"fk_events_{subject}_id_{table}"), type_="foreignkey"
            )
            batch_op.drop_column(f"{subject}_id")
        for column, ending in (("job_id", "CASCADE"), ("root_job_id", "SET NULL")):
            batch_op.create_foreign_key(
                batch_op.f(f"fk_events_{column}_jobs"), "jobs", [column], ["id"], ondelete=ending
            )
            batch_op.create_index(batch_op.f(f"ix_events_{column}_id"), [column, "id"])


def _events_of_subjects() -> None:
    with op.batch_alter_table("events") as batch_op:
        for subject in SUBJECTS:
            batch_op.add_column(sa.Column(f"{subject}_id", sa.Text(), nullable=True))
    for subject, table in SUBJECTS.items():
        is_one = _is_one_of(table, ("job_id", "root_job_id"))
        op.execute(f"UPDATE events SET {subject}_id = {is_one}")
    kept = "search_id IS NOT NULL OR distillation_id IS NOT NULL OR pipeline_id IS NOT NULL"
    scored = "SELECT id FROM evaluations"
    op.execute(
        f"DELETE FROM events WHERE job_id IS NOT NULL AND NOT ({kept}) AND job_id NOT IN ({scored})"
    )
    with op.batch_alter_table("events", table_kwargs={"sqlite_autoincrement": True}) as batch_op:
        for column in ("job_id", "root_job_id"):
            batch_op.drop_index(batch_op.f(f"ix_events_{column}_id"))
            batch_op.drop_constraint(batch_op.f(f"fk_events_{column}_jobs"), type_="foreignkey")
            batch_op.drop_column(column)
        for subject, table in SUBJECTS.items():
            batch_op.create_foreign_key(
                batch_op.f(f"fk_events_{subject}_id_{table}"),
                table,
                [f"{subject}_id"],
                ["id"],
                ondelete=ON_DELETE[subject],
            )
            batch_op.create_index(batch_op.f(f"ix_events_{subject}_id_id"), [f"{subject}_id", "id"])


def _is_one_of(table: str, columns: Iterable[str]) -> str:
    found = [f"(SELECT x.id FROM {table} x WHERE x.id = events.{column})" for column in columns]
    return f"coalesce({', '.join(found)})"
