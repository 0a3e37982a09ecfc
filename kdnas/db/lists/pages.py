"""Lists page by page: sorted by a column and then by id, gone on with after the last row.

Rows without a value come last in both directions. They are read as a part of their own, so that
each part is a walk along one index; a page's cost does not depend on how far down the list it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AfterValidator, AwareDatetime, Field, TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Row,
    Select,
    String,
    Text,
    UnaryExpression,
    literal,
    tuple_,
)
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.operators import custom_op

from kdnas.db.base import UtcDateTime
from kdnas.errors import RequestError
from kdnas.records import fingerprint

Value = int | float | str | datetime | None
Item = TypeVar("Item")

_LARGEST_INTEGER = 2**63 - 1  # a larger one fits into no column


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


_WRITTEN: Final[Mapping[type, TypeAdapter[Any]]] = {
    UtcDateTime: TypeAdapter(Annotated[AwareDatetime, AfterValidator(_in_utc)]),
    String: TypeAdapter(Annotated[str, Field(pattern=r"^[^\x00]*$")]),
    Float: TypeAdapter(Annotated[float, Field(strict=True)]),
    Integer: TypeAdapter(
        Annotated[int, Field(strict=True, ge=-_LARGEST_INTEGER, le=_LARGEST_INTEGER)]
    ),
}
"""Type of a column → what a cursor may say of it."""


@dataclass(frozen=True, slots=True)
class PageOf(Generic[Item]):
    """A part of a list; ``next_cursor`` is None on the last one."""

    items: Sequence[Item]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """How a list is sorted.

    Attributes:
        column: by which column; rows that are equal in it are sorted by ``key``.
        key: a column whose values are unique in the list.
        descending: from the largest down; also the order of the keys.
        indexed: whether to walk along the index of the column; False where the filters leave so
            little that it is found first and sorted then, which SQLite does not see by itself.
    """

    column: InstrumentedAttribute[Any]
    key: InstrumentedAttribute[Any]
    descending: bool = False
    indexed: bool = True


def read_page(
    session: Session,
    query: Select[Any],
    order: Order,
    scope: Mapping[str, Any],
    limit: int,
    cursor: str | None = None,
) -> PageOf[Row[Any]]:
    """Read a page.

    Args:
        session: to read with.
        query: everything that is wanted, filtered, not sorted.
        order: how it is sorted.
        scope: what the list is, its filters and its sort as plain JSON; a cursor of another scope
            is refused.
        limit: length of the page.
        cursor: ``next_cursor`` of the page before, None for the first.

    Raises:
        RequestError: the cursor is none, or that of another list.
    """
    scope_name = fingerprint(scope)
    after = None if cursor is None else _decoded(cursor, scope_name, order)
    value, key = (_sortable(session, column, order) for column in (order.column, order.key))
    query = query.add_columns(order.column.label("_value"), order.key.label("_key"))
    nullable = _nullable(order.column)
    rows: list[Row[Any]] = []
    if after is None or after[0] is not None:
        valued = query.where(value.is_not(None)) if nullable else query
        if after is not None:
            bound = tuple_(literal(after[0], order.column.type), literal(after[1], order.key.type))
            place = tuple_(value, key)
            valued = valued.where(place < bound if order.descending else place > bound)
        rows += session.execute(_sorted(valued, order, value, key).limit(limit + 1))
        after = None
    if nullable and len(rows) <= limit:
        without = query.where(value.is_(None))
        if after is not None:
            bound_key = literal(after[1], order.key.type)
            without = without.where(key < bound_key if order.descending else key > bound_key)
        rows += session.execute(_sorted(without, order, value, key).limit(limit + 1 - len(rows)))
    if len(rows) <= limit:
        return PageOf(rows, None)
    rows = rows[:limit]
    last = rows[-1]._mapping
    return PageOf(rows, _encoded(scope_name, last["_value"], last["_key"]))


def as_dicts(page: PageOf[Row[Any]]) -> PageOf[dict[str, Any]]:
    """Turn the rows of a page into dictionaries of what was asked for."""
    return PageOf(
        [dict(zip(row._fields[:-2], row[:-2], strict=True)) for row in page.items],
        page.next_cursor,
    )


def _sorted(
    query: Select[Any], order: Order, value: ColumnElement[Any], key: ColumnElement[Any]
) -> Select[Any]:
    if order.descending:
        return query.order_by(value.desc(), key.desc())
    return query.order_by(value, key)


def _sortable(
    session: Session, column: InstrumentedAttribute[Any], order: Order
) -> ColumnElement[Any]:
    """Text sorts by its bytes on both dialects, not by the language of the database.

    Ids are left as they are, for their index: they sort alike in every language.
    """
    plain: ColumnElement[Any] = column.expression
    if session.get_bind().dialect.name == "postgresql":
        is_text = isinstance(plain.type, Text) and column.key != "id"
        return plain.collate("C") if is_text else plain
    if order.indexed or column is order.key:
        return plain
    return UnaryExpression(plain, operator=custom_op("+"), type_=plain.type)


def _nullable(column: InstrumentedAttribute[Any]) -> bool:
    return bool(column.property.columns[0].nullable)


def _encoded(scope: str, value: Value, key: Value) -> str:
    written = value.isoformat() if isinstance(value, datetime) else value
    text = json.dumps([scope, written, key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decoded(cursor: str, scope: str, order: Order) -> tuple[Value, Value]:
    """Take a cursor apart and trust nothing in it."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        content = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        found_scope, written, key = content
        if found_scope == scope:
            return _value(written, order.column), _value(key, order.key)
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    raise RequestError(
        f"cursor {cursor[:80]!r} does not belong to this list with this sort and these filters; "
        "leave it out to begin with the first page"
    )


def _value(written: object, column: InstrumentedAttribute[Any]) -> Value:
    """Read a value as :func:`_encoded` writes it.

    Raises:
        ValueError: it is none of the column's.
    """
    if written is None and _nullable(column):
        return None
    allowed = next(allowed for kind, allowed in _WRITTEN.items() if isinstance(column.type, kind))
    value: Value = allowed.validate_python(written)
    return value
