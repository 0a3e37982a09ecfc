"""What a search tells the screen while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    Candidate,
    GroupProgress,
    SearchStatus,
)


@dataclass(frozen=True, slots=True)
class SearchStarted:
    """The search begins or goes on.

    Attributes:
        num_states: states of the space.
        num_allowed: states within the limits.
        num_episodes: episodes that were asked for.
        next_episode: number of the first episode to be worked on now.
    """

    num_states: int
    num_allowed: int
    num_episodes: int
    next_episode: int


@dataclass(frozen=True, slots=True)
class EpisodeStarted:
    """An episode's candidates are written down; ``resumed`` if they were so before."""

    number: int
    epsilon: float | None
    candidates: tuple[Candidate, ...]
    resumed: bool


@dataclass(frozen=True, slots=True)
class CandidateDone:
    """A candidate succeeded, failed or was stopped, by training or from the look-up table."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class EpisodeDone:
    """An episode is finished.

    Attributes:
        number: of the episode.
        best: best candidate of the search so far, None if none succeeded.
        num_trained: candidates that workers finished in this run of the episode.
        students_per_hour: rate of training, None if nothing was trained.
        predictions: (predicted, true) reward of each candidate that has both.
        controller_loss: what the strategy returned when it was told.
    """

    number: int
    best: Candidate | None
    num_trained: int
    students_per_hour: float | None
    predictions: tuple[tuple[float, float], ...]
    controller_loss: float | None


@dataclass(frozen=True, slots=True)
class SearchDone:
    """The search came to an end or to a rest; ``reason`` says why, where it is not finished."""

    status: SearchStatus
    reason: str | None
    best: Candidate | None


Progress = (
    SearchStarted
    | EpisodeStarted
    | AttemptStarted
    | AttemptInterrupted
    | GroupProgress
    | CandidateDone
    | EpisodeDone
    | SearchDone
)
OnProgress = Callable[[Progress], None]
