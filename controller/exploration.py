"""How many candidates of an episode are random, and which (Trivedi et al. 2023, §3 B 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from kdnas.specs.strategies import ControllerStrategySpec


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
