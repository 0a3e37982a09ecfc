"""What as many random draws as a search has made would have found: an estimate from a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from kdnas.architecture import Architecture
from kdnas.records import ExploredState
from kdnas.search.analysis.surrogate import Array, Judged
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reward import RewardFunction
from kdnas.specs.search import Goal

RANDOM: Final = "random"
"""Source of random picks."""
Measure = Literal["reward", "hypervolume"]

_DRAWS: Final = 1000
_FEWEST_NEAR: Final = 8
_NEAR_PART: Final = 5
"""Errors are drawn from the fifth of the states of which about the same was predicted."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The highest reward, or the hypervolume, of a search beside that of random ones.

    Attributes:
        measure: which of them.
        found: by this search.
        expected: of a random search, in the mean.
        low: below it are 2.5 % of random searches.
        high: above it are 2.5 %.
        as_good: share of random searches that find at least what this one has found.
        by_own_random: what the random picks of this search have alone; None if it has none.
    """

    measure: Measure
    found: float
    expected: float
    low: float
    high: float
    as_good: float
    by_own_random: float | None


@dataclass(frozen=True, slots=True)
class Chance:
    """What random search would have found with the budget of this one.

    Attributes:
        budget: states that are drawn, each once: those with a result.
        num_allowed: states that are drawn from.
        num_random: random picks of this search among its states.
        error: root mean square error of the model's losses, of states that it has not seen.
        explained: share of their variance that it explains.
        measures: the reward, and of goal ``front`` the hypervolume first.
    """

    budget: int
    num_allowed: int
    num_random: int
    error: float
    explained: float
    measures: list[Expected]


def by_chance(
    states: Sequence[ExploredState],
    ratios: Mapping[Architecture, float],
    function: RewardFunction,
    goal: Goal,
    judged: Judged,
    seed: int = 0,
) -> Chance:
    """Draw as many states as were explored, again and again, without replacement.

    A state that was explored has what it had. Every other has what the model predicts, with an
    error of the model added that is drawn anew each time: one that it has made of an explored
    state of which it had predicted about the same, without having seen it. Errors of the best
    states are others than those of the rest, which alone a strategy neglects.

    Args:
        states: that were explored, at least one.
        ratios: state → latency as a share of the teacher's, of all that are allowed; in the order
            in which ``judged.elsewhere`` has their predicted losses.
        function: the reward.
        goal: of the search.
        judged: models of the loss of ``states``.
        seed: of all draws.
    """
    # Sorted by time, so that a draw in order is a front from the fastest to the slowest.
    ordered = sorted(ratios, key=lambda state: ratios[state])
    times = np.array([ratios[state] for state in ordered])
    place = {architecture: i for i, architecture in enumerate(ratios)}
    predicted = judged.elsewhere[[place[state] for state in ordered]]
    known = {state.architecture: state for state in states}
    had = [known.get(str(state)) for state in ordered]
    seen = np.isfinite(judged.unseen)
    unseen = judged.unseen[seen]
    true = np.array([state.losses.named(function.loss) for state in states])[seen]
    own_times = np.array([state.latency_ratio for state in states])[seen]

    rewards = _Plausible(
        _rewards(predicted, times, function),
        _rewards(unseen, own_times, function),
        _rewards(true, own_times, function),
        [None if state is None else _reward(state, function) for state in had],
    )
    losses = _Plausible(
        predicted,
        unseen,
        true,
        [None if state is None else state.losses.named(function.loss) for state in had],
    )
    rng, budget = np.random.default_rng(seed), min(len(states), len(times))
    bests, volumes = np.zeros(_DRAWS), np.zeros(_DRAWS)
    for draw in range(_DRAWS):
        drawn = np.sort(rng.choice(len(times), budget, replace=False, shuffle=False))
        bests[draw] = rewards.of(drawn, rng).max()
        if goal == "front":
            volumes[draw] = _volume(losses.of(drawn, rng), times[drawn])

    picked = [state for state in states if state.source == RANDOM]
    measures = [_expected("reward", _best, states, picked, function, bests)]
    if goal == "front":
        measures.insert(
            0, _expected("hypervolume", _hypervolume, states, picked, function, volumes)
        )
    return Chance(budget, len(times), len(picked), judged.error, judged.explained, measures)


class _Plausible:
    """What each state may come to: what it had, or its prediction with an error drawn anew.

    Args:
        predicted: (M,) of every state.
        unseen: (N,) what was predicted of states that were explored, unseen.
        true: (N,) what they came to.
        had: M values, None of a state that was not explored.
    """

    def __init__(
        self, predicted: Array, unseen: Array, true: Array, had: Sequence[float | None]
    ) -> None:
        order = np.argsort(unseen, kind="stable")
        self._errors = (true - unseen)[order]
        self._near = min(len(order), max(_FEWEST_NEAR, len(order) // _NEAR_PART))
        middle = np.searchsorted(unseen[order], predicted) - self._near // 2
        self._first = np.clip(middle, 0, len(order) - self._near)
        self._is_known = np.array([value is not None for value in had])
        self._values = np.array(
            [p if value is None else value for p, value in zip(predicted, had, strict=True)]
        )

    def of(self, places: npt.NDArray[np.intp], rng: np.random.Generator) -> Array:
        """Values of some states: (len(places),)."""
        errors = self._errors[self._first[places] + rng.integers(self._near, size=len(places))]
        drawn: Array = self._values[places] + np.where(self._is_known[places], 0.0, errors)
        return drawn


def _expected(
    measure: Measure,
    of: Callable[[Sequence[ExploredState], RewardFunction], float],
    states: Sequence[ExploredState],
    picked: Sequence[ExploredState],
    function: RewardFunction,
    drawn: Array,
) -> Expected:
    found, (low, high) = of(states, function), np.percentile(drawn, [2.5, 97.5])
    return Expected(
        measure,
        found,
        float(drawn.mean()),
        float(low),
        float(high),
        float(np.mean(drawn >= found)),
        of(picked, function) if picked else None,
    )


def _rewards(losses: Array, ratios: Array, function: RewardFunction) -> Array:
    pairs = zip(losses, ratios, strict=True)
    return np.array([function.of_loss(float(loss), float(ratio)) for loss, ratio in pairs])


def _reward(state: ExploredState, function: RewardFunction) -> float:
    return function(state.losses, state.latency_ratio).reward


def _best(states: Sequence[ExploredState], function: RewardFunction) -> float:
    return max(_reward(state, function) for state in states)


def _hypervolume(states: Sequence[ExploredState], function: RewardFunction) -> float:
    return hypervolume([(s.losses.named(function.loss), s.latency_ratio) for s in states])


def _volume(losses: Array, ratios: Array) -> float:
    """The hypervolume of students from the fastest to the slowest."""
    lowest = np.minimum.accumulate(losses.clip(0, 1))
    ups = np.append(np.maximum(-np.log2(ratios), 0.0), 0.0)
    return float(np.sum((1 - lowest) * -np.diff(ups)))
