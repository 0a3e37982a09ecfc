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
        self._num_bytes = 0
        self._num_dropped = 0
        self._given_up = self._ending = False
        self._news = threading.Condition()
        self._size_here = self._size_told = 0
        self._run, self._beginning = 0, b""
        self._is_published = self._is_store_known = False
        self._has_grown = False
        self._told_of_store = False
        self._thread = threading.Thread(target=self._work, name="job-log", daemon=True)
        self._thread.start()

    def add(self, line: bytes) -> None:
        """Write a line, which ends with a line's end; returns at once."""
        with self._news:
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
        with self._news:
            self._waiting.append(f"=== {how} at {_now()} ===\n".encode())
            self._ending = True
            self._news.notify()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until all is written and published; tells whether it is."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._log.path.parent.mkdir(parents=True, exist_ok=True)
            with self._log.lock().acquire(timeout=LOCK_SECONDS):
                self._write_to_the_end()
        except Timeout:
            self._give_up("another process has not let go of it")
        except OSError as error:
            self._give_up(f"{self._log.path}: {error.strerror or error}")
        except _LostError as lost:
            self._forget_the_rest()
            log.info("the log of a job ends here", reason=str(lost), **self._about)

    def _write_to_the_end(self) -> None:
        try:
            self._begin()
            published = -PUBLISH_SECONDS
            while not self._is_over():
                self._write_what_waits()
                if time.monotonic() - published >= PUBLISH_SECONDS and self._has_grown:
                    self._publish()
                    published = time.monotonic()
            self._write_what_waits()
        except OSError as error:
            self._give_up(f"{self._log.path}: {error.strerror or error}")
        if self._log.path.exists() and (not self._has_grown or self._publish()):
            self._log.remove_local()

    def _is_over(self) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._ending, WRITE_SECONDS)

    def _begin(self) -> None:
        """Go on with the log where it is newest, and write who goes on."""
        local, published = self._log.read_local(), self._published()
        text = newer(local, published) or LogText(b"")
        data = text.dump()
        if data and not data.endswith(b"\n"):  # whoever wrote before was killed
            data += b"\n"
        self._write_from(data, text.last_run)

    def _write_from(self, before: bytes, last_run: int, since: bytes = b"") -> None:
        """Write the log anew: what was there before, that this run begins, and what it said."""
        self._run = last_run + 1
        self._beginning = f"=== run {self._run} began {self._began} on {self._who} ===\n".encode()
        data = before + self._beginning + since
        write_atomically(self._log.path, data)
        self._size_here, self._has_grown = len(data), True

    def _published(self) -> LogText | None:
        try:
            text = self._log.read_published()
        except StoreError as error:
            self._tell_of_store(error)
            return None
        self._is_store_known = True
        if text is not None:
            self._is_published, self._size_told = True, len(text.dump())
        return text

    def _write_what_waits(self) -> None:
        with self._news:
            lines, num_dropped = list(self._waiting), self._num_dropped
            self._waiting.clear()
            self._num_bytes = self._num_dropped = 0
        if num_dropped:
            lines.insert(0, f"=== {num_dropped} bytes were lost here ===\n".encode())
        if not lines:
            return
        try:
            # Without O_CREAT: whoever removes the file has deleted the log.
            descriptor = os.open(self._log.path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            raise _LostError("the job was deleted") from None
        with os.fdopen(descriptor, "ab") as file:
            file.write(b"".join(lines))
        self._size_here += sum(map(len, lines))
        self._has_grown = True
        if self._size_here > LONGEST_BYTES:
            data = LogText.parse(self._log.path.read_bytes()).shortened().dump()
            write_atomically(self._log.path, data)
            self._size_here = len(data)

    def _publish(self) -> bool:
        """Bring the store up to date; tells whether it is."""
        try:
            if self._is_store_known:
                self._refuse_to_overwrite()
            else:
                self._go_on_with_earlier_runs()
            data = self._log.path.read_bytes()
            self._log.publish(data)
        except FileNotFoundError:
            raise _LostError("the job was deleted") from None
        except StoreError as error:
            self._tell_of_store(error)
            return False
        self._is_published, self._size_told = True, len(data)
        self._has_grown = self._told_of_store = False
        return True

    def _refuse_to_overwrite(self) -> None:
        """Raise if the log was deleted, or somebody on another machine goes on with it."""
        size = self._log.published_size()
        if size is None and self._is_published:
            self._log.remove_local()
            raise _LostError("the job was deleted")
        if size is not None and size != self._size_told:
            other = self._log.read_published()
            if other is not None and other.last_run > self._run:
                self._log.remove_local()
                raise _LostError("another machine goes on with the job")

    def _go_on_with_earlier_runs(self) -> None:
        """Put earlier runs before this one: the store did not answer when it began."""
        earlier = self._log.read_published()
        self._is_store_known = True
        if earlier is None or earlier.last_run < self._run:
            return
        _, beginning, since = self._log.path.read_bytes().partition(self._beginning)
        if beginning:
            self._write_from(earlier.dump(), earlier.last_run, since)

    def _tell_of_store(self, error: StoreError) -> None:
        if not self._told_of_store:
            log.warning(
                "the log of a job is not in the store yet", reason=str(error), **self._about
            )
            self._told_of_store = True

    def _give_up(self, reason: str) -> None:
        self._forget_the_rest()
        log.warning("the log of a job is given up", reason=reason, **self._about)

    def _forget_the_rest(self) -> None:
        with self._news:
            self._given_up = True
            self._waiting.clear()
            self._num_bytes = 0


def publish_what_was_left(settings: Settings, database: Database) -> None:
    """Publish logs that lie here since the one who wrote them was killed, and remove them here.

    Raises:
        StoreError: the store is out of reach; they stay.
        DatabaseError: nobody can say which jobs there are; they stay.
    """
    for path in sorted((settings.home / JOBS).glob(f"*/{FILE}")):
        job_log = JobLog.of(settings, path.parent.name)
        with database.read() as session:
            is_job = jobs.status_of(session, job_log.job_id) is not None
        try:
            with job_log.lock().acquire(timeout=0):
                if is_job:
                    _publish_newer(job_log)
                job_log.remove_local()
        except Timeout:
            continue  # somebody writes it
        except OSError as error:
            log.warning("a log stays where it is", path=str(path), reason=str(error))


def _publish_newer(job_log: JobLog) -> None:
    local, published = job_log.read_local(), job_log.read_published()
    if local is not None and local != published and newer(local, published) is local:
        job_log.publish(local.dump())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
