"""The backend on Ray: actors that hold teacher and corpus, a group of students at a time each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from kdnas.errors import KdnasError, OutOfReachError
from kdnas.records import (
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    MiniKDContext,
    MiniKDRequest,
    MiniKDResult,
    StillWaiting,
)
from workers.backend import BackendPlan, interrupt, out_of_memory
from workers.cluster import largest_node_cores
from workers.mini_kd import MiniKDWorker
from workers.queue import Group, GroupQueue

log = logging.getLogger(__name__)

DEATHS = (RayActorError, WorkerCrashedError, OutOfMemoryError, NodeDiedError)
"""How Ray says that a worker is gone; the memory monitor's kill is an error of its own."""
LOOK_SECONDS = 10.0
"""So often a search that hears nothing looks whether the cluster is still there."""
CREATION_SECONDS = 10.0
"""So long at most the end of a backend waits for actors that are just being made."""
QUIET_SECONDS = 0.5
"""So long the search hears nothing while workers start, or wait for room on the cluster."""


@dataclass
class _Running:
    """A Ray actor at work: its stream of answers and the students that have none yet.

    ``made`` is there as soon as the actor is.
    """

    actor: Any
    made: Any
    stream: Any
    name: str
    unfinished: dict[str, MiniKDRequest]
    has_answered: bool = False


class RayBackend:
    """Trains on Ray actors, each with teacher and corpus in memory, a group at a time each.

    The process must be connected to Ray (``workers.cluster``).
    """

    def __init__(self, context: MiniKDContext, plan: BackendPlan) -> None:
        self._context, self._plan = context, plan
        self._idle: list[tuple[Any, str]] = []
        self._running: list[_Running] = []
        self._started = 0
        self._looked = time.monotonic()

    def run(
        self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[BackendEvent]:
        """Train every request; a worker that dies gives its students back in smaller groups."""
        queue = GroupQueue(requests, self._plan.group_size, self._plan.num_workers)
        while True:
            while queue and len(self._running) < self._plan.num_workers and may_begin():
                group = queue.take()
                running = self._start(group)
                self._running.append(running)
                yield AttemptStarted(tuple(running.unfinished), running.name)
            if not self._running:
                return
            yield from self._next_events(queue)

    def _start(self, group: Group) -> _Running:
        if self._idle:
            actor, name = self._idle.pop()
        else:
            self._started += 1
            plan, name = self._plan, f"worker-{self._started}"
            resources: dict[str, float] = {"num_cpus": min(plan.threads, largest_node_cores())}
            if plan.device == "cuda":
                resources = {"num_cpus": 1, "num_gpus": plan.gpu_fraction}
            actor = _REMOTE_ACTOR.options(**resources).remote(
                self._context, plan.store_url, plan.device, plan.threads, name
            )
        made = actor.__ray_ready__.remote()
        stream = actor.train.options(num_returns="streaming").remote(group)
        return _Running(actor, made, stream, name, {r.candidate_id: r for r in group})

    def _next_events(self, queue: GroupQueue) -> Iterator[BackendEvent]:
        """Wait for one answer of any worker and pass it on, or say that there is none yet."""
        streams = {running.stream: running for running in self._running}
        ready, _ = ray.wait(list(streams), num_returns=1, fetch_local=True, timeout=QUIET_SECONDS)
        if not ready:
            self._check_cluster()
            quiet = self._running[0]
            yield StillWaiting(tuple(quiet.unfinished), quiet.name)
            return
        running = streams[ready[0]]
        try:
            item: GroupProgress | MiniKDResult = ray.get(next(running.stream))
        except StopIteration:
            self._running.remove(running)
            if all(other.has_answered for other in self._running):
                self._idle.append((running.actor, running.name))
            else:  # somebody may be waiting for the cores that this worker would keep
                ray.kill(running.actor)
            return
        except DEATHS as error:
            log.info("%s died: %s", running.name, error)
            reason = f"the worker died ({' '.join(str(error).split())[:160]})"
            yield from self._give_back(queue, running, reason)
            return
        except RayTaskError as error:
            log.info("%s failed: %s", running.name, error)  # where, in the worker's own code
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if not out_of_memory(cause):
                if isinstance(cause, KdnasError):
                    raise cause from None
                raise
            yield from self._give_back(queue, running, "out of memory")
            return
        running.has_answered = True
        if isinstance(item, MiniKDResult):
            del running.unfinished[item.candidate_id]
            yield CandidateFinished(running.name, item)
        else:
            yield item

    def _check_cluster(self) -> None:
        """Notice now and then that the cluster is gone: Ray itself would wait for ever.

        A head that is started anew at the same address is not told from the one before until it is
        asked for something; Ray then ends this process, and a coordinator starts another.

        Raises:
            OutOfReachError: our node is gone from a cluster that is still the same.
        """
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        ours = ray.get_runtime_context().get_node_id()
        if all(node["NodeID"] != ours for node in ray.nodes() if node["Alive"]):
            raise OutOfReachError(
                "the Ray cluster lost the node by which it is reached from here; start that again "
                "(`ray start`), and resume"
            )
        self._looked = time.monotonic()

    def _give_back(
        self, queue: GroupQueue, running: _Running, reason: str
    ) -> Iterator[BackendEvent]:
        self._running.remove(running)
        ray.kill(running.actor)  # a worker that ran out of memory keeps it
        rest = tuple(running.unfinished.values())
        yield from interrupt(queue, rest, running.name, reason)

    def close(self) -> None:
        """Kill all actors, at work or not.

        One that is killed while it is made may keep its cores for as long as the cluster is there
        (seen with Ray 2.60), so that these are waited for, unless there is no room for them.
        """
        new = [running.made for running in self._running if not running.has_answered]
        if new:
            with suppress(RayError):  # of a cluster that is gone, which has nothing to free
                ray.wait(new, num_returns=len(new), timeout=CREATION_SECONDS)
        for actor in [*(r.actor for r in self._running), *(a for a, _ in self._idle)]:
            with suppress(RayActorError):
                ray.kill(actor)
        self._running.clear()
        self._idle.clear()


class _MiniKDActor:
    """The worker in a process of its own.

    It is made with the first group: an error then comes back as what it is, where one of an
    actor's constructor only says that the actor died.
    """

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self._worker: MiniKDWorker | None = None

    def train(self, group: Group) -> Iterator[GroupProgress | MiniKDResult]:
        if self._worker is None:
            self._worker = MiniKDWorker(*self._arguments)
        yield from self._worker.train(group)


_REMOTE_ACTOR: Any = ray.remote(max_restarts=0, max_task_retries=0)(_MiniKDActor)
