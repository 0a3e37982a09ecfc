"""Candidates page by page: whatever is asked, all pages together are what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from kdnas.db.engine import Database
from kdnas.db.lists.candidate_pages import (
    FIELDS,
    SORTS,
    Wanted,
    candidates_after,
    list_candidates,
    read_candidate,
)
from kdnas.db.models import Candidate
from kdnas.errors import NotFoundError, RequestError
from kdnas.search_space import SearchSpace
from kdnas.testing.many_candidates import add_many_candidates

SPACE = SearchSpace((3, 4), (2, 3), (288, 384), (512,), ("gelu", "relu"))
LAST = {"architecture": "index"}


@pytest.fixture
def searched(database: Database) -> tuple[Database, str]:
    """Two searches of which one is asked; some candidates are unfinished and lack values."""
    add_many_candidates(database, 40, name="other", space=SPACE, seed=1)
    search_id = add_many_candidates(database, 120, per_episode=8, name="asked", space=SPACE)
    with database.write() as session:
        session.execute(
            update(Candidate)
            .where(Candidate.search_id == search_id, Candidate.episode == 15)
            .values(status="proposed", reward=None, loss_relative=None, latency_ms=None)
        )
    return database, search_id


def everything(database: Database, search_id: str) -> list[dict[str, Any]]:
    with database.read() as session:
        first = candidates_after(session, search_id, None, 50)
        last = first[-1]["episode"], first[-1]["position"]
        return first + candidates_after(session, search_id, last, 500)


def pages(
    database: Database, search_id: str, wanted: Wanted, **options: Any
) -> Iterator[list[dict[str, Any]]]:
    cursor = None
    while True:
        with database.read() as session:
            page = list_candidates(session, search_id, wanted, cursor=cursor, **options)
        yield list(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def fits(row: dict[str, Any], wanted: Wanted) -> bool:
    return all(_fits(row, name, value) for name, value in wanted.items())


def _fits(row: dict[str, Any], name: str, value: Any) -> bool:
    if name.startswith("min_"):
        return row[name[4:]] is not None and bool(row[name[4:]] >= value)
    if name.startswith("max_"):
        return row[name[4:]] is not None and bool(row[name[4:]] <= value)
    return bool(row[name] in value if isinstance(value, list) else row[name] == value)


def in_order(rows: list[dict[str, Any]], sort: str, descending: bool) -> list[dict[str, Any]]:
    name = LAST.get(sort, sort)
    valued = [row for row in rows if row[name] is not None]
    rest = [row for row in rows if row[name] is None]
    return sorted(valued, key=lambda r: (r[name], r["id"]), reverse=descending) + sorted(
        rest, key=lambda r: r["id"], reverse=descending
    )


VALUES: dict[str, list[int | str]] = {
    "status": ["succeeded", "failed", "proposed", "running"],
    "source": ["controller", "random"],
    "activation": ["gelu", "relu"],
    "episode": [1, 2, 14, 15, 99],
    "layers": [3, 4, 12],
    "heads": [2, 3],
    "hidden": [288, 384],
    "intermediate": [512],
}
BOUNDED = ("reward", "loss_relative", "latency_ms", "params_millions")


def bounds(prefix: str, largest: float) -> st.SearchStrategy[dict[str, float]]:
    names = [prefix + name for name in BOUNDED]
    return st.dictionaries(st.sampled_from(names), st.floats(0, largest), max_size=2)


LISTS = st.dictionaries(st.sampled_from(sorted(VALUES)), st.none(), max_size=3).flatmap(
    lambda names: st.fixed_dictionaries(
        {n: st.lists(st.sampled_from(VALUES[n]), min_size=1, unique=True) for n in names}
    )
)
ONES = st.sampled_from([{}, {}, {"reused": True}, {"reused": False}])
NAMED = st.sampled_from([{}, {}, {}, {"architecture": "3,2,288,512,gelu"}])
FILTERS = st.tuples(LISTS, bounds("min_", 2), bounds("max_", 20), ONES, NAMED).map(
    lambda parts: {name: value for part in parts for name, value in part.items()}
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wanted=FILTERS,
    sort=st.sampled_from(sorted(SORTS)),
    descending=st.booleans(),
    limit=st.integers(4, 70),
)
def test_all_pages_are_the_filtered_list_in_order(
    searched: tuple[Database, str], wanted: Wanted, sort: str, descending: bool, limit: int
) -> None:
    database, search_id = searched
    rows = [row for row in everything(database, search_id) if fits(row, wanted)]
    read = list(pages(database, search_id, wanted, sort=sort, descending=descending, limit=limit))
    assert [row for page in read for row in page] == in_order(rows, sort, descending)
    assert all(len(page) == limit for page in read[:-1])


def test_rows_that_appear_meanwhile_repeat_none_and_hide_none(
    searched: tuple[Database, str],
) -> None:
    database, search_id = searched
    before = {row["id"] for row in everything(database, search_id)}
    read: list[str] = []
    for number, page in enumerate(pages(database, search_id, {}, limit=7)):
        read += [row["id"] for row in page]
        with database.write() as session:  # a copy of some row under an id of its own
            source = session.get_one(Candidate, read[-1])
            values = {c.key: getattr(source, c.key) for c in Candidate.__table__.columns}
            session.add(Candidate(**{**values, "id": f"x{number:02}", "position": 100 + number}))
    assert len(read) == len(set(read))
    assert before <= set(read)


def test_a_cursor_of_another_list_is_refused(searched: tuple[Database, str]) -> None:
    database, search_id = searched
    with database.read() as session:
        cursor = list_candidates(session, search_id, {}, limit=5).next_cursor
        assert cursor is not None
        for refused, wanted, options in (
            (cursor, {"layers": [3]}, {}),
            (cursor, {}, {"sort": "latency_ms"}),
            (cursor, {}, {"descending": False}),
            (cursor[:-4], {}, {}),
            ("", {}, {}),
            ("WzEsMiwzXQ", {}, {}),
            ("nonsense~", {}, {}),
        ):
            with pytest.raises(RequestError, match="leave it out"):
                list_candidates(session, search_id, wanted, cursor=refused, **options)


def test_a_candidate_by_itself_has_attempts_and_curve(searched: tuple[Database, str]) -> None:
    database, search_id = searched
    first = everything(database, search_id)[0]
    with database.read() as session:
        found = read_candidate(session, first["id"])
        assert {name: found[name] for name in FIELDS} == first
        assert (found["attempts"], found["curve"]) == ([], [])
        with pytest.raises(NotFoundError, match="'nobody'"):
            read_candidate(session, "nobody")


@pytest.mark.parametrize("sort", sorted(SORTS))
def test_sqlite_walks_along_an_index(sqlite_template: Path, sort: str) -> None:
    from sqlalchemy import event

    from kdnas.db.engine import parse_url

    plans: list[str] = []
    with Database(parse_url(f"sqlite:///{sqlite_template}")) as database:

        @event.listens_for(database._engine, "before_cursor_execute")
        def explain(connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
            if statement.startswith("SELECT"):
                rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
                plans.extend(row[-1] for row in rows)

        with database.read() as session:
            list_candidates(session, "none", {}, sort=sort, limit=10)
    assert plans
    assert not [plan for plan in plans if "TEMP B-TREE" in plan or "SCAN" in plan]
