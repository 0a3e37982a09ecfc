"""Shapes of jobs: what every kind shows, and how one is changed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, model_validator

from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from kdnas.db.lists.job_pages import SORTS
from kdnas.db.queue.transitions import Action
from kdnas.db.records import OwnerKind
from kdnas.records import SearchStatus
from kdnas.specs.base import Spec
from kdnas.specs.naming import Name

LABEL = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$"
MOST_LABELS = 20
HIGHEST_PRIORITY = 100
CHANGED = ("action", "name", "note", "labels", "priority")
"""What may be changed of a job."""

Label = Annotated[str, Field(max_length=50, pattern=LABEL)]


class JobShape(Shape):
    """A job of any kind, as lists have it."""

    id: str
    kind: str
    name: str | None
    status: SearchStatus
    owner_kind: OwnerKind
    owner: str | None = Field(
        description="The user who asked for it, or for the job whose part it is: of the service, "
        "or with `owner_kind` `cli` of the machine. Null if nobody knows."
    )
    priority: int = Field(
        description="Of the jobs of one user that wait, those of a higher one are taken up first."
    )
    standing: str = Field(description="What it does or waits for, in words.")
    phase: str | None = Field(description="What the process that works on it has said it does.")
    phase_since: datetime | None
    done: int | None = Field(description="In the kind's own unit, such as steps.")
    total: int | None
    num_failed: int = Field(
        description="How many of what is done came to nothing, such as states of a sweep or runs "
        "for a task; `resume` tries them again, also where the job has succeeded."
    )
    remaining_seconds: float | None = Field(
        description="From how fast it has come so far; null where that says nothing."
    )
    error: str | None
    note: str | None
    labels: list[str]
    parent_id: str | None
    num_children: int
    num_children_ended: int
    worked_seconds: float
    worker: str | None = Field(description="Host and process that work on it at present.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobDetail(JobShape):
    """A job with what was asked for, and what that was resolved to."""

    requested: dict[str, Any]
    resolved: dict[str, Any] | None = Field(description="Null until it was prepared.")
    spec: dict[str, Any] = Field(
        description="The same as far as it is resolved; see `GET /api/v1/schemas/{kind}`."
    )
    href: str = Field(description="Its page in the dashboard.")


class KindQuery(ListQuery):
    """Which jobs of a kind are wanted, and how they are sorted."""

    status: list[SearchStatus] = Field([], max_length=20)
    owner_kind: OwnerKind | None = None
    owner: Text | None = Field(None, description="Name of the user who asked for them.")
    label: list[Text] = Field([], max_length=MOST_LABELS, description="All of them.")
    name: Text | None = Field(None, description="A part of the name.")
    parent: Text | None = Field(None, description="Id or name of the job that asked for them.")
    roots: bool = Field(False, description="Only what nobody asked for but a user.")
    sort: str = Field("-created_at", pattern=sort_pattern(SORTS))

    @property
    def given(self) -> dict[str, Any]:
        """The filters that are given; whoever names a parent, a name or labels wants all those."""
        given = super().given
        if not self.roots or given.keys() & {"parent", "name", "label"}:
            given.pop("roots")
        return given


class JobQuery(KindQuery):
    """Which jobs are wanted, and how they are sorted."""

    kind: list[Text] = Field([], max_length=20)
    roots: bool = Field(True, description="Only what nobody asked for but a user.")


class JobChange(Spec):
    """What is to be changed of a job; at least one of them."""

    action: Action | None = None
    name: Name | None = None
    note: str | None = Field(None, max_length=2000, pattern=r"^[^\x00]*$")
    labels: list[Label] | None = Field(None, max_length=MOST_LABELS)
    priority: int | None = Field(None, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)

    @model_validator(mode="after")
    def _something(self) -> JobChange:
        if not self.model_fields_set or all(getattr(self, name) is None for name in CHANGED):
            raise ValueError(
                "nothing is to be changed; give action, name, note, labels or priority"
            )
        return self
