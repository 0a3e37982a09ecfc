"""Processes that do the work: how they are started, told to end, and found dead."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from api.logs.blanking import Blanker
from api.logs.job_log import JobLog
from api.logs.output import Output, print_to_stderr
from api.logs.service_log import FOR_THE_EYE_VARIABLE
from api.logs.writer import LogWriter
from kdnas.db.queue.claims import Claim
from kdnas.settings import Settings

CLUSTER_START_SECONDS = 120.0
"""Two starts that Ray gives up after half a minute each, what ends the first, and imports."""
_PYTHON = (sys.executable, "-P", "-m")  # -P: a file of the working folder shadows no module
_PRINTING = {
    "PYTHONUNBUFFERED": "1",  # what is printed is there at once, and not lost in a crash
    "RAY_LOG_TO_DRIVER": "1",  # what workers print, wherever they are
}
_SECRETS = (
    *("KDNAS_OPERATOR_TOKEN", "KDNAS_VIEWER_TOKEN"),
    *("KDNAS_WEBHOOK_SECRET", "KDNAS_WEBHOOK_URL"),
)

log = structlog.get_logger("kdnas.coordinator")


@dataclass
class Child:
    """A process that works on a claimed job.

    Attributes:
        output: what it prints.
        unwanted_since: when the job was first seen paused or cancelled, or was last seen to come
            further since (monotonic clock).
        lets_end: what it has said last of trainings that it lets come to their end.
    """

    kind: str
    claim: Claim
    process: subprocess.Popen[bytes]
    output: Output
    unwanted_since: float | None = None
    lets_end: str | None = None

    @property
    def subject(self) -> dict[str, str]:
        """Kind and id of its job, for a line of the log."""
        return {self.kind: self.claim.job_id}

    @classmethod
    def start(
        cls, kind: str, claim: Claim, environment: Mapping[str, str], settings: Settings
    ) -> Child:
        """Start a runner; its stdin is a pipe that closes when this process ends.

        What it prints goes into the log of its job, and what it prints to stderr to our own, too.
        """
        process = subprocess.Popen(
            [*_PYTHON, "api.jobs.runner", claim.job_id],
            env={**_PRINTING, **environment, "KDNAS_CLAIM": claim.owner.token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the coordinator, which then drains
        )
        assert process.stdout is not None
        assert process.stderr is not None
        who = f"{socket.gethostname()}, process {process.pid}"
        writer = LogWriter(JobLog.of(settings, claim.job_id), who, {kind: claim.job_id})
        blanker = blanker_of(settings)
        output = Output(process.stdout, process.stderr, writer, blanker, print_to_stderr)
        return cls(kind, claim, process, output)

    def forget(self) -> None:
        """Close the pipe of a process that has ended; its output is read to the end."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.output.end(self.ending())

    def ending(self) -> str:
        """How it ended, for a sentence."""
        code = self.process.returncode
        return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class LocalCluster:
    """One Ray cluster of this machine for all children, started when the first one needs it.

    A runner connects to it in a tenth of a second, where a cluster of its own takes six and some
    hundred MB; and workers of all searches share the cores of one account instead of each search
    reckoning with all of them.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._found: dict[str, str] = {}

    def variables(self, give_up: Callable[[], bool]) -> dict[str, str]:
        """Environment by which a child connects; starts the cluster if it does not run (any more).

        Returns:
            Nothing if it did not start: the child then tries, and says what is wrong.
        """
        if self._process is not None:
            if self._process.poll() is None:
                return self._found
            log.error("local Ray cluster died", exit_code=self._process.returncode)
            self.stop(0.0)
        self._process = subprocess.Popen(
            [*_PYTHON, "workers.local_cluster"],
            env=dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = _first_line(self._process, give_up)
        if not line:
            log.error("no local Ray cluster", exit_code=self._process.poll())
            self.stop(0.0)
            return {}
        self._found = json.loads(line)
        log.info("local Ray cluster", address=self._found["KDNAS_RAY_ADDRESS"])
        return self._found

    def stop(self, timeout_seconds: float) -> None:
        """End the cluster, if there is one."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            ends_within(timeout_seconds, self._process)
        self._process = None


def ends_within(timeout_seconds: float, process: subprocess.Popen[Any]) -> bool:
    """Wait for a process that was asked to end; one that does not is killed, and False returned."""
    try:
        process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def _first_line(process: subprocess.Popen[str], give_up: Callable[[], bool]) -> str:
    """What a process prints first; nothing if it ends before, or takes too long.

    Its stdout belongs to a thread from now on: nobody else could close it while that one reads.
    """
    line: Future[str] = Future()
    stream = process.stdout
    assert stream is not None

    def read() -> None:
        with stream:
            line.set_result(stream.readline())
            stream.read()  # to its end

    threading.Thread(target=read, name="local-cluster", daemon=True).start()
    deadline = time.monotonic() + CLUSTER_START_SECONDS
    while time.monotonic() < deadline and not give_up():
        with suppress(TimeoutError):
            return line.result(0.2)
    return ""


def share_of_cores(environment: Mapping[str, str], at_once: int) -> dict[str, str]:
    """Environment by which a child takes its part of the cores, unless the operator has said it.

    Args:
        environment: of all children.
        at_once: how many of its kind are to run beside each other.
    """
    if "OMP_NUM_THREADS" in environment:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, usable_cores() // max(1, at_once)))}


def usable_cores() -> int:
    """Cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def child_environment(settings: Settings) -> dict[str, str]:
    """Environment of all children: our own and the settings, without secrets of the web."""
    own = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    own.setdefault("TOKENIZERS_PARALLELISM", "false")
    own.setdefault("GOMP_SPINCOUNT", "5000")  # see kdnas.cli.main
    own |= {
        "KDNAS_HOME": str(settings.home),
        "KDNAS_DATABASE_URL": settings.database_url,
        "KDNAS_STORE": settings.store_url,
        "KDNAS_LOCKS": str(settings.locks),
        "KDNAS_DATA_ROOTS": ":".join(settings.data_roots),
    }
    if settings.ray_address:
        own["KDNAS_RAY_ADDRESS"] = settings.ray_address
    if sys.stderr.isatty():  # where the lines of runners end; they themselves see a pipe
        own[FOR_THE_EYE_VARIABLE] = "1"
    return own


def blanker_of(settings: Settings) -> Blanker:
    """Return what blanks the secrets of this process in a log."""
    secrets = (settings.operator_token, settings.viewer_token, settings.webhook_secret)
    urls = (
        settings.database_url,
        settings.store_url,
        settings.ray_address,
        settings.webhook_url,
    )
    return Blanker(os.environ, secrets, urls)
