"""Shapes that all routes share: a page, a problem, who is asking."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kdnas.records import Role

Item = TypeVar("Item")

PROBLEM_TYPE = "application/problem+json"
PAGE_LENGTH, LONGEST_PAGE = 50, 500

TEXT = r"^[^\x00]*$"
"""PostgreSQL takes no text with a zero character."""

Text = Annotated[str, Field(max_length=200, pattern=TEXT)]


def sort_pattern(names: Iterable[object]) -> str:
    """The pattern of ``sort``: a name, with a minus to fall instead of to rise."""
    return f"^-?({'|'.join(str(name) for name in names)})$"


class ListQuery(BaseModel):
    """What every list takes; a parameter that it does not take is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(PAGE_LENGTH, ge=1, le=LONGEST_PAGE, description="Length of the page.")
    cursor: str | None = Field(
        None, max_length=1000, description="`next_cursor` of the page before."
    )

    @property
    def given(self) -> dict[str, Any]:
        """The filters that are given, by their names."""
        filters = self.model_dump(exclude={"limit", "cursor", "sort"})
        return {name: value for name, value in filters.items() if value not in (None, [])}


class Shape(BaseModel):
    """Base of everything that is answered: read from values by their attributes."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Page(Shape, Generic[Item]):
    """A part of a list; `next_cursor` is null on the last page."""

    items: list[Item]
    next_cursor: str | None


class FieldProblem(Shape):
    """What is wrong at one place of a request."""

    where: str = Field(description="Such as `body.controller.episodes` or `query.limit`.")
    message: str


class Problem(Shape):
    """Why a request was refused or failed (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


class SessionState(Shape):
    """Who is asking, and whether there is anything to log in to."""

    role: Role
    name: str | None = Field(
        description="Of the user; `operator` or `viewer` with the tokens of the environment, null "
        "where no log-in is required."
    )
    login_required: bool
    version: str


class EventShape(Shape):
    """Something that happened; the types and their payloads stand in docs/api.md."""

    id: int
    type: str
    kind: str | None = Field(description="Kind of the job that it happened to.")
    job_id: str | None
    root_job_id: str | None = Field(description="The job whose page tells of it.")
    created_at: datetime
    payload: dict[str, Any]


class Check(Shape):
    """Whether one thing that the service needs is there."""

    ok: bool
    detail: str | None = Field(description="For those who are logged in.")


class Readiness(Shape):
    """Whether the service can work."""

    ready: bool
    checks: dict[str, Check]


class Alive(Shape):
    """The process answers."""

    status: Literal["ok"]
