"""Figures for the operator, by a few queries over whole tables; do not ask every second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kdnas.db.base import utc_now
from kdnas.db.models import (
    CANDIDATE_STATUSES,
    STATUSES,
    Attempt,
    Candidate,
    Episode,
    Event,
    Job,
)

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much there is of everything.

    Attributes:
        jobs: kind → status → jobs, for the kinds that have any.
        candidates: status → candidates of all searches.
        num_reused: candidates whose loss was looked up.
        num_episodes_finished: of all searches.
        num_in_training: candidates that a worker trains at present.
        num_workers: workers that train at present.
        num_trained_last_hour: students whose mini-KD ended well within the last hour.
        last_event_id: how many events there were.
    """

    jobs: Mapping[str, Mapping[str, int]]
    candidates: Mapping[str, int]
    num_reused: int
    num_episodes_finished: int
    num_in_training: int
    num_workers: int
    num_trained_last_hour: int
    last_event_id: int


def read_statistics(session: Session) -> Statistics:
    """Count everything; a status that nothing has counts 0."""
    reused = select(func.count()).select_from(Candidate).where(Candidate.reused)
    episodes = select(func.count()).select_from(Episode).where(Episode.finished_at.is_not(None))
    training = select(func.count(), func.count(Attempt.worker.distinct())).where(
        Attempt.finished_at.is_(None)
    )
    trained = (
        select(func.count())
        .select_from(Attempt)
        .where(Attempt.outcome == "succeeded", Attempt.finished_at > utc_now() - HOUR)
    )
    counted = select(Candidate.status, func.count()).group_by(Candidate.status)
    num_in_training, num_workers = session.execute(training).one()
    return Statistics(
        jobs=_by_kind(session),
        candidates=dict.fromkeys(CANDIDATE_STATUSES, 0) | dict(session.execute(counted).all()),
        num_reused=session.scalar(reused) or 0,
        num_episodes_finished=session.scalar(episodes) or 0,
        num_in_training=num_in_training,
        num_workers=num_workers,
        num_trained_last_hour=session.scalar(trained) or 0,
        last_event_id=session.scalar(select(func.max(Event.id))) or 0,
    )


def _by_kind(session: Session) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    query = select(Job.kind, Job.status, func.count()).group_by(Job.kind, Job.status)
    for kind, status, number in session.execute(query):
        found.setdefault(kind, dict.fromkeys(STATUSES, 0))[status] = number
    return found
