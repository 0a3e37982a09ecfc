"""Tokens of users, and whose a job is.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("last_used_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint("role IN ('operator', 'viewer')", name=op.f("ck_tokens_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.add_column("jobs", sa.Column("owner", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "owner")
    op.drop_table("tokens")
