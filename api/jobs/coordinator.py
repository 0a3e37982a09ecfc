"""The coordinator: claims what is queued and has runners do it, and moves pipelines on.

Work runs in processes of their own (``api.jobs.runner``), never here: a crash, a leak or a GPU out
of memory takes down one search and nothing else. Claims are leases on the database's clock, so any
number of coordinators share one database. Nothing is kept in memory that matters: a coordinator
that is killed takes its runners with it, and the next one takes up their rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import psutil
import structlog

from api.jobs.children import (
    CLUSTER_START_SECONDS,
    Child,
    LocalCluster,
    child_environment,
    ends_within,
    share_of_cores,
    usable_cores,
)
from api.jobs.kind import JobKind
from api.jobs.pauses import Pauses
from api.jobs.registry import add_tables_of_packages, kinds
from api.logs.output import Output
from api.logs.writer import publish_what_was_left
from api.webhook.telling import Webhook, forget_old_deliveries
from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.models import Job
from kdnas.db.queue import claims, coordinators, leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import stop_wish
from kdnas.db.repository import jobs
from kdnas.db.repository.retention import remove_old_events
from kdnas.errors import DatabaseError, NotFoundError, StoreError
from kdnas.settings import Settings

POLL_SECONDS = 0.25
LOOK_SECONDS = 2.0
CLEAN_SECONDS = 30.0
FORGET_SECONDS = 24 * 3600.0
"""Between two removals of old events, if KDNAS_KEEP_EVENTS_DAYS wants any."""
TROUBLE_SECONDS = 2.0
"""Pause after an error, such as a database that is out of reach."""
CLAIM_SECONDS = CLUSTER_START_SECONDS + 60.0
"""A claim lasts until its process renews it, which a local cluster may be started before."""
"""A runner takes over the lease within this time, and then renews it itself."""
PATIENCE_SECONDS = 30.0
"""After that a runner whose row was paused or cancelled is killed; it may write a checkpoint."""
STILL_SECONDS = 600.0
"""After that a runner is killed that lets trainings end and has come no further."""
RUNNER_BYTES = 1024**3
"""What a runner, with torch in it, takes at least."""
MOST_RUNNING = 8
LEAST_LOG_SECONDS = 0.5
CLUSTER_SECONDS = 2.0
FORGETTING_ENDS_SECONDS = 2.0
"""More than one of the pieces in which old events are removed."""
_EXIT_LEFT_ALONE = 75

log = structlog.get_logger("kdnas.coordinator")


def _each_kind(do: Callable[[JobKind], None]) -> None:
    """Do something for every kind of job; one that cannot does not keep the others from theirs."""
    for kind in kinds().values():
        try:
            do(kind)
        except DatabaseError:
            raise
        except Exception:
            log.exception("the coordinator goes on without a kind", kind=kind.name)


class Coordinator:
    """Looks after the queue in a thread of its own.

    Args:
        settings: of this process.
        database: open and migrated; the caller closes it after :meth:`stop`.
        ray_address: of a running cluster; None takes that of the settings, else one local cluster
            is started for all runners.
        max_running: so many runners at a time; None takes ``KDNAS_MAX_RUNNING``, else
            :func:`default_max_running`.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        ray_address: str | None = None,
        max_running: int | None = None,
    ) -> None:
        self._database = database
        self._address = ray_address or settings.ray_address
        told = max_running or settings.max_running
        self.max_running = told or default_max_running(self._address)
        self._max_sharing = told or default_max_running()  # they train here, cluster or not
        self._environment = child_environment(settings)
        if self._address:
            self._environment["KDNAS_RAY_ADDRESS"] = self._address
        self._cluster = LocalCluster(self._environment)
        self._settings = settings
        self._self = LeaseOwner.of_this_process("service")
        self._cleaned: set[str] = set()
        self._webhook = Webhook.from_settings(settings, database)
        self._children: list[Child] = []
        self._outputs: list[Output] = []
        self._pauses = Pauses()
        self._stopping = threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._forgetting = threading.Thread()  # none yet

    @property
    def alive(self) -> bool:
        """Whether it looks after the queue."""
        return self._thread.is_alive() and not self._stopping.is_set()

    @property
    def running(self) -> int:
        """Runners at work."""
        return len(self._children)

    def start(self) -> None:
        """Begin; what was left unfinished is taken up first."""
        add_tables_of_packages(self._settings)
        log.info("coordinator started", max_running=self.max_running, ray_address=self._address)
        if self._webhook is not None:
            self._webhook.start()
        self._thread.start()
        threading.Thread(target=self._publish_logs, name="left-logs", daemon=True).start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End in good order: runners stop between results, and their rows are free at once.

        Args:
            timeout_seconds: runners that have not ended shortly before are killed; their rows are
                taken up where they were all the same.
        """
        self._deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        if self._webhook is not None:
            self._webhook.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds + CLUSTER_SECONDS)
        if self._forgetting.is_alive():
            self._forgetting.join(FORGETTING_ENDS_SECONDS)
        log.info("coordinator stopped")

    def _run(self) -> None:
        looked = cleaned = -CLEAN_SECONDS
        forgot = -FORGET_SECONDS
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self._reap()
                now = time.monotonic()
                if now - looked >= LOOK_SECONDS:
                    looked = now
                    self._say_alive()
                    self._end_unwanted()
                    _each_kind(lambda kind: kind.move_on(self._database))
                if now - cleaned >= CLEAN_SECONDS:
                    cleaned = now
                    self._clean_up()
                if now - forgot >= FORGET_SECONDS:
                    forgot = now
                    self._begin_to_forget()
                self._start_what_waits()
            except DatabaseError as error:
                log.error("database out of reach", reason=str(error))
                for child in self._children:  # which cannot say how far it is, either
                    child.unwanted_since = None
                self._stopping.wait(TROUBLE_SECONDS)
            except Exception:  # one odd row must not end the work on all others
                log.exception("the coordinator goes on after an error")
                self._stopping.wait(TROUBLE_SECONDS)
        self._drain()

    def _publish_logs(self) -> None:
        """Publish logs of coordinators that were killed on this machine."""
        try:
            publish_what_was_left(self._settings, self._database)
        except (StoreError, DatabaseError) as error:
            log.warning("logs that a killed process left are not published", reason=str(error))

    def _say_alive(self) -> None:
        with self._database.write() as session:
            coordinators.note_alive(
                session,
                self._self,
                self.max_running,
                self.running,
                max_of_a_user=self._settings.max_running_of_a_user,
                webhook_url=None if self._webhook is None else self._webhook.url,
            )

    def _start_what_waits(self) -> None:
        """Claim and start one job after the other, until nothing waits or there is no room."""
        while self._start_next() and not self._stopping.is_set():
            pass

    def _start_next(self) -> bool:
        resting, bound = self._left_alone(), self._settings.max_running_of_a_user
        with self._database.read() as session:  # a writer would hold up others on SQLite
            in_question = claims.kinds_in_question(session, resting)
            asked = [name for name, kind in kinds().items() if name in in_question]
            with_room = [name for name in asked if self._has_room(kinds()[name])]
            waiting = claims.waiting(session, with_room, resting, bound) if with_room else []
        if not waiting:
            return False
        owner = LeaseOwner.of_this_process("service")
        with self._database.write() as session:
            claim = claims.claim_next(session, with_room, owner, CLAIM_SECONDS, resting, bound)
        if claim is None:
            return False
        kind = kinds()[claim.kind]
        num_waiting = sum(one.kind == kind.name for one in waiting)
        environment = self._environment
        if kind.needs_cluster(claim.requested) and not self._address:
            environment = environment | self._cluster.variables(self._stopping.is_set)
            if self._stopping.is_set():
                with self._database.write() as session:
                    leases.release(session, Job, claim.job_id, owner)
                return False
        if kind.shares_cores:  # all cores for one; a part of them for each of several
            at_once = min(self._max_sharing, num_waiting + self._num_beside(kind))
            environment = environment | share_of_cores(environment, at_once)
        child = Child.start(kind.name, claim, environment, self._settings)
        self._children.append(child)
        log.info(
            "runner started",
            **{kind.name: claim.job_id},
            name=claim.name,
            pid=child.process.pid,
            taken_up=claim.taken_up,
        )
        return True

    def _has_room(self, kind: JobKind) -> bool:
        """Whether one more of a kind may be started."""
        if kind.run is None or len(self._children) >= self.max_running:
            return False
        return not kind.shares_cores or self._num_beside(kind) < self._max_sharing

    def _num_beside(self, kind: JobKind) -> int:
        return sum(child.kind == kind.name for child in self._children)

    def _left_alone(self) -> frozenset[str]:
        """Ids of jobs that are not to be claimed now."""
        # A runner lets go of its job a moment before it ends.
        return self._pauses.resting() | {child.claim.job_id for child in self._children}

    def _clean_up(self) -> None:
        """Remove what is old, and what processes that were killed would have removed.

        Twice does no harm.
        """
        forget_old_deliveries(self._database)
        of_a_day: set[str] = set()

        def clean_up(kind: JobKind) -> None:
            with self._database.read() as session:
                ended = claims.ended(session, kind.name)
            of_a_day.update(ended)
            kind.tidy(self._database, self._settings)
            for job_id in set(ended) - self._cleaned:
                kind.clean_up(job_id, self._database, self._settings)
                self._cleaned.add(job_id)

        _each_kind(clean_up)
        self._cleaned &= of_a_day  # those before are not looked at any more

    def _begin_to_forget(self) -> None:
        """Remove old events beside all else: of millions that takes minutes."""
        if not self._forgetting.is_alive():
            self._forgetting = threading.Thread(
                target=self._remove_old_events, name="old-events", daemon=True
            )
            self._forgetting.start()

    def _remove_old_events(self) -> None:
        days = self._settings.keep_events_days
        if days is not None:
            before = utc_now() - timedelta(days=days)
            try:
                count = remove_old_events(self._database, before, self._stopping.is_set)
            except DatabaseError as error:
                log.warning("old events are not all removed", reason=str(error))
            else:
                log.info("old events removed", count=count, before=before.isoformat())

    def _reap(self, draining: bool = False) -> None:
        """See to runners that have ended; if the database is out of reach, again later."""
        for child in [c for c in self._children if c.process.poll() is not None]:
            self._settle(child, draining)
            child.forget()
            self._children.remove(child)
            self._outputs = [output for output in self._outputs if not output.is_done]
            self._outputs.append(child.output)
            process = child.process
            log.info("runner ended", **child.subject, pid=process.pid, exit_code=process.returncode)

    def _settle(self, child: Child, draining: bool) -> None:
        """Let go of a row, and write down a death that nobody asked for."""
        job_id, owner = child.claim.job_id, child.claim.owner
        asked_for = draining or child.unwanted_since is not None
        left_alone = child.process.returncode == _EXIT_LEFT_ALONE
        deaths: int | None = None
        with self._database.write() as session:
            if asked_for or left_alone or child.process.returncode == 0:
                try:
                    leases.release(session, Job, job_id, owner)
                except NotFoundError:
                    log.info("deleted meanwhile", **child.subject)
            else:
                deaths = claims.note_death(session, job_id, owner, child.ending())
        if left_alone and not asked_for:  # only now: without the database all of this comes again
            seconds = self._pauses.lengthen(job_id)
            log.info("tried again later", **child.subject, pause_seconds=seconds)
        else:
            self._pauses.forget(job_id)
        if deaths:
            log.error("runner died", **child.subject, how=child.ending(), deaths=deaths)

    def _end_unwanted(self) -> None:
        """Kill runners that do not see that their row was paused or cancelled, or that hang.

        One that lets trainings come to their end says how far they are, and is left to it.
        """
        now = time.monotonic()
        for child in self._children:
            with self._database.read() as session:
                wish = stop_wish(session, child.claim.job_id)
                ending = jobs.phase_of(session, child.claim.job_id)
            ending = ending if wish == "in good order" else None
            if wish is None:
                child.unwanted_since = None
            elif child.unwanted_since is None or ending != child.lets_end:
                child.unwanted_since = now
            elif now - child.unwanted_since > (STILL_SECONDS if ending else PATIENCE_SECONDS):
                log.error("runner killed: it did not stop", **child.subject)
                child.process.kill()
            child.lets_end = ending

    def _drain(self) -> None:
        """Ask all runners to end, kill those that do not, and let go of their rows."""
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            seconds = max(0.0, self._deadline - CLUSTER_SECONDS - time.monotonic())
            if not ends_within(seconds, child.process):
                log.error("runner killed: it did not end in time", **child.subject)
        try:
            self._reap(draining=True)
            with self._database.write() as session:
                coordinators.note_gone(session, self._self)
        except DatabaseError as error:  # leases of dead processes are free anyway
            log.error("database out of reach", reason=str(error))
        for output in self._outputs:  # logs are published when runners have ended
            output.wait(max(LEAST_LOG_SECONDS, self._deadline - time.monotonic()))
        self._cluster.stop(max(0.0, self._deadline - time.monotonic()))


def default_max_running(ray_address: str | None = None) -> int:
    """Runners at a time on this machine: two to eight, as far as memory goes.

    Without a cluster elsewhere also one a core at most: what trains, trains here. Where it trains
    elsewhere, runners only wait for it, and the nodes' cores bound what trains at a time, since
    workers reserve theirs: a search that finds none free waits with its inputs ready.

    Args:
        ray_address: of a running cluster.
    """
    memory = psutil.virtual_memory().available // RUNNER_BYTES
    cores = MOST_RUNNING if ray_address else usable_cores()
    return max(2, min(cores, int(memory), MOST_RUNNING))
