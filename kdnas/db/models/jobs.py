"""Jobs: what all kinds of long work have in common, each kind's own columns in a table of its own.

Joined-table inheritance: a search is a row of ``jobs`` and a row of ``searches`` with the same id.
State, lease, request and progress are in ``jobs`` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import ForeignKey, Index, Text, UniqueConstraint, func, inspect
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, Mapper, Session, mapped_column
from sqlalchemy.sql.elements import ColumnElement

from kdnas.db.base import Base, Dated, LeaseColumns, new_id, one_of
from kdnas.db.models.values import OWNER_KINDS, STATUSES
from kdnas.records import SearchStatus


class Job(LeaseColumns, Dated, Base):
    """A piece of work that takes longer than a request.

    ``requested`` is what the user wrote and is never overwritten; ``resolved`` is the same with
    nothing left open, null until it was prepared. ``phase`` says in words what a running job does
    or waits for, since ``phase_since``; ``done`` of ``total`` are of its kind's own unit.
    ``worked_seconds`` are those of all phases that have ended, without what prepared the work.
    ``parent_id`` is the job that asked for this one, ``owner`` the user who asked for the first of
    them: of the service, or with ``owner_kind`` ``cli`` of the machine; null if nobody knows.
    Of an owner's jobs that wait, those of a higher ``priority`` are taken up first.
    """

    __tablename__ = "jobs"
    __table_args__: Any = (
        one_of("status", STATUSES),
        one_of("owner_kind", OWNER_KINDS),
        UniqueConstraint("kind", "name"),
        Index(None, "kind", "status", "id"),
        Index(None, "kind", "created_at", "id"),
        Index(None, "created_at", "id"),
        Index(None, "parent_id"),
    )
    __mapper_args__ = {"polymorphic_on": "kind"}

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    kind: Mapped[str]
    name: Mapped[str | None]
    owner_kind: Mapped[str] = mapped_column(default="service")
    owner: Mapped[str | None]
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    requested: Mapped[dict[str, Any]]
    resolved: Mapped[dict[str, Any] | None]
    status: Mapped[SearchStatus] = mapped_column(Text, default="queued")
    phase: Mapped[str | None]
    phase_since: Mapped[datetime | None]
    done: Mapped[int | None]
    total: Mapped[int | None]
    error: Mapped[str | None]
    note: Mapped[str | None]
    labels: Mapped[list[Any]] = mapped_column(default=list)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id", ondelete="SET NULL"))
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    worked_seconds: Mapped[float] = mapped_column(default=0.0)

    resumed_by: ClassVar[str] = "the command that started it, run again"
    """How the command line goes on with one of its own; ``{name}`` stands for its name."""

    listed_in: ClassVar[str] = "jobs"
    """The command that lists its kind."""

    told_when_created: ClassVar[Collection[str]] = ()
    """Its own columns that the event of its creation says."""

    @hybrid_property
    def spec(self) -> dict[str, Any]:
        """The request as far as it is resolved."""
        return self.requested if self.resolved is None else self.resolved

    @spec.inplace.expression
    @classmethod
    def _spec_expression(cls) -> ColumnElement[dict[str, Any]]:
        return func.coalesce(cls.resolved, cls.requested)

    @property
    def noun(self) -> str:
        """The word for its kind in a sentence."""
        return self.kind.replace("_", " ")

    @property
    def called(self) -> str:
        """What it is called in a sentence."""
        return f"{self.noun} {(self.name or self.id)!r}"

    @property
    def result(self) -> str | None:
        """Where its result is, in words; None if it is read from the job itself."""
        return None

    @property
    def about(self) -> dict[str, Any]:
        """What its events say of it besides what happened."""
        return {}

    @property
    def outcome(self) -> dict[str, Any]:
        """What a listener outside is told of it when it has ended, as plain JSON."""
        return {"id": self.id, "name": self.name}

    def progress_mark(self, session: Session) -> int:
        """How far its work has come that a death cannot undo."""
        return 0

    def num_failed(self, session: Session) -> int:
        """How much of what it has done came to nothing and is tried again when it is resumed."""
        return self.count_failed(session, [self.id]).get(self.id, 0)

    @classmethod
    def count_failed(cls, session: Session, ids: Collection[str]) -> Mapping[str, int]:
        """Count that of several of its kind: id → number, of those that have any."""
        return {}

    def try_again(self, session: Session) -> None:
        """Note that whoever goes on is to try again what failed, since a user has resumed it."""

    def standing_on(self, session: Session) -> list[Job]:
        """Return the jobs that need this one, or show it as a part of theirs."""
        parent = None if self.parent_id is None else session.get(Job, self.parent_id)
        return [] if parent is None else [parent]

    def before_delete(self, session: Session) -> None:
        """Take what locks deleting it needs, in the order in which its work takes them."""

    def event_root(self, session: Session) -> str:
        """Id of the job whose page tells of this one: the first of its parents, or itself."""
        root: Job = self
        while root.parent_id is not None:
            root = session.get_one(Job, root.parent_id)
        return root.id


class _Kinds(dict[str, Mapper[Any]]):
    """Kind → its mapper; jobs whose package was removed have what all jobs have, and no more."""

    def __missing__(self, kind: str) -> Mapper[Any]:
        plain = type(kind, (Job,), {"__mapper_args__": {"polymorphic_identity": kind}})
        return inspect(plain)


Job.__mapper__.polymorphic_map = _Kinds()


class JobLabel(Base):
    """A label of a job, in a table of its own for filters; ``jobs.labels`` has all of one job."""

    __tablename__ = "job_labels"
    __table_args__ = (Index(None, "label", "job_id"),)

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    label: Mapped[str] = mapped_column(primary_key=True)


def kind_of(table: type[Job]) -> str:
    """Name of the kind whose jobs are in a table; that of all kinds is ``job``."""
    return str(table.__mapper__.polymorphic_identity or "job")


def job_key() -> Any:
    """The primary key of a kind's own table, which is that of its jobs."""
    return mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
