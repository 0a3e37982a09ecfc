"""Evaluations by the service: who started one, and how far it is.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("evaluations") as batch_op:
        batch_op.add_column(sa.Column("owner_kind", sa.Text(), nullable=True))
        batch_op.add_column(sa.Column("share", sa.Double(), nullable=True))
    # Until now the command line alone has evaluated.
    op.execute(
        "UPDATE evaluations SET owner_kind = 'cli', "
        "share = CASE WHEN status = 'succeeded' THEN 1.0 ELSE 0.0 END"
    )
    with op.batch_alter_table("evaluations") as batch_op:
        batch_op.alter_column("owner_kind", existing_type=sa.Text(), nullable=False)
        batch_op.alter_column("share", existing_type=sa.Double(), nullable=False)
        batch_op.create_check_constraint(
            batch_op.f("ck_evaluations_owner_kind"), "owner_kind IN ('cli', 'service')"
        )


def downgrade() -> None:
    with op.batch_alter_table("evaluations") as batch_op:
        batch_op.drop_constraint(batch_op.f("ck_evaluations_owner_kind"), type_="check")
        batch_op.drop_column("share")
        batch_op.drop_column("owner_kind")
