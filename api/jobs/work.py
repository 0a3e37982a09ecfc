"""What every run of stored work has in common: its lease, its status, and the wish to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from api.jobs.lease import held_lease, watched
from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Evaluation, Search
from kdnas.db.records import DistillationRecord, EvaluationRecord
from kdnas.db.repository import distillations, evaluations, searches
from kdnas.db.repository.distillations import UNFINISHED
from kdnas.db.repository.leases import LeasedTable, LeaseOwner
from kdnas.errors import ConflictError, DatabaseError, KdnasError, NotNowError
from kdnas.records import SearchRecord, SearchStatus

StoppedStatus = Literal["paused", "running"]
Record = SearchRecord | DistillationRecord | EvaluationRecord


class StoppedError(Exception):
    """Work is broken off while it is being prepared; nothing is wrong."""


class Work:
    """A row that this process works on.

    Attributes:
        status: what it was when work began; nothing is to be done unless it is ``running``.
    """

    def __init__(
        self,
        database: Database,
        record: Record,
        is_lost: Callable[[], bool],
        is_unwanted: Callable[[], bool],
        should_stop: Callable[[], bool],
        stopped_status: StoppedStatus,
    ) -> None:
        self._database, self._record = database, record
        self._is_lost, self._is_unwanted = is_lost, is_unwanted
        self._should_stop, self._stopped_status = should_stop, stopped_status
        self.status = read_record(database, record).status

    def should_stop(self) -> bool:
        """Whether to stop: on request, or because the row was paused or cancelled.

        Raises:
            ConflictError: another process has the lease now, and writes the status.
        """
        self.check_lease()
        return self._is_unwanted() or self._should_stop()

    def check_lease(self) -> None:
        """Break off if somebody else works on the row; called before a result is written.

        Raises:
            ConflictError: another process has the lease now.
        """
        if self._is_lost():
            raise ConflictError(
                f"another process took over {called(self._record)}; this one has stopped"
            )

    def check(self) -> None:
        """Break off if work is to stop; called while it is being prepared.

        Raises:
            StoppedError: it is.
            ConflictError: see :meth:`should_stop`.
        """
        if self.should_stop():
            raise StoppedError

    def rest(self) -> SearchStatus:
        """Write down that work was stopped, unless somebody has written a status himself."""
        if self._stopped_status == "paused":
            write_status(self._database, self._record, "paused")
        return read_record(self._database, self._record).status

    def fail(self, error: Exception) -> None:
        """Write down why work failed, unless somebody has written a status himself."""
        if not self._is_lost():
            reason = str(error) if isinstance(error, KdnasError) else repr(error)
            write_status(self._database, self._record, "failed", reason)


@contextmanager
def at_work(
    database: Database,
    record: Record,
    claim: str | None,
    should_stop: Callable[[], bool],
    stopped_status: StoppedStatus,
) -> Iterator[Work]:
    """Hold a row for the time of a ``with`` block and watch whether it is still wanted.

    Whatever is raised inside becomes the row's failure, except what says nothing about the work:
    a lost lease, a database out of reach, or, where a coordinator tries again later, a cluster
    that has no room at present or does not answer.

    Args:
        database: where it is stored.
        record: the row.
        claim: token of a coordinator's claim, which has set the row running; None works for the
            command line, and sets it running here.
        should_stop: whether this process wants to stop.
        stopped_status: what the row is then: ``paused``, or ``running`` still, to be taken up.

    Raises:
        ConflictError: another process works on it, or it was cancelled.
    """
    owner = LeaseOwner.of_this_process("service" if claim else "cli", claim)
    with held_lease(database, _table(record), record.id, owner) as lost:
        if claim is None and not write_status(database, record, "running", among=UNFINISHED):
            status = read_record(database, record).status
            raise ConflictError(f"{called(record)} is {status} by now; start a new one")

        def is_unwanted() -> bool:
            return read_record(database, record).status != "running"

        with watched(is_unwanted, f"watch-{record.id}") as unwanted:
            work = Work(database, record, lost.is_set, unwanted.is_set, should_stop, stopped_status)
            try:
                yield work
            except (ConflictError, DatabaseError, StoppedError):
                raise
            except Exception as error:
                if claim is not None and isinstance(error, NotNowError):
                    raise
                work.fail(error)
                raise


def read_record(database: Database, record: Record) -> Record:
    """Read a row anew."""
    with database.read() as session:
        if isinstance(record, SearchRecord):
            return searches.get_search(session, record.id)
        if isinstance(record, EvaluationRecord):
            return evaluations.get_evaluation(session, record.id)
        return distillations.get_distillation(session, record.id)


def write_status(
    database: Database,
    record: Record,
    status: SearchStatus,
    error: str | None = None,
    among: tuple[SearchStatus, ...] = ("running",),
) -> bool:
    """Change a row's status if it is one of ``among``; one that is there already is no change.

    Returns:
        Whether the row has the status now.
    """
    with database.write() as session:
        if isinstance(record, SearchRecord):
            present = searches.locked_search(session, record.id).status
        elif isinstance(record, EvaluationRecord):
            present = evaluations.locked_evaluation(session, record.id).status
        else:
            present = distillations.locked_distillation(session, record.id).status
        if present not in among or present == status:
            return present == status
        if isinstance(record, SearchRecord):
            searches.set_search_status(session, record.id, status, error)
        elif isinstance(record, EvaluationRecord):
            evaluations.set_evaluation_status(session, record.id, status, error)
        else:
            distillations.set_distillation_status(session, record.id, status, error)
    return True


def called(record: Record) -> str:
    """What a row is called, for a sentence."""
    if isinstance(record, EvaluationRecord):
        return f"the evaluation on {record.task} with seed {record.seed}"
    noun = "search" if isinstance(record, SearchRecord) else "distillation"
    return f"{noun} {record.name!r}"


def _table(record: Record) -> LeasedTable:
    if isinstance(record, SearchRecord):
        return Search
    return Evaluation if isinstance(record, EvaluationRecord) else Distillation
