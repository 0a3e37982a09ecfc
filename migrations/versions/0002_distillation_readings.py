"""Held-out readings of distillations.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "distillation_readings",
        sa.Column("distillation_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("loss_training", sa.Double(), nullable=False),
        sa.Column("loss_mean", sa.Double(), nullable=False),
        sa.Column("loss_relative", sa.Double(), nullable=False),
        sa.Column("loss_output", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["distillation_id"],
            ["distillations.id"],
            name=op.f("fk_distillation_readings_distillation_id_distillations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("distillation_id", "step", name=op.f("pk_distillation_readings")),
    )


def downgrade() -> None:
    op.drop_table("distillation_readings")
