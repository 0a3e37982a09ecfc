"""Pipelines and the models in them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from kdnas.db.base import Base, new_id, one_of
from kdnas.db.models.distillations import Distillation
from kdnas.db.models.evaluations import Evaluation
from kdnas.db.models.jobs import Job, job_key
from kdnas.db.models.values import MEMBER_ROLES, PIPELINE_STAGES


class Pipeline(Job):
    """Search, then distillation, then evaluation, as one request; its parts are its children.

    ``notes`` are sentences for the reader of its results, such as a budget under which the search
    found nothing.
    """

    __tablename__ = "pipelines"
    __table_args__: Any = (one_of("stage", PIPELINE_STAGES), Index(None, "search_id"))
    __mapper_args__ = {"polymorphic_identity": "pipeline"}

    id: Mapped[str] = job_key()
    stage: Mapped[str] = mapped_column(default="search")
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id", ondelete="SET NULL"))
    notes: Mapped[list[Any]] = mapped_column(default=list)

    resumed_by = "kdnas launch --resume {name}"
    listed_in = "pipelines"

    @property
    def outcome(self) -> dict[str, Any]:
        """How far it came."""
        return {**super().outcome, "stage": self.stage}


class PipelineMember(Base):
    """A model of a pipeline: a student that is made and evaluated, or a form of the teacher.

    ``reasons`` is a list of {``role``, ``about``}: an architecture that was both chosen and asked
    for as a baseline is one member with two reasons, and the same architecture undistilled is
    another. ``figures`` are what the search knows of it
    (:class:`~kdnas.db.records.MemberFigures`). ``variant`` says what is done to the teacher before
    it is evaluated, as entries of an evaluation's request.
    """

    __tablename__ = "pipeline_members"
    __table_args__ = (
        one_of("role", MEMBER_ROLES),
        UniqueConstraint("pipeline_id", "position"),
        UniqueConstraint("pipeline_id", "architecture", "role"),
        Index(None, "distillation_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    pipeline_id: Mapped[str] = mapped_column(ForeignKey("pipelines.id", ondelete="CASCADE"))
    position: Mapped[int]
    role: Mapped[str]
    architecture: Mapped[str | None]
    reasons: Mapped[list[Any]]
    figures: Mapped[dict[str, Any]]
    variant: Mapped[dict[str, Any] | None]
    distillation_id: Mapped[str | None] = mapped_column(
        ForeignKey("distillations.id", ondelete="SET NULL")
    )
    distillation: Mapped[Distillation | None] = relationship(viewonly=True)
    evaluations: Mapped[list[Evaluation]] = relationship(order_by=Evaluation.id, viewonly=True)
