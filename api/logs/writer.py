"""Writing the log of a job while a process works on it: to the disk at once, to the store at times.

All of it happens in a thread of its own, so that neither a slow disk nor a store that does not
answer holds up the process, which would wait at a full pipe. What cannot be written is given up
with a line in the service's log; the work goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import structlog
from filelock import Timeout

from api.jobs.files import JOBS
from api.logs.job_log import FILE, JobLog, newer
from api.logs.text import LONGEST_BYTES, LogText
from kdnas.artefact import write_atomically
from kdnas.db.engine import Database
from kdnas.db.repository import jobs
from kdnas.errors import StoreError
from kdnas.settings import Settings

PUBLISH_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 0.2
LOCK_SECONDS: Final = 60.0
"""So long it waits for the one who wrote before it on this machine, who may still publish."""
MOST_WAITING_BYTES: Final = 4 * 1024**2
"""So much may wait for a slow disk or store; beyond it the oldest lines are dropped."""

_DELETED: Final = "the job was deleted"

log = structlog.get_logger("kdnas.coordinator")


class _LostError(Exception):
    """The log is somebody else's by now, or was deleted with its job."""


class LogWriter:
    """Writes what one process prints into the log of its job.

    Args:
        job_log: where to.
        who: the host and the process, for the line with which the run begins.
        about: the job, for lines of the service's log.
    """

    def __init__(self, job_log: JobLog, who: str, about: dict[str, str]) -> None:
        self._log = job_log
        self._who, self._began = who, _now()
        self._about = about
        self._waiting: deque[bytes] = deque()
        self._num_bytes = self._num_dropped = 0
        self._lock, self._ending = threading.Lock(), threading.Event()
        self._run, self._beginning = 0, b""
        self._size_told: int | None = None  # of what is published, once the store has said it
        self._given_up = self._has_grown = self._told_of_store = False
        self._thread = threading.Thread(target=self._work, name="job-log", daemon=True)
        self._thread.start()

    def add(self, line: bytes) -> None:
        """Write a line, which ends with a line's end; returns at once."""
        with self._lock:
            if self._given_up:
                return
            self._waiting.append(line)
            self._num_bytes += len(line)
            while self._num_bytes > MOST_WAITING_BYTES:
                dropped = len(self._waiting.popleft())
                self._num_bytes -= dropped
                self._num_dropped += dropped

    def end(self, how: str) -> None:
        """Write how the process ended, and publish; returns at once."""
        with self._lock:
            self._waiting.append(f"=== {how} at {_now()} ===\n".encode())
        self._ending.set()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until all is written and published; tells whether it is."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        with self._given_up_on_errors():
            self._log.path.parent.mkdir(parents=True, exist_ok=True)
            with self._log.lock().acquire(timeout=LOCK_SECONDS):
                with self._given_up_on_errors():
                    self._write_to_the_end()
                if self._log.path.exists() and (not self._has_grown or self._publish()):
                    self._log.remove_local()

    @contextmanager
    def _given_up_on_errors(self) -> Iterator[None]:
        """Forget what is still to be written where that is not possible, and say why."""
        try:
            yield
        except (FileNotFoundError, _LostError) as lost:
            reason = str(lost) if isinstance(lost, _LostError) else _DELETED
            log.info("the log of a job ends here", reason=reason, **self._about)
        except (OSError, StoreError) as error:
            reason = str(error)
            if isinstance(error, Timeout):
                reason = "another process has not let go of it"
            elif isinstance(error, OSError):
                reason = f"{self._log.path}: {error.strerror or error}"
            log.warning("the log of a job is given up", reason=reason, **self._about)
        else:
            return
        with self._lock:
            self._given_up = True
            self._waiting.clear()

    def _write_to_the_end(self) -> None:
        """Go on with the log where it is newest, write what comes, and publish at times."""
        try:
            published = self._read_published()
        except StoreError as error:
            self._tell_of_store(error)
            published = None
        self._write_after(newer(self._log.read_local(), published) or LogText(b""))
        published_at = -PUBLISH_SECONDS
        while not self._ending.wait(WRITE_SECONDS):
            self._write_what_waits()
            if time.monotonic() - published_at >= PUBLISH_SECONDS and self._has_grown:
                self._publish()
                published_at = time.monotonic()
        self._write_what_waits()

    def _write_after(self, before: LogText, since: bytes = b"") -> None:
        """Write the log anew: earlier runs, that this one begins, and what it has said."""
        self._run = before.last_run + 1
        self._beginning = f"=== run {self._run} began {self._began} on {self._who} ===\n".encode()
        data = before.dump()
        if data and not data.endswith(b"\n"):  # whoever wrote before was killed
            data += b"\n"
        write_atomically(self._log.path, data + self._beginning + since)
        self._has_grown = True

    def _write_what_waits(self) -> None:
        with self._lock:
            lines, num_dropped = list(self._waiting), self._num_dropped
            self._waiting.clear()
            self._num_bytes = self._num_dropped = 0
        if num_dropped:
            lines.insert(0, f"=== {num_dropped} bytes were lost here ===\n".encode())
        if not lines:
            return
        # Not "ab", which makes a file that is not there: whoever removes it has deleted the log.
        with self._log.path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END) + file.write(b"".join(lines))
        self._has_grown = True
        if size > LONGEST_BYTES:
            shortened = LogText.parse(self._log.path.read_bytes()).shortened()
            write_atomically(self._log.path, shortened.dump())

    def _publish(self) -> bool:
        """Bring the store up to date; tells whether it is."""
        try:
            if (self._log.published_size() or 0) != self._size_told:
                self._give_way()
            data = self._log.path.read_bytes()
            self._log.publish(data)
        except StoreError as error:
            self._tell_of_store(error)
            return False
        self._size_told = len(data)
        self._has_grown = self._told_of_store = False
        return True

    def _give_way(self) -> None:
        """See to what others did to what is published.

        The log was deleted; or another machine goes on with the job; or there are earlier runs that
        were not known when this one began, since the store did not answer: they come before it.
        """
        told, there = self._size_told, self._read_published()
        if there is None and not told:
            return
        if there is None or (told is not None and there.last_run > self._run):
            self._log.remove_local()
            raise _LostError(_DELETED if there is None else "another machine goes on with the job")
        if told is None and there.last_run >= self._run:
            _, beginning, since = self._log.path.read_bytes().partition(self._beginning)
            if beginning:
                self._write_after(there, since)

    def _read_published(self) -> LogText | None:
        text = self._log.read_published()
        self._size_told = 0 if text is None else len(text.dump())
        return text

    def _tell_of_store(self, error: StoreError) -> None:
        if not self._told_of_store:
            log.warning(
                "the log of a job is not in the store yet", reason=str(error), **self._about
            )
            self._told_of_store = True


def publish_what_was_left(settings: Settings, database: Database) -> None:
    """Publish logs that lie here since the one who wrote them was killed, and remove them here.

    Raises:
        StoreError: the store is out of reach; they stay.
        DatabaseError: nobody can say which jobs there are; they stay.
    """
    for path in sorted((settings.home / JOBS).glob(f"[!.]*/{FILE}")):
        job_log = JobLog.of(settings, path.parent.name)
        with database.read() as session:
            is_job = jobs.status_of(session, job_log.job_id) is not None
        try:
            with job_log.lock().acquire(timeout=0):
                local, published = job_log.read_local(), job_log.read_published()
                is_newer = newer(local, published) is local and local != published
                if is_job and local is not None and is_newer:
                    job_log.publish(local.dump())
                job_log.remove_local()
        except Timeout:
            continue  # somebody writes it
        except OSError as error:
            log.warning("a log stays where it is", path=str(path), reason=str(error))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
