"""The held-out relative loss of a student before its first step.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INDEX = "ix_candidates_search_id_loss_start_id"


def upgrade() -> None:
    op.add_column("distillation_losses", sa.Column("loss_start", sa.Double(), nullable=True))
    op.add_column("candidates", sa.Column("loss_start", sa.Double(), nullable=True))
    op.create_index(op.f(INDEX), "candidates", ["search_id", "loss_start", "id"])


def downgrade() -> None:
    op.drop_index(op.f(INDEX), "candidates")
    op.drop_column("candidates", "loss_start")
    op.drop_column("distillation_losses", "loss_start")
