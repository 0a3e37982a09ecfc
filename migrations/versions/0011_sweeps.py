"""Sweeps: every state of a space, read or trained without a search.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("facts", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["id"], ["jobs.id"], name=op.f("fk_sweeps_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
    )
    op.create_table(
        "sweep_states",
        sa.Column("sweep_id", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("state_index", sa.Integer(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("readings", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("train_seconds", sa.Double(), nullable=False),
        sa.Column("finished_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["sweep_id"],
            ["sweeps.id"],
            name=op.f("fk_sweep_states_sweep_id_sweeps"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sweep_id", "seed", "state_index", name=op.f("pk_sweep_states")),
    )


def downgrade() -> None:
    op.drop_table("sweep_states")
    op.drop_table("sweeps")
