"""What the service reads and runs: states of a search, axes of candidates, latency builds.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATUSES = "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')"
AXES = ("layers", "heads", "hidden", "intermediate", "activation")
SORTED_BY = (
    "predicted_reward",
    "loss_output",
    "loss_mean",
    "params_millions",
    "episode",
    "state_index",
    "created_at",
)


def upgrade() -> None:
    with op.batch_alter_table("candidates") as batch_op:
        for axis in AXES:
            kind = sa.Text() if axis == "activation" else sa.Integer()
            batch_op.add_column(sa.Column(axis, kind, nullable=True))
    _fill_axes()
    with op.batch_alter_table("candidates") as batch_op:
        for axis in AXES:
            kind = sa.Text() if axis == "activation" else sa.Integer()
            batch_op.alter_column(axis, existing_type=kind, nullable=False)
        for column in SORTED_BY:
            batch_op.create_index(
                batch_op.f(f"ix_candidates_search_id_{column}_id"),
                ["search_id", column, "id"],
                unique=False,
            )

    op.create_table(
        "search_states",
        sa.Column("search_id", sa.Text(), nullable=False),
        sa.Column("state_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("num_candidates", sa.Integer(), nullable=False),
        sa.Column("num_finished", sa.Integer(), nullable=False),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        sa.Column("trained", sa.Boolean(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("candidate_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
            name=op.f("fk_search_states_search_id_searches"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"],
            ["candidates.id"],
            name=op.f("fk_search_states_candidate_id_candidates"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("search_id", "state_index", name=op.f("pk_search_states")),
    )
    with op.batch_alter_table("search_states", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_search_states_candidate_id"), ["candidate_id"], unique=False
        )
    _fill_states()

    op.create_table(
        "latency_builds",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("share", sa.Double(), nullable=False),
        sa.Column("profile_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_owner_kind", sa.Text(), nullable=True),
        sa.Column("lease_host", sa.Text(), nullable=True),
        sa.Column("lease_pid", sa.Integer(), nullable=True),
        sa.Column("lease_process_started", sa.Double(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(STATUSES, name=op.f("ck_latency_builds_status")),
        sa.ForeignKeyConstraint(
            ["profile_id"],
            ["latency_profiles.id"],
            name=op.f("fk_latency_builds_profile_id_latency_profiles"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_latency_builds")),
    )
    with op.batch_alter_table("latency_builds", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_latency_builds_status_id"), ["status", "id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_latency_builds_profile_id"), ["profile_id"], unique=False
        )

    with op.batch_alter_table("distillations") as batch_op:
        batch_op.add_column(sa.Column("search_id", sa.Text(), nullable=True))
        batch_op.create_foreign_key(
            batch_op.f("fk_distillations_search_id_searches"),
            "searches",
            ["search_id"],
            ["id"],
            ondelete="SET NULL",
        )
        batch_op.create_index(batch_op.f("ix_distillations_search_id"), ["search_id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("distillations") as batch_op:
        batch_op.drop_index(batch_op.f("ix_distillations_search_id"))
        batch_op.drop_constraint(
            batch_op.f("fk_distillations_search_id_searches"), type_="foreignkey"
        )
        batch_op.drop_column("search_id")
    op.drop_table("latency_builds")
    op.drop_table("search_states")
    for column in SORTED_BY:
        op.drop_index(op.f(f"ix_candidates_search_id_{column}_id"), table_name="candidates")
    for axis in reversed(AXES):
        op.drop_column("candidates", axis)


def _fill_axes() -> None:
    """Take each candidate's architecture apart; the index on it makes that quick."""
    connection = op.get_bind()
    found = connection.execute(
        sa.text("SELECT DISTINCT search_id, architecture FROM candidates")
    ).all()
    values = []
    for search_id, architecture in found:
        layers, heads, hidden, intermediate, activation = architecture.split(",")
        values.append(
            {
                "search_id": search_id,
                "architecture": architecture,
                "layers": int(layers),
                "heads": int(heads),
                "hidden": int(hidden),
                "intermediate": int(intermediate),
                "activation": activation,
            }
        )
    if values:
        connection.execute(
            sa.text(
                "UPDATE candidates SET layers = :layers, heads = :heads, hidden = :hidden, "
                "intermediate = :intermediate, activation = :activation "
                "WHERE search_id = :search_id AND architecture = :architecture"
            ),
            values,
        )


def _fill_states() -> None:
    op.get_bind().execute(
        sa.text(
            "INSERT INTO search_states (search_id, state_index, architecture, num_candidates, "
            "num_finished, num_attempts, trained, failed, candidate_id) "
            "SELECT c.search_id, c.state_index, min(c.architecture), count(*), "
            "sum(CASE WHEN c.status IN ('succeeded', 'failed') THEN 1 ELSE 0 END), "
            "sum(c.num_attempts), "
            "sum(CASE WHEN c.status = 'succeeded' AND NOT c.reused THEN 1 ELSE 0 END) > 0, "
            "sum(CASE WHEN c.status = 'failed' THEN 1 ELSE 0 END) > 0, "
            "(SELECT first.id FROM candidates AS first WHERE first.search_id = c.search_id "
            "AND first.state_index = c.state_index AND first.status = 'succeeded' "
            "AND first.reward IS NOT NULL ORDER BY first.episode, first.position LIMIT 1) "
            "FROM candidates AS c GROUP BY c.search_id, c.state_index"
        )
    )
