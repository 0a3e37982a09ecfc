"""Shapes of sweeps."""

from __future__ import annotations

from pydantic import Field

from api.jobs.schemas import JobDetail, JobShape


class SweepShape(JobShape):
    """A sweep, as lists have it; `done` of it are states, those of each seed by themselves."""

    teacher: str
    corpus: list[str]
    objective: str
    steps: list[int] = Field(description="After which losses are read; the last ends a training.")
    seeds: list[int]


class SweepDetail(SweepShape, JobDetail):
    """A sweep with all that is known of the job."""

    warnings: list[str]
