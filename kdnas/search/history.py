"""From stored episodes to what a strategy may see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kdnas.records import Candidate, Episode, LossName
from kdnas.search.protocols import History, Observation

Foretell = Callable[[Candidate], tuple[float, float]]
"""Final loss and reward that the readings of a stopped candidate foretell."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a state came to: its reward and the loss of which that is made, None of a failure.

    ``stopped``: they are foretold.
    """

    index: int
    reward: float | None
    loss: float | None
    stopped: bool = False


def history_of(
    episodes: Iterable[Episode], loss: LossName, foretell: Foretell | None = None
) -> History:
    """Tell all finished episodes, in order; an unfinished one is left out."""
    history = History()
    for episode in episodes:
        if episode.finished:
            history = extended(history, episode, loss, foretell)
    return history


def extended(
    history: History, episode: Episode, loss: LossName, foretell: Foretell | None = None
) -> History:
    """Add one finished episode to a history.

    Args:
        history: what was told before.
        episode: to add.
        loss: which one rewards are made of.
        foretell: what becomes of stopped candidates; without it they are told as failures.
    """
    outcomes = [_outcome(candidate, loss, foretell) for candidate in episode.candidates]
    return with_outcomes(history, episode.number, outcomes)


def _outcome(candidate: Candidate, loss: LossName, foretell: Foretell | None) -> Outcome:
    if candidate.status == "stopped" and foretell is not None:
        final, reward = foretell(candidate)
        return Outcome(candidate.index, reward, final, stopped=True)
    if candidate.reward is None or candidate.losses is None:
        return Outcome(candidate.index, candidate.reward, None)
    return Outcome(candidate.index, candidate.reward, candidate.losses.named(loss))


def with_outcomes(history: History, number: int, outcomes: Sequence[Outcome]) -> History:
    """Add the outcomes of one episode to a history.

    A failure is told as the worst reward seen up to and including its own episode (0 if there is
    none), so what later episodes bring never changes what was told. What was foretold of others
    does not count as seen.
    """
    failures = any(outcome.reward is None for outcome in outcomes)
    worst = _worst_reward(history, outcomes) if failures else 0.0
    observations = tuple(
        Observation(number, outcome.index, worst, failed=True)
        if outcome.reward is None
        else Observation(
            number, outcome.index, outcome.reward, loss=outcome.loss, stopped=outcome.stopped
        )
        for outcome in outcomes
    )
    return History((*history.episodes, observations))


def _worst_reward(history: History, outcomes: Sequence[Outcome]) -> float:
    told = (o for episode in history.episodes for o in episode)
    earlier = (o.reward for o in told if not o.failed and not o.stopped)
    own = (o.reward for o in outcomes if o.reward is not None and not o.stopped)
    return min((*earlier, *own), default=0.0)
