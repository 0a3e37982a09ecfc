"""Members of a pipeline that are its students as they start, undistilled.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from alembic import op
from alembic.operations import BatchOperations

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ROLES = "role IN ('chosen', 'baseline', 'random', 'undistilled', 'teacher', 'variant')"
ROLES_BEFORE = "role IN ('chosen', 'baseline', 'random', 'teacher', 'variant')"
UNIQUE = "uq_pipeline_members_pipeline_id_architecture_role"
UNIQUE_BEFORE = "uq_pipeline_members_pipeline_id_architecture"


def upgrade() -> None:
    with op.batch_alter_table("pipeline_members") as batch_op:
        _replace_roles(batch_op, ROLES)
        batch_op.drop_constraint(batch_op.f(UNIQUE_BEFORE), type_="unique")
        batch_op.create_unique_constraint(
            batch_op.f(UNIQUE), ["pipeline_id", "architecture", "role"]
        )


def downgrade() -> None:
    op.execute("DELETE FROM pipeline_members WHERE role = 'undistilled'")
    with op.batch_alter_table("pipeline_members") as batch_op:
        _replace_roles(batch_op, ROLES_BEFORE)
        batch_op.drop_constraint(batch_op.f(UNIQUE), type_="unique")
        batch_op.create_unique_constraint(
            batch_op.f(UNIQUE_BEFORE), ["pipeline_id", "architecture"]
        )


def _replace_roles(batch_op: BatchOperations, roles: str) -> None:
    batch_op.drop_constraint(batch_op.f("ck_pipeline_members_role"), type_="check")
    batch_op.create_check_constraint(batch_op.f("ck_pipeline_members_role"), roles)
