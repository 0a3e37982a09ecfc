"""A backend that trains nothing: losses are a function of the architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import astuple

from kdnas.architecture import Architecture
from kdnas.errors import BackendError
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    Losses,
    MiniKDRequest,
    MiniKDResult,
    Reading,
)
from kdnas.testing.benchmark_space import benchmark_losses, benchmark_start

STEPS = 10


class FakeBackend:
    """Implements :class:`kdnas.search.protocols.Backend` with made-up losses.

    On its way a student's losses fall in a straight line from where it starts. Results of a group
    come in reverse order, as a real backend promises none.

    Args:
        losses: losses of an architecture.
        group_size: candidates that are trained together.
        diverge: architectures whose losses are not a number.
        fail: architectures that end with an error instead of losses.
        interrupt: architectures whose worker dies in their first group; the rest of the group is
            interrupted with them and everyone is tried again alone.
        give_up: architectures with which every worker dies, in whatever group.
        die_after: results after which all workers are lost for good; None for never.

    Attributes:
        trained: every architecture that was trained, be it until a rung, in order.
        requests: all that were sent, in order.
        num_closed: how often :meth:`close` was called.
    """

    def __init__(
        self,
        losses: Callable[[Architecture], Losses] = benchmark_losses,
        *,
        group_size: int = 3,
        diverge: frozenset[str] = frozenset(),
        fail: frozenset[str] = frozenset(),
        interrupt: frozenset[str] = frozenset(),
        give_up: Container[str] = frozenset(),
        die_after: int | None = None,
    ) -> None:
        self.trained: list[str] = []
        self.requests: list[MiniKDRequest] = []
        self.num_closed = 0
        self._losses = losses
        self._group_size = group_size
        self._diverge = diverge
        self._fail = fail
        self._interrupt = set(interrupt)
        self._give_up = give_up
        self._die_after = die_after

    def run(
        self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[BackendEvent]:
        """Finish every request, group after group.

        Raises:
            BackendError: ``die_after`` results have come.
        """
        size = self._group_size
        self.requests += requests
        groups = [list(requests[i : i + size]) for i in range(0, len(requests), size)]
        while groups and may_begin():
            group = groups.pop(0)
            ids = tuple(request.candidate_id for request in group)
            yield AttemptStarted(ids, "fake")
            dying = {str(r.architecture) for r in group} & self._interrupt
            if dying:
                self._interrupt -= dying
                yield AttemptInterrupted(ids, "fake", "the worker was killed")
                groups.extend([request] for request in group)
                continue
            yield GroupProgress(ids, "fake", STEPS // 2, STEPS)
            for request in reversed(group):
                if self._die_after is not None and len(self.trained) >= self._die_after:
                    raise BackendError("all workers are lost; start new ones and resume")
                self.trained.append(str(request.architecture))
                yield CandidateFinished("fake", self._result(request))

    def close(self) -> None:
        """Count the calls; there is nothing to free."""
        self.num_closed += 1

    def _result(self, request: MiniKDRequest) -> MiniKDResult:
        name = str(request.architecture)
        gave_up = name in self._give_up
        failed = gave_up or name in self._fail
        losses: Losses | None = self._losses(request.architecture)
        if name in self._diverge:
            losses = Losses(math.inf, math.nan, math.nan, math.nan)
        readings, steps = [], STEPS
        for step in () if failed else request.read_after:
            readings.append(self._reading(request.architecture, step))
            if any(rung.stops(readings[-1]) for rung in request.rungs):
                losses, steps = None, step
                break
        return MiniKDResult(
            candidate_id=request.candidate_id,
            architecture=request.architecture,
            losses=None if failed else losses,
            error="out of memory with a group of one" if failed else None,
            steps=steps,
            train_seconds=0.5,
            loss_start=benchmark_start(request.architecture),
            readings=tuple(readings),
            gave_up=gave_up,
        )

    def _reading(self, architecture: Architecture, step: int) -> Reading:
        start, final = benchmark_start(architecture), self._losses(architecture)
        left = (start / benchmark_losses(architecture).relative - 1) * (1 - step / STEPS)
        return Reading(step, Losses(*(value * (1 + left) for value in astuple(final))))
