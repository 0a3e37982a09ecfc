"""A PostgreSQL that ends each kind of transaction once, just after it has begun.

An outage meets whatever happens to be going on. Here none is left to chance: where a process is
patient, every place that begins a transaction loses its connection the first time.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from kdnas.db import engine, patience

_PASSED_OVER: Final = {engine.__file__, contextlib.__file__, functools.__file__, __file__}
_FRAMES: Final = 3
"""The nearest that tell one place from another: some begin transactions for all others."""
TOLD: Final = "lost where it began: "


def lose_each_connection_once() -> None:
    """Have every place of this process lose its connection once; given to a ``Program`` first."""
    begun, met = engine.Database._begun, set[tuple[str, ...]]()
    patience.SHORTEST_SECONDS = 0.01  # type: ignore[misc]  # it is there again at once

    @contextmanager
    def losing(database: engine.Database, *args: Any, **kwargs: Any) -> Iterator[engine.Session]:
        place = _place()
        with begun(database, *args, **kwargs) as session:
            if database._patience is not None and place not in met:
                met.add(place)
                driver: Any = session.connection().connection.dbapi_connection
                _end_backend(database, driver.info.backend_pid)
                print(TOLD + " < ".join(place), file=sys.stderr)
            yield session

    engine.Database._begun = losing  # type: ignore[method-assign,assignment]


def _place() -> tuple[str, ...]:
    frames = [f for f in traceback.extract_stack() if f.filename not in _PASSED_OVER]
    return tuple(f"{Path(f.filename).name}:{f.lineno}" for f in frames[: -_FRAMES - 1 : -1])


def _end_backend(database: engine.Database, pid: int) -> None:
    """End a connection of the server; returns when it is gone."""
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", (pid,))
