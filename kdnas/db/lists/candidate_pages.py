"""The candidates of a search as a list that is filtered, sorted and read page by page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import ge, le
from typing import Any, Final, cast

from sqlalchemy import (
    BinaryExpression,
    ColumnElement,
    Select,
    UnaryExpression,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.operators import custom_op

from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Attempt, Candidate, DistillationLoss, SearchState
from kdnas.errors import NotFoundError
from kdnas.search_space import AXES

FIELDS: Final[tuple[str, ...]] = (
    "id",
    "search_id",
    "episode",
    "position",
    "index",
    "architecture",
    "layers",
    "heads",
    "hidden",
    "intermediate",
    "activation",
    "source",
    "predicted_reward",
    "status",
    "reward",
    "loss_relative",
    "loss_output",
    "loss_mean",
    "loss_training",
    "loss_start",
    "latency_ms",
    "latency_ratio",
    "params_millions",
    "reused",
    "num_attempts",
    "num_steps",
    "readings",
    "error",
    "note",
    "created_at",
    "finished_at",
)
"""What a candidate is to the service, in the order of its columns in an export."""

READING: Final = ("step", "loss_mean", "loss_relative", "loss_output", "loss_training")
"""What each of its readings has, in the order in which it is stored."""

SORTS: Final[Mapping[str, InstrumentedAttribute[Any]]] = {
    "reward": Candidate.reward,
    "predicted_reward": Candidate.predicted_reward,
    "loss_relative": Candidate.loss_relative,
    "loss_output": Candidate.loss_output,
    "loss_mean": Candidate.loss_mean,
    "loss_start": Candidate.loss_start,
    "latency_ms": Candidate.latency_ms,
    "params_millions": Candidate.params_millions,
    "episode": Candidate.episode,
    "architecture": Candidate.state_index,
    "created_at": Candidate.created_at,
}
"""Sort → column, each with an index; architectures are in the order of their search space."""


_FEW, _FEW_CANDIDATES = 50, 2000


Wanted = Mapping[str, Any]
"""Which candidates of a search are wanted; by itself, all.

Column → the values that will do, or the only one; ``min_`` or ``max_`` with a column → its smallest
or largest value, which leaves out candidates without one.
"""

_COMPARISONS: Final = {"min_": ge, "max_": le}


def list_candidates(
    session: Session,
    search_id: str,
    wanted: Wanted,
    *,
    sort: str = "reward",
    descending: bool = True,
    limit: int = 50,
    cursor: str | None = None,
) -> PageOf[dict[str, Any]]:
    """Read a page of a search's candidates: :data:`FIELDS` of each.

    Args:
        session: to read with.
        search_id: the search.
        wanted: which of its candidates.
        sort: one of :data:`SORTS`.
        descending: from the largest down.
        limit: length of the page.
        cursor: of the page before.

    Raises:
        RequestError: the cursor is that of another list.
    """
    scope = {
        "list": "candidates",
        "search": search_id,
        "sort": sort,
        "descending": descending,
        **{name: sorted(value) if _is_list(value) else value for name, value in wanted.items()},
    }
    query, few = _selected(search_id), _is_narrow(wanted)
    states = _states(session, search_id, wanted)
    if states is not None:
        query, few = query.where(Candidate.state_index.in_(states)), True
    for name, value in wanted.items():
        condition = _condition(name, value)
        has_index = name[:4] in _COMPARISONS and name[4:] != sort
        if has_index and not few and session.get_bind().dialect.name == "sqlite":
            few = _has_few(session, search_id, condition)
            query = query.where(condition if few else _without_index(condition))
        else:
            query = query.where(condition)
    order = Order(SORTS[sort], Candidate.id, descending, indexed=not few)
    page = as_dicts(read_page(session, query, order, scope, limit, cursor))
    return PageOf([_told(row.values()) for row in page.items], page.next_cursor)


def candidates_after(
    session: Session, search_id: str, last: tuple[int, int] | None, limit: int
) -> list[dict[str, Any]]:
    """Read candidates by episode and position, those after a last one if there is one."""
    place = tuple_(Candidate.episode, Candidate.position)
    query = _selected(search_id).order_by(Candidate.episode, Candidate.position).limit(limit)
    if last is not None:
        query = query.where(place > tuple_(*map(literal, last)))
    return [_told(row) for row in session.execute(query)]


def read_candidates(session: Session, candidate_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Read the candidates with these ids, in the order of the ids."""
    query = select(*_columns()).where(Candidate.id.in_(candidate_ids))
    found = {row.id: _told(row) for row in session.execute(query)}
    return [found[candidate_id] for candidate_id in candidate_ids]


