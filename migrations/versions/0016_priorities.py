"""Which of a user's jobs comes first, and how many of them run at a time.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("coordinators", sa.Column("max_of_a_user", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("coordinators", "max_of_a_user")
    op.drop_column("jobs", "priority")
