"""What columns of words may hold."""

from __future__ import annotations

from typing import get_args

from kdnas.db.records import DeliveryStatus
from kdnas.records import CandidateStatus, MemberRole, PipelineStage, Role, SearchStatus

STATUSES: tuple[str, ...] = get_args(SearchStatus)
FINAL_STATUSES = ("succeeded", "failed", "cancelled")
CANDIDATE_STATUSES: tuple[str, ...] = get_args(CandidateStatus)
OWNER_KINDS = ("cli", "service")
PIPELINE_STAGES: tuple[str, ...] = get_args(PipelineStage)
MEMBER_ROLES: tuple[str, ...] = get_args(MemberRole)
ROLES: tuple[str, ...] = get_args(Role)
DELIVERY_STATUSES: tuple[str, ...] = get_args(DeliveryStatus)
ATTEMPT_OUTCOMES = ("succeeded", "failed", "stopped", "interrupted")
