"""A search over a surface: the real loop, with losses from the table in place of trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.records import (
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    Losses,
    MiniKDRequest,
    MiniKDResult,
)
from kdnas.search.loop import SearchSetup, run_search
from kdnas.search.memory_journal import MemoryJournal
from kdnas.search.protocols import StrategyFactory
from kdnas.search.reward import RewardFunction
from kdnas.specs.search import ControllerSpec, LimitsSpec, RewardSpec, SearchSpec
from kdnas.tabular.surface import Surface

WORKER = "table"


class ReplayBackend:
    """Implements :class:`kdnas.search.protocols.Backend` with the losses of a surface."""

    def __init__(self, surface: Surface, seed: int) -> None:
        self._surface, self._seed = surface, seed

    def run(self, requests: Sequence[MiniKDRequest]) -> Iterator[BackendEvent]:
        """Finish every request at once."""
        if requests:
            yield AttemptStarted(tuple(request.candidate_id for request in requests), WORKER)
        for request in requests:
            yield CandidateFinished(WORKER, self._result(request))

    def close(self) -> None:
        """There is nothing to free."""

    def _result(self, request: MiniKDRequest) -> MiniKDResult:
        index = self._surface.space.index(request.architecture)
        loss = self._surface.observed(index, self._seed)
        # The table has no output loss for some; one below 1 says that the student has learned.
        losses = Losses(training=loss, mean=loss, relative=loss, output=min(loss, 0.999))
        return MiniKDResult(
            candidate_id=request.candidate_id,
            architecture=request.architecture,
            losses=losses,
            error=None,
            steps=0,
            train_seconds=0.0,
            loss_start=self._surface.starts.get(index),
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What a strategy did on a surface.

    Attributes:
        strategy: its name.
        seed: of the strategy, and of the noise that it saw.
        order: the states that it had trained, in the order of its proposals.
        rewards: what it was told of each.
    """

    strategy: str
    seed: int
    order: tuple[int, ...]
    rewards: tuple[float, ...]


def replay(
    surface: Surface,
    controller: ControllerSpec,
    reward: RewardSpec,
    limits: LimitsSpec,
    seed: int,
    factory: StrategyFactory,
) -> Replay:
    """Run a search over a surface by the real loop.

    Args:
        surface: the states.
        controller: the strategy, and how many it may train.
        reward: what is wanted.
        limits: which states may be proposed.
        seed: of the strategy, and of the noise that it sees.
        factory: builds the strategy.

    Raises:
        SpecError: the strategy cannot be built, or needs what the surface lacks.
    """
    spec = SearchSpec(controller=controller, reward=reward, limits=limits, seed=seed)
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
    strategy = factory(controller, surface.space, seed)
    run_search(setup, strategy, ReplayBackend(surface, seed), journal)
    done = [c for episode in journal.episodes(record.id) for c in episode.candidates]
    trained = {c.index: c for c in reversed(done)}  # a state that comes again costs nothing
    first = sorted(trained.values(), key=lambda c: (c.episode, c.position))
    return Replay(
        controller.strategy,
        seed,
        tuple(c.index for c in first),
        tuple(0.0 if c.reward is None else c.reward for c in first),
    )


def true_rewards(surface: Surface, reward: RewardSpec) -> list[float]:
    """The reward of every state with its true loss, by index."""
    function = RewardFunction.from_spec(reward)
    return [
        function.of_loss(surface.truth(i), surface.latency_ms[i] / surface.teacher_ms)
        for i in range(len(surface.space))
    ]
