"""All tables.

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "distillations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("owner_kind", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("total_steps", sa.Integer(), nullable=True),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("artefact", sa.Text(), nullable=True),
        sa.Column("output_path", sa.Text(), nullable=True),
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
        sa.CheckConstraint(
            "owner_kind IN ('cli', 'service')", name=op.f("ck_distillations_owner_kind")
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')",
            name=op.f("ck_distillations_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_distillations")),
        sa.UniqueConstraint("name", name=op.f("uq_distillations_name")),
    )
    with op.batch_alter_table("distillations", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_distillations_status_id"), ["status", "id"], unique=False
        )

    op.create_table(
        "idempotency_keys",
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_fingerprint", sa.Text(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("route", "key", name=op.f("pk_idempotency_keys")),
    )
    with op.batch_alter_table("idempotency_keys", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_idempotency_keys_created_at"), ["created_at"], unique=False
        )

    op.create_table(
        "latency_profiles",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("teacher_fingerprint", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("runtime", sa.Text(), nullable=False),
        sa.Column("num_threads", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("length_tokens", sa.Integer(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("teacher_ms", sa.Double(), nullable=True),
        sa.Column("quality", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("build_seconds", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_latency_profiles")),
        sa.UniqueConstraint(
            "fingerprint",
            "family",
            "teacher_fingerprint",
            name=op.f("uq_latency_profiles_fingerprint_family_teacher_fingerprint"),
        ),
    )
    op.create_table(
        "mini_kd_contexts",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_mini_kd_contexts")),
    )
    op.create_table(
        "searches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("owner_kind", sa.Text(), nullable=False),
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
        sa.CheckConstraint("owner_kind IN ('cli', 'service')", name=op.f("ck_searches_owner_kind")),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')",
            name=op.f("ck_searches_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_searches")),
        sa.UniqueConstraint("name", name=op.f("uq_searches_name")),
    )
    with op.batch_alter_table("searches", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_searches_status_id"), ["status", "id"], unique=False)

    op.create_table(
        "task_distillations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("artefact", sa.Text(), nullable=True),
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
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')",
            name=op.f("ck_task_distillations_status"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task_distillations")),
        sa.UniqueConstraint("name", name=op.f("uq_task_distillations_name")),
    )
    with op.batch_alter_table("task_distillations", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_task_distillations_status_id"), ["status", "id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_task_distillations_task_method"), ["task", "method"], unique=False
        )

    op.create_table(
        "controller_states",
        sa.Column("search_id", sa.Text(), nullable=False),
        sa.Column("episode", sa.Integer(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
            name=op.f("fk_controller_states_search_id_searches"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("search_id", name=op.f("pk_controller_states")),
    )
    op.create_table(
        "distillation_curves",
        sa.Column("distillation_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=False),
        sa.Column("learning_rate", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["distillation_id"],
            ["distillations.id"],
            name=op.f("fk_distillation_curves_distillation_id_distillations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("distillation_id", "step", name=op.f("pk_distillation_curves")),
    )
    op.create_table(
        "distillation_losses",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("loss_training", sa.Double(), nullable=False),
        sa.Column("loss_mean", sa.Double(), nullable=False),
        sa.Column("loss_relative", sa.Double(), nullable=False),
        sa.Column("loss_output", sa.Double(), nullable=False),
        sa.Column("curve", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("num_steps", sa.Integer(), nullable=False),
        sa.Column("train_seconds", sa.Double(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("repeat >= 1", name=op.f("ck_distillation_losses_repeat")),
        sa.ForeignKeyConstraint(
            ["context"],
            ["mini_kd_contexts.fingerprint"],
            name=op.f("fk_distillation_losses_context_mini_kd_contexts"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_distillation_losses")),
        sa.UniqueConstraint(
            "context",
            "architecture",
            "repeat",
            name=op.f("uq_distillation_losses_context_architecture_repeat"),
        ),
    )
    op.create_table(
        "episodes",
        sa.Column("search_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=True),
        sa.Column("global_best", sa.Integer(), nullable=True),
        sa.Column("previous_best", sa.Integer(), nullable=True),
        sa.Column("controller_loss", sa.Double(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("number >= 1", name=op.f("ck_episodes_number")),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
            name=op.f("fk_episodes_search_id_searches"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("search_id", "number", name=op.f("pk_episodes")),
    )
    op.create_table(
        "evaluations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("distillation_id", sa.Text(), nullable=True),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=False),
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
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')",
            name=op.f("ck_evaluations_status"),
        ),
        sa.ForeignKeyConstraint(
            ["distillation_id"],
            ["distillations.id"],
            name=op.f("fk_evaluations_distillation_id_distillations"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
    )
    with op.batch_alter_table("evaluations", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_evaluations_distillation_id"), ["distillation_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_evaluations_model_suite_task"), ["model", "suite", "task"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_evaluations_status_id"), ["status", "id"], unique=False
        )

    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("search_id", sa.Text(), nullable=True),
        sa.Column("distillation_id", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["distillation_id"],
            ["distillations.id"],
            name=op.f("fk_events_distillation_id_distillations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
            name=op.f("fk_events_search_id_searches"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_events_distillation_id_id"), ["distillation_id", "id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_events_search_id_id"), ["search_id", "id"], unique=False
        )

    op.create_table(
        "latencies",
        sa.Column("profile_id", sa.Text(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=False),
        sa.Column("spread_ms", sa.Double(), nullable=False),
        sa.Column("measured", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["profile_id"],
            ["latency_profiles.id"],
            name=op.f("fk_latencies_profile_id_latency_profiles"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("profile_id", "architecture", name=op.f("pk_latencies")),
    )
    op.create_table(
        "pipelines",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("search_id", sa.Text(), nullable=True),
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
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'cancelled', 'failed', 'succeeded')",
            name=op.f("ck_pipelines_status"),
        ),
        sa.ForeignKeyConstraint(
            ["search_id"],
            ["searches.id"],
            name=op.f("fk_pipelines_search_id_searches"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipelines")),
        sa.UniqueConstraint("name", name=op.f("uq_pipelines_name")),
    )
    with op.batch_alter_table("pipelines", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_pipelines_search_id"), ["search_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_pipelines_status_id"), ["status", "id"], unique=False)

    op.create_table(
        "candidates",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("search_id", sa.Text(), nullable=False),
        sa.Column("episode", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("state_index", sa.Integer(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("predicted_reward", sa.Double(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("latency_ms", sa.Double(), nullable=True),
        sa.Column("latency_ratio", sa.Double(), nullable=True),
        sa.Column("params_millions", sa.Double(), nullable=True),
        sa.Column("loss_training", sa.Double(), nullable=True),
        sa.Column("loss_mean", sa.Double(), nullable=True),
        sa.Column("loss_relative", sa.Double(), nullable=True),
        sa.Column("loss_output", sa.Double(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("reused", sa.Boolean(), nullable=False),
        sa.Column("num_attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column(
            "distillation_loss_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            nullable=True,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('proposed', 'running', 'succeeded', 'failed')",
            name=op.f("ck_candidates_status"),
        ),
        sa.ForeignKeyConstraint(
            ["distillation_loss_id"],
            ["distillation_losses.id"],
            name=op.f("fk_candidates_distillation_loss_id_distillation_losses"),
        ),
        sa.ForeignKeyConstraint(
            ["search_id", "episode"],
            ["episodes.search_id", "episodes.number"],
            name=op.f("fk_candidates_search_id_episode_episodes"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_candidates")),
        sa.UniqueConstraint(
            "search_id",
            "episode",
            "position",
            name=op.f("uq_candidates_search_id_episode_position"),
        ),
    )
    with op.batch_alter_table("candidates", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_candidates_distillation_loss_id"), ["distillation_loss_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_candidates_search_id_architecture"),
            ["search_id", "architecture"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_candidates_search_id_latency_ms_id"),
            ["search_id", "latency_ms", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_candidates_search_id_loss_relative_id"),
            ["search_id", "loss_relative", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_candidates_search_id_reward_id"),
            ["search_id", "reward", "id"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_candidates_search_id_status"), ["search_id", "status"], unique=False
        )

    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("candidate_id", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "outcome IN ('succeeded', 'failed', 'interrupted')", name=op.f("ck_attempts_outcome")
        ),
        sa.CheckConstraint(
            "(outcome IS NULL) = (finished_at IS NULL)", name=op.f("ck_attempts_closed")
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"],
            ["candidates.id"],
            name=op.f("fk_attempts_candidate_id_candidates"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_attempts_candidate_id"), ["candidate_id"], unique=False
        )
        batch_op.create_index(
            "uq_attempts_open",
            ["candidate_id"],
            unique=True,
            sqlite_where=sa.text("finished_at IS NULL"),
            postgresql_where=sa.text("finished_at IS NULL"),
        )


def downgrade() -> None:
    for table in (
        "attempts",
        "candidates",
        "pipelines",
        "latencies",
        "events",
        "evaluations",
        "episodes",
        "distillation_losses",
        "distillation_curves",
        "controller_states",
        "task_distillations",
        "searches",
        "mini_kd_contexts",
        "latency_profiles",
        "idempotency_keys",
        "distillations",
    ):
        op.drop_table(table)
