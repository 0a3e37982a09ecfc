"""From stored episodes to what a strategy may see of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdnas.records import Episode, LossName
from kdnas.search.protocols import History, Observation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a state came to: its reward and the loss of which that is made, None of a failure."""

    index: int
    reward: float | None
    loss: float | None


def history_of(episodes: Iterable[Episode], loss: LossName) -> History:
    """Tell all finished episodes, in order; an unfinished one is left out."""
    history = History()
    for episode in episodes:
        if episode.finished:
            history = extended(history, episode, loss)
    return history


def extended(history: History, episode: Episode, loss: LossName) -> History:
    """Add one finished episode to a history; ``loss`` names the one that rewards are made of."""
    outcomes = [
        Outcome(
            candidate.index,
            candidate.reward,
            None
            if candidate.reward is None or candidate.losses is None
            else candidate.losses.named(loss),
        )
        for candidate in episode.candidates
    ]
    return with_outcomes(history, episode.number, outcomes)


def with_outcomes(history: History, number: int, outcomes: Sequence[Outcome]) -> History:
    """Add the outcomes of one episode to a history.

    A failure is told as the worst reward seen up to and including its own episode (0 if there is
    none), so what later episodes bring never changes what was told.
    """
    failures = any(outcome.reward is None for outcome in outcomes)
    worst = _worst_reward(history, outcomes) if failures else 0.0
    observations = tuple(
        Observation(number, outcome.index, worst, failed=True)
        if outcome.reward is None
        else Observation(number, outcome.index, outcome.reward, loss=outcome.loss)
        for outcome in outcomes
    )
    return History((*history.episodes, observations))


def _worst_reward(history: History, outcomes: Sequence[Outcome]) -> float:
    earlier = (o.reward for told in history.episodes for o in told if not o.failed)
    own = (o.reward for o in outcomes if o.reward is not None)
    return min((*earlier, *own), default=0.0)
