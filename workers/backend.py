"""Where students are trained: the layout of workers, and the backend in this process.

The backend on Ray is in ``workers.ray_backend``, so that ``--backend local`` needs no Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import torch

from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    MiniKDContext,
    MiniKDRequest,
    MiniKDResult,
)
from kdnas.search.protocols import Backend
from workers.mini_kd import MiniKDWorker
from workers.queue import Group, GroupQueue


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """How a search's workers are laid out, with nothing left to choose.

    Attributes:
        num_workers: workers at the same time.
        threads: intra-op threads of a CPU worker.
        group_size: largest group on one teacher pass.
        device: ``cpu`` or ``cuda``.
        gpu_fraction: of a GPU for each worker.
        store_url: where workers fetch teacher and corpus.
    """

    num_workers: int
    threads: int
    group_size: int
    device: str
    gpu_fraction: float
    store_url: str


class LocalBackend:
    """Trains in this process, one group after another."""

    def __init__(self, context: MiniKDContext, plan: BackendPlan) -> None:
        self._context, self._plan = context, plan
        self._worker: MiniKDWorker | None = None
        self._training: Generator[GroupProgress | MiniKDResult] | None = None

    def run(
        self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[BackendEvent]:
        """Train every request; a group that does not fit into memory is tried in halves."""
        queue = GroupQueue(requests, self._plan.group_size)
        if queue and self._worker is None:
            plan = self._plan
            self._worker = MiniKDWorker(
                self._context, plan.store_url, plan.device, plan.threads, "local"
            )
        while queue and self._worker and may_begin():
            group = queue.take()
            yield AttemptStarted(tuple(r.candidate_id for r in group), self._worker.name)
            unfinished = {r.candidate_id: r for r in group}
            try:
                self._training = self._worker.train(group)
                for item in self._training:
                    if isinstance(item, MiniKDResult):
                        del unfinished[item.candidate_id]
                        yield CandidateFinished(self._worker.name, item)
                    else:
                        yield item
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                rest = tuple(unfinished.values())
                yield from interrupt(queue, rest, self._worker.name, "out of memory")

    def close(self) -> None:
        """Give up the group at work, which frees the machine, and let go of teacher and corpus."""
        if self._training is not None:
            self._training.close()
        self._worker = self._training = None


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "not enough memory" in text


def interrupt(
    queue: GroupQueue, group: Group, worker: str, reason: str
) -> Iterator[AttemptInterrupted | CandidateFinished]:
    """Give students back to the queue and say which are tried again and which have failed."""
    if not group:
        return
    failed = queue.give_back(group, reason)
    given_up = {result.candidate_id for result in failed}
    again = tuple(r.candidate_id for r in group if r.candidate_id not in given_up)
    if again:
        yield AttemptInterrupted(again, worker, reason)
    for result in failed:
        yield CandidateFinished(worker, result)


def build_backend(name: str, context: MiniKDContext, plan: BackendPlan) -> Backend:
    """Make the backend called ``local`` or ``ray``; the latter needs a connection to a cluster."""
    if name == "local":
        return LocalBackend(context, plan)
    from workers.ray_backend import RayBackend

    return RayBackend(context, plan)