def read_candidate(session: Session, candidate_id: str) -> dict[str, Any]:
    """Read a candidate with its ``attempts`` and the ``curve`` of its own training.

    Raises:
        NotFoundError: no such candidate.
    """
    query = (
        select(*_columns(), DistillationLoss.curve)
        .outerjoin(DistillationLoss, DistillationLoss.id == Candidate.distillation_loss_id)
        .where(Candidate.id == candidate_id)
    )
    known = "\0" not in candidate_id  # no text to PostgreSQL
    row = session.execute(query).one_or_none() if known else None
    if row is None:
        raise NotFoundError(f"there is no candidate {candidate_id!r}; list its search's candidates")
    attempts = session.scalars(
        select(Attempt).where(Attempt.candidate_id == candidate_id).order_by(Attempt.id)
    )
    return {
        **_told(row[:-1]),
        "attempts": [
            {
                "worker": attempt.worker,
                "outcome": attempt.outcome,
                "error": attempt.error,
                "started_at": attempt.started_at,
                "finished_at": attempt.finished_at,
            }
            for attempt in attempts
        ],
        "curve": [
            {"step": step, "loss": loss, "learning_rate": rate}
            for step, loss, rate in row.curve or ()
        ],
    }


def _told(row: Iterable[Any]) -> dict[str, Any]:
    """One candidate's columns by name, with each of its readings by name as well."""
    told = dict(zip(FIELDS, row, strict=True))
    told["readings"] = [dict(zip(READING, one, strict=True)) for one in told["readings"] or ()]
    return told


def _columns() -> list[Any]:
    return [
        Candidate.state_index.label("index") if name == "index" else getattr(Candidate, name)
        for name in FIELDS
    ]


def _selected(search_id: str) -> Select[Any]:
    return select(*_columns()).where(Candidate.search_id == search_id)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_narrow(wanted: Wanted) -> bool:
    """Whether few candidates are left for sure, however many the search has."""
    return (
        "architecture" in wanted
        or len(wanted.get("episode", range(_FEW))) < _FEW
        or not {"succeeded", "stopped"} & {*wanted.get("status", ("succeeded",))}
    )


def _condition(name: str, value: Any) -> BinaryExpression[bool]:
    compare = _COMPARISONS.get(name[:4])
    if compare is not None:
        return cast(BinaryExpression[bool], compare(getattr(Candidate, name[4:]), value))
    column = getattr(Candidate, name)
    return cast(BinaryExpression[bool], column.in_(value) if _is_list(value) else column == value)


def _has_few(session: Session, search_id: str, condition: ColumnElement[bool]) -> bool:
    found = (
        select(Candidate.id)
        .where(Candidate.search_id == search_id, condition)
        .limit(_FEW_CANDIDATES + 1)
        .subquery()
    )
    return (session.scalar(select(func.count()).select_from(found)) or 0) <= _FEW_CANDIDATES


def _without_index(condition: BinaryExpression[bool]) -> ColumnElement[bool]:
    """Keep SQLite from collecting half the table along this column's index, to sort it then."""
    column = condition.left
    unindexed = UnaryExpression(column, operator=custom_op("+"), type_=column.type)
    return cast(ColumnElement[bool], condition.operator(unindexed, condition.right))


def _states(session: Session, search_id: str, wanted: Wanted) -> list[int] | None:
    """States with the wanted values of the axes, if they have few candidates together; else None.

    A value or two are common, so that a page of them is soon found anywhere. Four or five are so
    rare that the whole search would be gone through.
    """
    positions = [i for i, axis in enumerate(AXES) if axis in wanted]
    if len(positions) < 2:
        return None
    allowed = [(i, set(map(str, wanted[AXES[i]]))) for i in positions]
    states, count = [], 0
    for state, architecture, num_candidates in session.execute(
        select(SearchState.state_index, SearchState.architecture, SearchState.num_candidates).where(
            SearchState.search_id == search_id
        )
    ):
        parts = architecture.split(",")
        if all(parts[i] in values for i, values in allowed):
            states.append(state)
            count += num_candidates
    return states if count <= _FEW_CANDIDATES else None
