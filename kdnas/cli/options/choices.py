"""What a user may name: checked here, each refusal with the nearest that there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from kdnas.errors import NotFoundError, SpecError, unknown_name
from kdnas.records import SearchStatus

if TYPE_CHECKING:
    from pydantic import BaseModel

    from kdnas.db.engine import Session

Checked = TypeVar("Checked", bound="BaseModel")

MOST_SHOWN = 10


def checked(model: type[Checked], where: str, **values: Any) -> Checked:
    """Make a query or a change as the service would of the same values.

    Args:
        model: of the service.
        where: which command was given the values, for the message.
        values: fields of the model.

    Raises:
        SpecError: the service would refuse them.
    """
    from pydantic import ValidationError

    from kdnas.specs.base import problems_of

    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = problems_of(model, error, values)
        said = "; ".join(problem.sentence for problem in problems)
        raise SpecError(f"{where}: {said}", fields=problems) from None


def known_status(status: str) -> SearchStatus:
    """Return a status.

    Raises:
        SpecError: there is none of this name.
    """
    if status not in get_args(SearchStatus):
        raise SpecError(unknown_name("status", status, get_args(SearchStatus)))
    return cast(SearchStatus, status)


def check_labels(session: Session, labels: Iterable[str]) -> None:
    """Refuse a label that no job has.

    Raises:
        NotFoundError: one of them; says which is nearest.
    """
    from kdnas.db.lists import job_pages

    known = [row["label"] for row in job_pages.list_labels(session)]
    for label in labels:
        if label not in known:
            raise NotFoundError(f"no job has the label {label!r}; {_instead(label, known)}")


def _instead(label: str, known: list[str]) -> str:
    near = difflib.get_close_matches(label, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    if not known:
        return "give one with kdnas jobs label NAME LABEL"
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return f"there are {', '.join(known[:MOST_SHOWN])}{more}"
