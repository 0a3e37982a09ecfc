"""All tables. Times are UTC and end in ``_at``; other units are in the names.

::

    jobs ─┬─ searches ─┬─ episodes ── candidates ─┬─ attempts
          │            ├─ search_states           └─ distillation_losses ── mini_kd_contexts
          │            └─ controller_states
          ├─ sweeps ── sweep_states
          ├─ distillations ─┬─ distillation_curves
          │                 └─ distillation_readings
          ├─ task_distillations ── task_distillation_runs
          ├─ evaluations
          ├─ latency_builds ── latency_profiles ── latencies
          ├─ pipelines ── pipeline_members ─┬─ distillations
          │                                 └─ evaluations
          ├─ job_labels
          └─ events
    coordinators · grids · idempotency_keys · tokens · webhook_deliveries
"""

from kdnas.db.models.distillations import (
    Distillation,
    DistillationCurvePoint,
    DistillationReading,
)
from kdnas.db.models.evaluations import Evaluation, Grid
from kdnas.db.models.jobs import Job, JobLabel, kind_of
from kdnas.db.models.latencies import Latency, LatencyBuild, LatencyProfile
from kdnas.db.models.pipelines import Pipeline, PipelineMember
from kdnas.db.models.searches import (
    Attempt,
    Candidate,
    ControllerState,
    DistillationLoss,
    Episode,
    MiniKDContext,
    Search,
    SearchState,
)
from kdnas.db.models.service import (
    CoordinatorRow,
    Event,
    IdempotencyKey,
    Token,
    WebhookDelivery,
)
from kdnas.db.models.sweeps import Sweep, SweepState
from kdnas.db.models.task_distillations import TaskDistillation, TaskDistillationRun
from kdnas.db.models.values import CANDIDATE_STATUSES, FINAL_STATUSES, STATUSES

__all__ = [
    "CANDIDATE_STATUSES",
    "FINAL_STATUSES",
    "STATUSES",
    "Attempt",
    "Candidate",
    "ControllerState",
    "CoordinatorRow",
    "Distillation",
    "DistillationCurvePoint",
    "DistillationLoss",
    "DistillationReading",
    "Episode",
    "Evaluation",
    "Event",
    "Grid",
    "IdempotencyKey",
    "Job",
    "JobLabel",
    "Latency",
    "LatencyBuild",
    "LatencyProfile",
    "MiniKDContext",
    "Pipeline",
    "PipelineMember",
    "Search",
    "SearchState",
    "Sweep",
    "SweepState",
    "TaskDistillation",
    "TaskDistillationRun",
    "Token",
    "WebhookDelivery",
    "kind_of",
]
