"""What size alone says of losses, where nothing was read and nothing trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from controller.encoding import Array
from kdnas.search.protocols import SearchProblem


def losses_by_size(problem: SearchProblem, pool: Sequence[int]) -> Array:
    """Guess at losses where nothing was read: (N,), from 1 of the smallest to 0.

    Doubling the layers or the hidden size lowers a loss alike, doubling the intermediate size or
    the heads by a sixth of that. It ranks students far better than their parameters do, most of
    which are embeddings (docs/results/readings.md).
    """
    states = [problem.space[index] for index in pool]
    sizes = np.log([s.layers * s.hidden * (s.intermediate * s.heads) ** (1 / 6) for s in states])
    span = float(np.ptp(sizes))
    guess: Array = (sizes.max() - sizes) / span if span else np.zeros(len(pool))
    return guess
