"""What a grid chooses: once and for all, whoever wants it, kept trial by trial.

Whoever holds a grid's lease works on it; everybody else waits for what it chooses, or does
something else meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from api.jobs.lease import held_lease
from kdnas.db.engine import Database
from kdnas.db.models import Grid
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.repository import grids
from kdnas.errors import ConflictError

WAIT_SECONDS = 1.0

Trial = Mapping[str, Any]
"""A trial as plain JSON."""
Keep = Callable[[Trial], None]
ShouldStop = Callable[[], bool]


@dataclass(frozen=True)
class GridName:
    """Which grid.

    Attributes:
        key: what decides its outcome, as a name.
        model: how the user names what is trained.
        task: name of the task.
    """

    key: str
    model: str
    task: str


def chosen_once(
    database: Database,
    name: GridName,
    owner: LeaseOwner,
    choose: Callable[[Sequence[Trial], Keep, ShouldStop], Trial | None],
    on_wait: Callable[[], None],
    should_stop: ShouldStop,
) -> Trial | None:
    """Return what a grid has chosen: before, here and now, or in another process.

    Args:
        database: where trials are kept, and what was chosen.
        name: of the grid.
        owner: who holds the lease if it is worked on here.
        choose: works on it while the lease is held: is given the trials that are known and what
            keeps another one, and asks whether to stop; returns the best of all, or None if it was
            stopped.
        on_wait: is told about once a second that somebody else works on it; what it raises ends the
            wait.
        should_stop: asked a few times a second.

    Returns:
        The trial that stands; None if this run was to stop.
    """

    def opened() -> Grid:
        return database.transact(
            lambda session: grids.open_grid(session, name.key, model=name.model, task=name.task)
        )

    def keep(trial: Trial) -> None:
        database.transact(lambda session: grids.add_trial(session, name.key, trial))

    while not should_stop():
        chosen = opened().chosen
        if chosen is not None:
            return chosen
        with _held(database, name.key, owner) as lost:
            if lost is not None:
                record = opened()  # somebody may have been quicker between a look and the lease
                if record.chosen is not None:
                    return record.chosen
                best = choose(record.trials, keep, lambda: lost() or should_stop())
                if best is not None and not lost():
                    return database.transact(partial(grids.choose, key=name.key, trial=best))
                continue
        on_wait()
        time.sleep(WAIT_SECONDS)
    return None


@contextmanager
def _held(database: Database, key: str, owner: LeaseOwner) -> Iterator[Callable[[], bool] | None]:
    """Hold a grid; yields None if somebody else does, else what says whether it is lost."""
    with ExitStack() as stack:
        try:
            lost = stack.enter_context(held_lease(database, Grid, key, owner))
        except ConflictError:
            lost = None
        yield lost
