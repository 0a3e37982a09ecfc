"""From stored episodes to what a strategy may see of them."""

from __future__ import annotations

from collections.abc import Iterable

from kdnas.records import Episode, LossName
from kdnas.search.protocols import History, Observation


def history_of(episodes: Iterable[Episode], loss: LossName) -> History:
    """Tell all finished episodes, in order; an unfinished one is left out."""
    history = History()
    for episode in episodes:
        if episode.finished:
            history = extended(history, episode, loss)
    return history


def extended(history: History, episode: Episode, loss: LossName) -> History:
    """Add one finished episode to a history; ``loss`` names the one that rewards are made of.

    A failed candidate is told as the worst reward seen up to and including its own episode (0 if
    there is none), so what later episodes bring never changes what was told.
    """
    failures = any(candidate.reward is None for candidate in episode.candidates)
    worst = _worst_reward(history, episode) if failures else 0.0
    observations = tuple(
        Observation(episode.number, candidate.index, worst, failed=True)
        if candidate.reward is None
        else Observation(
            episode.number,
            candidate.index,
            candidate.reward,
            loss=None if candidate.losses is None else candidate.losses.named(loss),
        )
        for candidate in episode.candidates
    )
    return History((*history.episodes, observations))


def _worst_reward(history: History, episode: Episode) -> float:
    earlier = (o.reward for told in history.episodes for o in told if not o.failed)
    own = (c.reward for c in episode.candidates if c.reward is not None)
    return min((*earlier, *own), default=0.0)
