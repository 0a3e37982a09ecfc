"""Distillations for one task: a job is of several methods and seeds, each of which is a run.

What a job of before was by its method and seed stays in its request; nothing has ever written one.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
DOCUMENT = sa.JSON(none_as_null=True)
TABLE = "task_distillations"


def upgrade() -> None:
    with op.batch_alter_table(TABLE) as batch_op:
        batch_op.drop_index(batch_op.f(f"ix_{TABLE}_task_method"))
        for column in ("method", "seed", "metrics", "artefact"):
            batch_op.drop_column(column)
        batch_op.add_column(sa.Column("student", sa.Text(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("facts", DOCUMENT, nullable=True))
    with op.batch_alter_table(TABLE) as batch_op:
        batch_op.alter_column("student", existing_type=sa.Text(), server_default=None)
        batch_op.create_index(batch_op.f(f"ix_{TABLE}_task"), ["task"])
    op.create_table(
        "task_distillation_runs",
        sa.Column("task_distillation_id", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("main", sa.Double(), nullable=True),
        sa.Column("metrics", DOCUMENT, nullable=False),
        sa.Column("held_out", sa.Double(), nullable=True),
        sa.Column("chosen", DOCUMENT, nullable=False),
        sa.Column("curve", DOCUMENT, nullable=False),
        sa.Column("attention", DOCUMENT, nullable=False),
        sa.Column("samples", DOCUMENT, nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("finished_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["task_distillation_id"],
            [f"{TABLE}.id"],
            name=op.f("fk_task_distillation_runs_task_distillation_id_task_distillations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "task_distillation_id", "method", "seed", name=op.f("pk_task_distillation_runs")
        ),
    )


def downgrade() -> None:
    op.drop_table("task_distillation_runs")
    with op.batch_alter_table(TABLE) as batch_op:
        batch_op.drop_index(batch_op.f(f"ix_{TABLE}_task"))
        for column in ("student", "facts"):
            batch_op.drop_column(column)
        batch_op.add_column(sa.Column("method", sa.Text(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("seed", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("metrics", DOCUMENT, nullable=False, server_default="{}"))
        batch_op.add_column(sa.Column("artefact", sa.Text(), nullable=True))
    with op.batch_alter_table(TABLE) as batch_op:
        for column, kind in (("method", sa.Text()), ("seed", sa.Integer()), ("metrics", DOCUMENT)):
            batch_op.alter_column(column, existing_type=kind, server_default=None)
        batch_op.create_index(batch_op.f(f"ix_{TABLE}_task_method"), ["task", "method"])
