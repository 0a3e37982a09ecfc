"""The search loop's journal in the database: one transaction a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from kdnas.db.engine import Database
from kdnas.db.exploration import candidates, losses
from kdnas.db.repository import jobs, searches

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def _method(
    transaction: Callable[[Database, Callable[[Session], Answer]], Answer],
    act: Callable[Concatenate[Session, Given], Answer],
) -> Callable[Concatenate[DatabaseJournal, Given], Answer]:
    """Make a method of a function that works in a session."""

    @wraps(act)
    def method(journal: DatabaseJournal, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return transaction(journal.database, lambda session: act(session, *args, **kwargs))

    return method


class DatabaseJournal:
    """Implements ``kdnas.search.protocols.Journal``; safe to share between threads.

    Every method raises NotFoundError for an id that is not there, ConflictError where the state
    forbids the call, and DatabaseError if the database is out of reach or full; then nothing of
    the call was written.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    episodes = _method(Database.ask, candidates.list_episodes)
    controller_state = _method(Database.ask, candidates.controller_state)
    known_losses = _method(Database.ask, losses.known_losses)
    get_search = _method(Database.ask, searches.get_search)
    begin_episode = _method(Database.transact, candidates.begin_episode)
    save_context = _method(Database.transact, losses.save_context)
    start_attempt = _method(Database.transact, candidates.start_attempts)
    interrupt_attempts = _method(Database.transact, candidates.interrupt_attempts)
    close_open_attempts = _method(Database.transact, candidates.close_open_attempts)
    finish_candidate = _method(Database.transact, candidates.finish_candidate)
    reuse_losses = _method(Database.transact, candidates.reuse_losses)
    end_episode = _method(Database.transact, candidates.end_episode)
    set_status = _method(Database.transact, jobs.set_status)
