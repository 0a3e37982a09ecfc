"""Which kinds of jobs there are: ours, and those of installed packages.

A package adds a kind by an entry point in the group ``kdnas.job_kinds`` that names a
:class:`~api.jobs.kind.JobKind`. Ours are named here and loaded when somebody asks, so that nothing
that all kinds share imports one of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from api.jobs.kind import JobKind
from kdnas.db import migrate
from kdnas.errors import SpecError, unknown_name
from kdnas.settings import Settings

ENTRY_POINT_GROUP: Final = "kdnas.job_kinds"

_OUR_TABLES: Final = "kdnas.db.models."
_OURS: Final = (
    *("searches", "sweeps", "distillations", "task_distillations", "evaluations"),
    *("pipelines", "latency_tables"),
)


@cache
def kinds() -> Mapping[str, JobKind]:
    """Every kind by its name, ours first.

    Raises:
        SpecError: a package's entry point cannot be loaded, is no kind, or has the name of another.
    """
    found = {kind.name: kind for kind in map(_ours, _OURS)}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            kind = point.load()
        except (ImportError, AttributeError) as error:
            raise SpecError(
                f"entry point {point.name!r} of {ENTRY_POINT_GROUP} ({point.value}) cannot be "
                f"loaded: {error}; correct or remove its package"
            ) from error
        if not isinstance(kind, JobKind) or kind.name in found:
            raise SpecError(
                f"entry point {point.name!r} of {ENTRY_POINT_GROUP} ({point.value}) names no new "
                "kind of job; correct or remove its package"
            )
        found[kind.name] = kind
    return found


def kind_named(name: str) -> JobKind:
    """Return a kind by its name.

    Raises:
        SpecError: there is none; says which name is nearest.
    """
    known = kinds()
    if name not in known:
        raise SpecError(unknown_name("kind of job", name, known))
    return known[name]


def add_tables_of_packages(settings: Settings) -> None:
    """Make the tables of kinds that installed packages bring, where they are not there yet.

    Raises:
        DatabaseError: the database is out of reach, or full.
    """
    tables = [
        kind.table for kind in kinds().values() if not kind.table.__module__.startswith(_OUR_TABLES)
    ]
    if tables:
        migrate.add_tables(settings.database_url, tables)


def _ours(room: str) -> JobKind:
    kind: JobKind = importlib.import_module(f"api.{room}.kind").KIND
    return kind
