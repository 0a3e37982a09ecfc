"""A kind of job as a package would bring it: it counts to a number, slowly.

Everything that REST, command line, dashboard, coordinator, metrics and documents show of it comes
from the registry. Registered by an entry point in the group ``kdnas.job_kinds``
(:func:`write_entry_point`).
"""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import Field
from sqlalchemy.orm import Mapped, Session, mapped_column

from api.jobs.context import JobContext
from api.jobs.kind import JobKind
from kdnas.db.models.jobs import Job, job_key
from kdnas.db.repository import jobs
from kdnas.errors import TrainingError
from kdnas.specs.base import Spec


class CountSpec(Spec):
    """How far to count, how slowly, and at which number to fail."""

    name: str | None = Field(None, max_length=100)
    to: int = Field(3, ge=1, le=1_000_000)
    seconds_each: float = Field(0.05, ge=0, le=3600)
    fail_at: int | None = Field(None, ge=1, le=1_000_000)


class Count(Job):
    """How far a count has come."""

    __tablename__ = "counts"
    __mapper_args__ = {"polymorphic_identity": "count"}  # noqa: RUF012 (read by SQLAlchemy)

    id: Mapped[str] = job_key()
    counted: Mapped[int] = mapped_column(default=0)

    def progress_mark(self, session: Session) -> int:
        """Return how far it has come."""
        return self.counted


def count(context: JobContext) -> None:
    """Count on from where it was cut off."""
    spec = CountSpec.read(dict(context.spec), context.called)
    with context.database.read() as session:
        begun = jobs.get_job(session, context.id, Count).counted
    context.phase("counting")
    for number in range(begun + 1, spec.to + 1):
        context.check()
        time.sleep(spec.seconds_each)
        if number == spec.fail_at:
            raise TrainingError(f"{context.called} fails at {number}, as it was asked to")
        with context.database.write() as session:
            jobs.locked_job(session, context.id, Count).counted = number
        context.progress(number, spec.to)
        context.event("progress", {"number": number})
        print(f"counted {number} of {spec.to}", flush=True)


KIND = JobKind(
    table=Count, plural="counts", run=count, spec=CountSpec, columns=lambda _: {"counted": 0}
)


def write_entry_point(folder: Path) -> None:
    """Make a folder which, on ``sys.path``, is an installed package that brings this kind."""
    info = folder / "kdnas_counting-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kdnas-counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[kdnas.job_kinds]\ncount = kdnas.testing.counting:KIND\n"
    )
