"""How sure the figures of a search are: noise, predictions, axes, and what chance would find."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kdnas.architecture import Architecture
from kdnas.records import ExploredState
from kdnas.search.analysis.chance import RANDOM, Chance, by_chance
from kdnas.search.analysis.noise import KnownNoise, Noise
from kdnas.search.analysis.surrogate import Importance, importance, judge
from kdnas.search.reward import RewardFunction, pareto_front, rank_key
from kdnas.specs.search import Goal

FEWEST_PREDICTIONS: Final = 3
_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Predictions:
    """How well the strategy foresaw the losses of an episode's picks, random ones apart.

    Rewards are the better foreseen the more latency counts, which is known beforehand.

    Attributes:
        episode: its number.
        pairs: picks with a predicted loss and a true one.
        spearman: rank correlation of the two; None with fewer than three, or without an order.
        rmse: root mean square error; None with fewer than three.
    """

    episode: int
    pairs: int
    spearman: float | None
    rmse: float | None


@dataclass(frozen=True, slots=True)
class Analysis:
    """What is known of how sure a search's figures are.

    Attributes:
        noise: of the loss between seeds; None if it is not known.
        within_noise: architectures that noise cannot tell from the best one, in the order of their
            rewards; with goal ``front`` those off the front that it cannot tell from those on it,
            the fastest first. None without noise.
        predictions: by episode, of those in which any were made.
        loss_importance: of the axes for the loss; None with too few states, or if nothing is
            explained.
        reward_importance: of the axes for the reward.
        chance: what random search would have found; None with too few states, or where latencies
            are not known any more.
    """

    noise: KnownNoise | None
    within_noise: list[str] | None
    predictions: list[Predictions]
    loss_importance: Importance | None
    reward_importance: Importance | None
    chance: Chance | None


def within_noise(
    figures: Sequence[tuple[float, float]], noise: Noise, function: RewardFunction
) -> list[bool]:
    """Say which states noise cannot tell from the first.

    The reward is linear in the loss, so its noise is that of the loss times the reward of a perfect
    student of this latency.

    Args:
        figures: (reward, latency as a share of the teacher's) of each; the best one first.
        noise: of the loss that the reward is made of.
        function: the reward.

    Returns:
        One for each, True for the first.
    """
    weights = [function.of_loss(0.0, ratio) for _, ratio in figures]
    reach = noise.reach
    return [
        place == 0 or abs(figures[0][0] - reward) < reach * math.hypot(weights[0], weight)
        for place, ((reward, _), weight) in enumerate(zip(figures, weights, strict=True))
    ]


def near_front(points: Sequence[tuple[float, float]], noise: Noise) -> list[int]:
    """Find the states off the Pareto front that noise cannot tell from those on it.

    Such a state would be on the front if its loss were lower by no more than chance makes two
    trainings differ. Latencies count as known.

    Args:
        points: (loss, latency) of each state.
        noise: of that loss.

    Returns:
        Positions, the fastest first.
    """
    front, reach = pareto_front(points), noise.reach * math.sqrt(2)
    losses, times = np.array(points).reshape(-1, 2).T
    since = np.searchsorted(times[front], times, side="right") - 1  # the last at most as slow
    excess = losses - losses[front][since]
    near = np.setdiff1d(np.flatnonzero(excess < reach), front)
    return [int(place) for place in near[np.argsort(times[near], kind="stable")]]


def predictions_of(
    states: Iterable[ExploredState], finished: Collection[int], function: RewardFunction
) -> list[Predictions]:
    """Compare predicted with true losses, episode by episode: those that the rewards are made of.

    Args:
        states: each once; a state that was proposed again had been known by then.
        finished: numbers of the episodes that have ended.
        function: the reward, of predictions too.
    """

    def loss(reward: float, ratio: float) -> float:
        # Equal losses are equal again, or there would be an order where there is none.
        return round(function.loss_of(reward, ratio), _DIGITS)

    pairs: dict[int, list[tuple[float, float]]] = {}
    for state in states:
        foreseen = state.predicted_reward
        if foreseen is not None and state.source != RANDOM and state.episode in finished:
            ratio = state.latency_ratio
            pair = (loss(foreseen, ratio), loss(state.reward, ratio))
            pairs.setdefault(state.episode, []).append(pair)
    return [_predictions(episode, found) for episode, found in sorted(pairs.items())]


def _predictions(episode: int, pairs: Sequence[tuple[float, float]]) -> Predictions:
    if len(pairs) < FEWEST_PREDICTIONS:
        return Predictions(episode, len(pairs), None, None)
    from scipy.stats import spearmanr

    foreseen, true = np.array(pairs).T
    flat = np.ptp(foreseen) == 0 or np.ptp(true) == 0
    spearman = None if flat else float(spearmanr(foreseen, true).statistic)
    return Predictions(
        episode, len(pairs), spearman, float(np.sqrt(np.square(foreseen - true).mean()))
    )


def analyse(
    states: Sequence[ExploredState],
    finished: Collection[int],
    function: RewardFunction,
    goal: Goal,
    noise: KnownNoise | None,
    ratios: Mapping[Architecture, float] | None,
) -> Analysis:
    """Find out how sure the figures of a search are; takes seconds.

    Args:
        states: with a reward, each once.
        finished: numbers of the episodes that have ended.
        function: the reward of the search under its goal.
        goal: of the search.
        noise: of the loss that the reward is made of.
        ratios: allowed state → latency as a share of the teacher's; None if that is not known.
    """
    architectures = [Architecture.parse(state.architecture) for state in states]
    of_loss = judge(
        architectures, [s.losses.named(function.loss) for s in states], list(ratios or ())
    )
    of_reward = judge(architectures, [s.reward for s in states])
    return Analysis(
        noise,
        None if noise is None else _like_best(states, noise, function, goal),
        predictions_of(states, finished, function),
        None if of_loss is None else importance(of_loss),
        None if of_reward is None else importance(of_reward),
        None
        if of_loss is None or ratios is None
        else by_chance(states, ratios, function, goal, of_loss),
    )


def _like_best(
    states: Sequence[ExploredState], noise: Noise, function: RewardFunction, goal: Goal
) -> list[str]:
    """Architectures of those that noise cannot tell from the best, which are not among them."""
    if goal == "front":
        points = [(s.losses.named(function.loss), s.latency_ratio) for s in states]
        return [states[place].architecture for place in near_front(points, noise)]
    ranked = sorted(states, key=rank_key)
    told = within_noise([(s.reward, s.latency_ratio) for s in ranked], noise, function)
    others = list(zip(ranked, told, strict=True))[1:]
    return [state.architecture for state, within in others if within]
