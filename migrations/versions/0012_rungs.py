"""Candidates whose training a rung has stopped: readings on the way, and steps made.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

STATUSES = "status IN ('proposed', 'running', 'succeeded', 'failed', 'stopped')"
STATUSES_BEFORE = "status IN ('proposed', 'running', 'succeeded', 'failed')"
OUTCOMES = "outcome IN ('succeeded', 'failed', 'stopped', 'interrupted')"
OUTCOMES_BEFORE = "outcome IN ('succeeded', 'failed', 'interrupted')"


def upgrade() -> None:
    op.add_column("candidates", sa.Column("readings", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("candidates", sa.Column("num_steps", sa.Integer(), nullable=True))
    _replace("candidates", "status", STATUSES)
    _replace("attempts", "outcome", OUTCOMES)
    stopped = sa.Column("stopped", sa.Boolean(), nullable=False, server_default=sa.false())
    op.add_column("search_states", stopped)
    with op.batch_alter_table("search_states") as batch_op:
        batch_op.alter_column("stopped", server_default=None)


def downgrade() -> None:
    op.execute("UPDATE search_states SET failed = stopped OR failed")
    op.drop_column("search_states", "stopped")
    op.execute(
        "UPDATE attempts SET outcome = 'failed', error = 'stopped' WHERE outcome = 'stopped'"
    )
    _replace("attempts", "outcome", OUTCOMES_BEFORE)
    op.execute("UPDATE candidates SET status = 'failed', error = note WHERE status = 'stopped'")
    _replace("candidates", "status", STATUSES_BEFORE)
    op.drop_column("candidates", "num_steps")
    op.drop_column("candidates", "readings")


def _replace(table: str, column: str, values: str) -> None:
    name = f"ck_{table}_{column}"
    with op.batch_alter_table(table) as batch_op:
        batch_op.drop_constraint(batch_op.f(name), type_="check")
        batch_op.create_check_constraint(batch_op.f(name), values)
