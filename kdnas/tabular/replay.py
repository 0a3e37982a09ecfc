"""A search over a surface: the real loop, with losses from the table in place of trainings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.records import (
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    Losses,
    MiniKDRequest,
    MiniKDResult,
    Reading,
)
from kdnas.search.loop import SearchSetup, run_search
from kdnas.search.memory_journal import MemoryJournal
from kdnas.search.protocols import StrategyFactory
from kdnas.search.rungs import steps_saved
from kdnas.specs.search import SearchSpec
from kdnas.tabular.surface import Surface

WORKER = "table"


class ReplayBackend:
    """Implements :class:`kdnas.search.protocols.Backend` with the losses of a surface."""

    def __init__(self, surface: Surface, seed: int) -> None:
        self._surface, self._seed = surface, seed

    def run(
        self, requests: Sequence[MiniKDRequest], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[BackendEvent]:
        """Finish every request at once."""
        if not requests or not may_begin():
            return
        yield AttemptStarted(tuple(request.candidate_id for request in requests), WORKER)
        for request in requests:
            yield CandidateFinished(WORKER, self._result(request))

    def close(self) -> None:
        """There is nothing to free."""

    def _result(self, request: MiniKDRequest) -> MiniKDResult:
        surface = self._surface
        index = surface.space.index(request.architecture)
        readings: list[Reading] = []
        for step in request.read_after:
            readings.append(Reading(step, _losses(surface.read(index, self._seed, step))))
            if any(rung.stops(readings[-1]) for rung in request.rungs):
                break
        else:
            step = surface.steps
        ended = step == surface.steps
        return MiniKDResult(
            candidate_id=request.candidate_id,
            architecture=request.architecture,
            losses=_losses(surface.observed(index, self._seed)) if ended else None,
            error=None,
            steps=step,
            train_seconds=0.0,
            loss_start=surface.starts.get(index),
            readings=tuple(readings),
        )


def _losses(loss: float) -> Losses:
    # The table has no output loss for some; one below 1 says that the student has learned.
    return Losses(training=loss, mean=loss, relative=loss, output=min(loss, 0.999))


@dataclass(frozen=True, slots=True)
class Replay:
    """What a strategy did on a surface.

    Attributes:
        strategy: its name.
        seed: of the strategy, and of the noise that it saw.
        order: the states that it had trained, in the order of its proposals.
        stopped: those whose training ended at a rung.
        saved: share of the steps of all these trainings that rungs have saved.
    """

    strategy: str
    seed: int
    order: tuple[int, ...]
    stopped: tuple[int, ...] = ()
    saved: float = 0.0

    def finished(self, budget: int) -> list[int]:
        """Those of the first trainings that came to their end, in their order."""
        return [index for index in self.order[:budget] if index not in self.stopped]


def replay(
    surface: Surface,
    spec: SearchSpec,
    factory: StrategyFactory,
) -> Replay:
    """Run a search over a surface by the real loop.

    Args:
        surface: the states.
        spec: goal, reward, limits and strategy; its seed is that of the noise as well.
        factory: builds the strategy.

    Raises:
        SpecError: the strategy cannot be built, or needs what the surface lacks.
    """
    journal = MemoryJournal()
    record = journal.create_search(spec.to_json())
    journal.set_status(record.id, "running")
    sizes = dict(zip(surface.space.states, surface.params_millions, strict=True))

    def params_millions(architecture: Architecture) -> float:
        return sizes[architecture]

    setup = SearchSetup(
        search_id=record.id,
        spec=spec,
        space=surface.space,
        latencies=surface.latencies,
        params_millions=params_millions,
        context=surface.name,
        starts=surface.starts,
    )
    strategy = factory(spec.controller, surface.space, spec.seed)
    run_search(setup, strategy, ReplayBackend(surface, spec.seed), journal)
    done = [c for episode in journal.episodes(record.id) for c in episode.candidates]
    trained = {c.index: c for c in reversed(done)}  # a state that comes again costs nothing
    first = sorted(trained.values(), key=lambda c: (c.episode, c.position))
    return Replay(
        spec.controller.strategy.name,
        spec.seed,
        tuple(c.index for c in first),
        tuple(c.index for c in first if c.status == "stopped"),
        steps_saved(first) or 0.0,
    )
