"""How many candidates of an episode are random, and which (Trivedi et al. 2023, §3 B 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np

from controller.encoding import Array
from kdnas.specs.strategies import ControllerStrategySpec

AMONG: Final = 20
"""Drawn members of which the one farthest from all others is taken: more leave less to chance."""


class Purpose(IntEnum):
    """What a random generator is for; draws for one purpose never shift those for another."""

    WEIGHTS = 0
    EXPLORATION = 1
    TRAINING_ORDER = 2
    BELIEF = 3


def generator(seed: int, episode: int, purpose: Purpose) -> np.random.Generator:
    """Make the generator of one episode and purpose; nothing is carried on between episodes."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, episode, purpose])))


def epsilon(options: ControllerStrategySpec, episodes: int, episode: int) -> float:
    """ε_n = max(ε_min, ε_1 − decay·(n − 1)) for episode n, from 1.

    With decay ``spread`` ε falls linearly so that the last of the M episodes is at ε_min; a
    search of a single episode keeps ε_1, since its controller has learned nothing yet.

    Args:
        options: with ε_1, ε_min and the decay.
        episodes: M.
        episode: n.
    """
    decay = options.epsilon_decay
    if decay == "spread":
        decay = max(0.0, options.epsilon_start - options.epsilon_min) / max(1, episodes - 1)
    # Rounded, so that sums such as 1 − 3·0.05 do not fall just below a half of N.
    return round(max(options.epsilon_min, options.epsilon_start - decay * (episode - 1)), 12)


def num_random(epsilon: float, count: int) -> int:
    """round(ε·N), halves up."""
    return math.floor(epsilon * count + 0.5)


def draw(rng: np.random.Generator, pool: Sequence[int], count: int) -> list[int]:
    """Draw up to ``count`` distinct members of a pool."""
    picked = rng.choice(len(pool), size=min(count, len(pool)), replace=False)
    return [pool[i] for i in picked]


def draw_apart(
    rng: np.random.Generator,
    pool: Sequence[int],
    count: int,
    features: Array,
    there: Sequence[int] = (),
) -> list[int]:
    """Draw up to ``count`` distinct members of a pool that lie apart (Mitchell 1991).

    Each is the best of :data:`AMONG` candidates: the one whose nearest neighbour is farthest.

    Args:
        rng: draws the candidates.
        pool: members, none of them twice.
        count: how many, at most.
        features: (N, D) of which distances are Euclidean, a row a member.
        there: members to lie apart from, too.
    """
    free, drawn = list(pool), list[int]()
    nearest = np.full(len(features), np.inf)
    for other in there:
        nearest = np.minimum(nearest, _distances(features, other))
    while free and len(drawn) < count:
        candidates = draw(rng, free, AMONG)
        best = max(candidates, key=lambda member: nearest[member])
        nearest = np.minimum(nearest, _distances(features, best))
        free.remove(best)
        drawn.append(best)
    return drawn


def _distances(features: Array, member: int) -> Array:
    distances: Array = np.linalg.norm(features - features[member], axis=1)
    return distances
