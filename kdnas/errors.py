"""The error tree.

::

    KdnasError
    ├── RequestError            the request is wrong; exit code 2
    │   ├── ArchitectureError   an architecture's text or numbers
    │   ├── SearchSpaceError    axes or an index of a search space
    │   ├── LayerMappingError   a mapping that does not fit student and teacher
    │   ├── SpecError           a spec, preset or configuration file
    │   ├── TeacherError        a teacher that cannot be read or is not supported
    │   ├── CorpusError         a corpus that cannot be read or is too small
    │   ├── TaskDataError       examples of a task that cannot be found or read
    │   ├── OutputError         a folder for results that is used or cannot be made
    │   ├── NotFoundError       an id or a name that is not there
    │   └── ConflictError       the thing exists, but its state forbids the request
    └── WorkError               the request was right, the work failed; exit code 1
        ├── StoreError          an artefact that cannot be written or does not verify
        ├── DatabaseError       the database cannot be used, or is newer than this program
        │   └── DatabaseAwayError   it does not answer at present
        ├── TrainingError       a student that could not be trained
        ├── LatencyError        a latency that could not be measured
        ├── PluginError         what another package brought raised something at its work
        ├── BackendError        workers that could not be started or died too often
        │   └── NotNowError     the cluster cannot do the work at present
        │       ├── NoRoomError         it has no room
        │       └── OutOfReachError     it does not answer
        └── CancelledError      somebody cancelled the work while it went on

A message is one sentence with the offending value, then what to do about it. HTTP statuses and
exit codes are given where requests come in (``kdnas.cli``, ``api``), not here.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong at one place of a request.

    Attributes:
        field: path of the place, as ``controller.episodes``; empty for the whole.
        message: what is wrong there, with the value, and what would be right.
        names_field: whether the message names the place itself.
    """

    field: str
    message: str
    names_field: bool = False

    @property
    def sentence(self) -> str:
        """The message with the place that it is about."""
        is_whole = self.names_field or not self.field
        return self.message if is_whole else f"{self.field}: {self.message}"


class KdnasError(Exception):
    """Any failure that a user is told about in one sentence."""


class RequestError(KdnasError):
    """The request is wrong: nothing was started.

    Attributes:
        fields: places of the request that are wrong, as far as they are known.
    """

    def __init__(self, message: str, *, field: str = "", fields: Sequence[FieldError] = ()) -> None:
        """Say what is wrong, and where.

        Args:
            message: the sentence.
            field: path of the one place that it is about.
            fields: places with a sentence each, if there are several.
        """
        super().__init__(message)
        one = (FieldError(field, message, names_field=True),) if field else ()
        self.fields: tuple[FieldError, ...] = tuple(fields) or one


@contextmanager
def told_at(field: str) -> Iterator[None]:
    """Say of a request that is refused meanwhile which place of it is wrong, if nobody has."""
    try:
        yield
    except RequestError as error:
        error.fields = error.fields or (FieldError(field, str(error), names_field=True),)
        raise


@contextmanager
def told_within(part: str) -> Iterator[None]:
    """Say of places of a request that is refused meanwhile that they lie in a part of another."""
    try:
        yield
    except RequestError as error:
        inner = (replace(one, field=f"{part}.{one.field}") for one in error.fields)
        error.fields = tuple(inner)
        raise


class ArchitectureError(RequestError):
    """The text or the numbers of an architecture are wrong."""


class SearchSpaceError(RequestError):
    """The axes of a search space are wrong, or an index lies outside it."""


class LayerMappingError(RequestError):
    """A layer mapping does not fit the student and the teacher."""


class SpecError(RequestError):
    """A spec, a preset or a configuration file is wrong."""


class TeacherError(RequestError):
    """A teacher cannot be read or is of an unsupported family."""


class CorpusError(RequestError):
    """A corpus cannot be read or is too small."""


class TaskDataError(RequestError):
    """The examples of a task cannot be found or read."""


class OutputError(RequestError):
    """A folder for results is used, or cannot be made."""


class NotFoundError(RequestError):
    """There is nothing with this id or name.

    Attributes:
        listed_in: part of the API and command of the program that lists what there is, such as
            ``searches``; None where the message says enough.
    """

    def __init__(self, message: str, *, field: str = "", listed_in: str | None = None) -> None:
        """Say what there is not, where it was asked for, and what lists all that there is."""
        super().__init__(message, field=field)
        self.listed_in = listed_in


class ConflictError(RequestError):
    """The thing exists, but its present state forbids the request."""


class WorkError(KdnasError):
    """The request was right, but the work failed."""


class StoreError(WorkError):
    """An artefact cannot be written, read or verified."""


class DatabaseError(WorkError):
    """The database is out of reach, not migrated, or newer than this program."""


class DatabaseAwayError(DatabaseError):
    """The database does not answer at present, but may later.

    Args:
        reason: where and why.
        advice: what to do about it.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason, self.advice = reason, advice


class TransactionEndedError(DatabaseError):
    """The database has ended a transaction so that others could go on; it may be done again."""


class TrainingError(WorkError):
    """A student could not be trained."""


class LatencyError(WorkError):
    """A latency could not be measured."""


class PluginError(WorkError):
    """What another package brought raised something at its work; the cause says where."""


class BackendError(WorkError):
    """Workers could not be started, or died too often."""


class NotNowError(BackendError):
    """The cluster cannot do the work at present, but may later."""


class NoRoomError(NotNowError):
    """The cluster has no room for the work."""


class OutOfReachError(NotNowError):
    """The cluster does not answer."""


class CancelledError(WorkError):
    """Somebody cancelled the work while it went on; it cannot be resumed."""


DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What a full or read-only disk says."""


def of_a_disk(error: Exception, home: str = "KDNAS_HOME") -> StoreError | None:
    """Word what a disk said in the middle of some work; None if it was no disk that failed."""
    if not isinstance(error, OSError) or error.errno not in DISK_ERRORS:
        return None
    return StoreError(
        f"{error.filename or 'a file'} could not be written ({error.strerror}); free space there, "
        f"or in {home} and where the result goes, and resume"
    )


def too_long_a_name(error: OSError) -> str:
    """Word what a system says of a path with a name that no file can have."""
    name = str(error.filename)
    shown = name if len(name) <= 60 else f"{name[:60]}… ({len(name)} characters)"
    return f"{shown!r} is too long for the name of a file or a folder; give a shorter one"


MOST_NAMED = 12


def some_of(names: Iterable[object]) -> str:
    """Name what there is, the first ones of many: a file may have columns without end."""
    known = list(names)
    more = f", … ({len(known)} in all)" if len(known) > MOST_NAMED else ""
    return ", ".join(str(name)[:60] for name in known[:MOST_NAMED]) + more or "none"


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Word the error for an unknown name: the name, the nearest valid one, and all of them."""
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {str(name)!r}{hint} Known: {', '.join(names) or 'none'}"
