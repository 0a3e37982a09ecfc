"""Members of a pipeline that are the teacher itself, made smaller without distilling.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ROLES = "role IN ('chosen', 'baseline', 'random', 'teacher', 'variant')"
ROLES_BEFORE = "role IN ('chosen', 'baseline', 'random', 'teacher')"


def upgrade() -> None:
    _replace_roles(ROLES)
    op.add_column("pipeline_members", sa.Column("variant", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("pipeline_members", "variant")
    op.execute("DELETE FROM pipeline_members WHERE role = 'variant'")
    _replace_roles(ROLES_BEFORE)


def _replace_roles(roles: str) -> None:
    with op.batch_alter_table("pipeline_members") as batch_op:
        batch_op.drop_constraint(batch_op.f("ck_pipeline_members_role"), type_="check")
        batch_op.create_check_constraint(batch_op.f("ck_pipeline_members_role"), roles)
