"""Pipelines: their members, who is to do them, and events of all their parts.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STAGES = "stage IN ('search', 'distillation', 'evaluation', 'done')"
# SQLite copies the table, and would give out the numbers of deleted events again.
KEEP_COUNTING = {"sqlite_autoincrement": True}
ROLES = "role IN ('chosen', 'baseline', 'random', 'teacher')"


def upgrade() -> None:
    op.execute("DELETE FROM pipelines")  # nothing could make or run one until now
    with op.batch_alter_table("pipelines") as batch_op:
        batch_op.add_column(sa.Column("owner_kind", sa.Text(), nullable=False))
        batch_op.add_column(sa.Column("notes", sa.JSON(), nullable=False))
        batch_op.create_check_constraint(
            batch_op.f("ck_pipelines_owner_kind"), "owner_kind IN ('cli', 'service')"
        )
        batch_op.create_check_constraint(batch_op.f("ck_pipelines_stage"), STAGES)
    op.create_table(
        "pipeline_members",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("pipeline_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=True),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("distillation_id", sa.Text(), nullable=True),
        sa.CheckConstraint(ROLES, name=op.f("ck_pipeline_members_role")),
        sa.ForeignKeyConstraint(
            ["pipeline_id"],
            ["pipelines.id"],
            name=op.f("fk_pipeline_members_pipeline_id_pipelines"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["distillation_id"],
            ["distillations.id"],
            name=op.f("fk_pipeline_members_distillation_id_distillations"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_members")),
        sa.UniqueConstraint(
            "pipeline_id", "position", name=op.f("uq_pipeline_members_pipeline_id_position")
        ),
        sa.UniqueConstraint(
            "pipeline_id",
            "architecture",
            name=op.f("uq_pipeline_members_pipeline_id_architecture"),
        ),
    )
    op.create_index(
        op.f("ix_pipeline_members_distillation_id"), "pipeline_members", ["distillation_id"]
    )
    with op.batch_alter_table("evaluations") as batch_op:
        batch_op.add_column(sa.Column("pipeline_member_id", sa.Text(), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_evaluations_pipeline_member_id_pipeline_members"),
            "pipeline_members",
            ["pipeline_member_id"],
            ["id"],
            ondelete="SET NULL",
        )
        batch_op.create_index(
            batch_op.f("ix_evaluations_pipeline_member_id"), ["pipeline_member_id"]
        )
    with op.batch_alter_table("events", table_kwargs=KEEP_COUNTING) as batch_op:
        batch_op.add_column(sa.Column("pipeline_id", sa.Text(), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_events_pipeline_id_pipelines"),
            "pipelines",
            ["pipeline_id"],
            ["id"],
            ondelete="SET NULL",
        )
        batch_op.create_index(batch_op.f("ix_events_pipeline_id_id"), ["pipeline_id", "id"])
    op.add_column("searches", sa.Column("facts", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("searches", "facts")
    with op.batch_alter_table("events", table_kwargs=KEEP_COUNTING) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_pipeline_id_id"))
        batch_op.drop_constraint(batch_op.f("fk_events_pipeline_id_pipelines"), type_="foreignkey")
        batch_op.drop_column("pipeline_id")
    with op.batch_alter_table("evaluations") as batch_op:
        batch_op.drop_index(batch_op.f("ix_evaluations_pipeline_member_id"))
        batch_op.drop_constraint(
            batch_op.f("fk_evaluations_pipeline_member_id_pipeline_members"), type_="foreignkey"
        )
        batch_op.drop_column("pipeline_member_id")
    op.drop_table("pipeline_members")
    with op.batch_alter_table("pipelines") as batch_op:
        batch_op.drop_constraint(batch_op.f("ck_pipelines_stage"), type_="check")
        batch_op.drop_constraint(batch_op.f("ck_pipelines_owner_kind"), type_="check")
        batch_op.drop_column("notes")
        batch_op.drop_column("owner_kind")
