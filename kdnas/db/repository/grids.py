"""Grids: the trials of each, and what was chosen; by a key that names all that decides it.

Whoever holds a grid's lease works on it; everybody else waits for what it chooses. What was chosen
once stands, so that all seeds are trained alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from kdnas.db.base import insert, locked
from kdnas.db.models import Grid


def open_grid(session: Session, key: str, *, model: str, task: str) -> Grid:
    """Find a grid, or write one without trials.

    Args:
        session: of a write transaction.
        key: what decides its outcome, as a name.
        model: how the user names what is trained.
        task: its name.
    """
    values = {"id": key, "model": model, "task": task}
    session.execute(insert(session, Grid).values(values).on_conflict_do_nothing())
    return _locked(session, key)


def read_grid(session: Session, key: str) -> Grid | None:
    """Return a grid as it is now; None if nobody has opened it."""
    return session.get(Grid, key)


def add_trial(session: Session, key: str, trial: Mapping[str, Any]) -> None:
    """Keep a trial that has ended."""
    row = _locked(session, key)
    row.trials = [*row.trials, dict(trial)]


def choose(session: Session, key: str, trial: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write down what is chosen, unless somebody has; returns what stands."""
    row = _locked(session, key)
    if row.chosen is None:
        row.chosen = dict(trial)
    return row.chosen


def _locked(session: Session, key: str) -> Grid:
    row = locked(session, Grid, key)
    assert row is not None  # whoever asks has opened it
    return row
