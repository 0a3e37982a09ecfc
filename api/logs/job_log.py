"""Logs of jobs: where they are, and reading and removing them.

While a process works on a job, the coordinator that started it writes what it prints to
``<home>/jobs/<id>/log.txt``, and every few seconds publishes that file to the store, where every
process of the service reads it (:mod:`api.logs.writer`). The local file goes when the store
has all of it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from api.jobs.files import JOBS, job_folder
from api.jobs.registry import kind_named
from api.logs.text import LogText
from kdnas.db.models import Job
from kdnas.errors import NotFoundError, StoreError
from kdnas.settings import Settings
from kdnas.store import Store

FILE: Final = "log.txt"
_LOCK: Final = "log.lock"


@dataclass(frozen=True, slots=True)
class JobLog:
    """The log of one job.

    Attributes:
        job_id: the job.
        path: where it is while somebody writes it on this machine.
        store: where it is published.
    """

    job_id: str
    path: Path
    store: Store

    @classmethod
    def of(cls, settings: Settings, job_id: str) -> JobLog:
        """Return the log of a job; nothing is created."""
        path = job_folder(settings, job_id) / FILE
        return cls(job_id, path, Store.from_settings(settings))

    def lock(self) -> FileLock:
        """The lock that its writer holds on this machine."""
        return FileLock(self.path.with_name(_LOCK))

    def read(self) -> LogText | None:
        """Return the log as far as it is known here, from wherever it is newest; None if none is.

        Raises:
            StoreError: the store is out of reach, and nothing of the log is here.
        """
        local = self.read_local()
        if local is None:
            return self.read_published()
        if self._is_being_written():
            return local
        try:
            return newer(local, self.read_published())
        except StoreError:
            return local

    def read_local(self) -> LogText | None:
        """Return what is on this machine."""
        try:
            return LogText.parse(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"cannot read {self.path}: {error.strerror}; check KDNAS_HOME"
            ) from error

    def read_published(self) -> LogText | None:
        """Return what is in the store.

        Raises:
            StoreError: it is out of reach.
        """
        data = self.store.read_file(JOBS, self.job_id, FILE)
        return None if data is None else LogText.parse(data)

    def publish(self, data: bytes) -> None:
        """Replace what is in the store.

        Raises:
            StoreError: it is out of reach or full.
        """
        self.store.write_file(JOBS, self.job_id, FILE, data)

    def published_size(self) -> int | None:
        """Return the bytes of what is in the store; None if nothing is.

        Raises:
            StoreError: it is out of reach.
        """
        return self.store.file_size(JOBS, self.job_id, FILE)

    def remove_local(self) -> None:
        """Remove what is on this machine, and the job's folder if nothing else is in it."""
        for path in (self.path, self.path.with_name(_LOCK)):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not there, or other files of the job are in it
            self.path.parent.rmdir()

    def remove(self) -> None:
        """Remove it everywhere; who writes it at present sees that and stops.

        Raises:
            StoreError: the store is out of reach.
        """
        self.remove_local()
        self.store.remove_files(JOBS, self.job_id)

    def _is_being_written(self) -> bool:
        try:
            with self.lock().acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # the folder has gone, or is not ours to write
            return False


def newer(local: LogText | None, published: LogText | None) -> LogText | None:
    """Return the one that knows the newer run, else the one that knows more of it."""
    if local is None or published is None:
        return local or published
    known, told = (local.last_run, local.end), (published.last_run, published.end)
    return local if known >= told else published


def refuse_without_log(job: Job) -> None:
    """Refuse a job that never has a log of its own.

    Raises:
        NotFoundError: it is the command line's, or has no process.
    """
    if kind_named(job.kind).run is None:
        raise NotFoundError(
            f"{job.called} has no process and so no log; its parts have, "
            f"the jobs with {job.name or job.id} as parent"
        )
    if job.owner_kind == "cli":
        raise NotFoundError(
            f"{job.called} was started on the command line, which shows what it says and keeps no "
            "log; look at the terminal where it ran"
        )


def log_so_far(settings: Settings, job_id: str, has_ended: bool) -> LogText:
    """Return a job's log, which is empty as long as nothing has begun to work on it.

    Args:
        settings: of this process.
        job_id: the job's id.
        has_ended: whether the job has; then there is a log, or there will be none.

    Raises:
        NotFoundError: it has ended, and there is no log.
        StoreError: the store is out of reach.
    """
    text = JobLog.of(settings, job_id).read()
    if text is None and has_ended:
        raise NotFoundError(
            f"there is no log of job {job_id!r} in the store {settings.store_url}; either nothing "
            "has worked on it, or it was done with another KDNAS_STORE"
        )
    return text or LogText(b"")
