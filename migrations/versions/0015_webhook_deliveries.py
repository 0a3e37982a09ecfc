"""Messages of a webhook and what came of them, and which coordinators have a webhook.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
TABLE = "webhook_deliveries"
INDEXES = (("status", "event_id"), ("created_at", "id"), ("finished_at",), ("job_id",))


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=True),
        sa.Column("job_status", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("last_attempt_at", MOMENT, nullable=True),
        sa.Column("next_attempt_at", MOMENT, nullable=True),
        sa.Column("give_up_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "status IN ('pending', 'delivered', 'given_up')", name=op.f(f"ck_{TABLE}_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{TABLE}")),
        sa.UniqueConstraint("event_id", name=op.f(f"uq_{TABLE}_event_id")),
    )
    for columns in INDEXES:
        op.create_index(op.f(f"ix_{TABLE}_{'_'.join(columns)}"), TABLE, list(columns))
    op.add_column("coordinators", sa.Column("webhook_url", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("coordinators", "webhook_url")
    op.drop_table(TABLE)
