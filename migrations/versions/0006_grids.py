"""Grids of evaluations: their trials, and what was chosen.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "grids",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("trials", sa.JSON(), nullable=False),
        sa.Column("chosen", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_owner_kind", sa.Text(), nullable=True),
        sa.Column("lease_host", sa.Text(), nullable=True),
        sa.Column("lease_pid", sa.Integer(), nullable=True),
        sa.Column("lease_process_started", sa.Double(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grids")),
    )


def downgrade() -> None:
    op.drop_table("grids")
