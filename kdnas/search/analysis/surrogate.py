"""A model of a figure of students from their five axes, judged on states that it has not seen.

A line in the axes, widths and depth by their logarithm, and randomised trees on what it leaves
over: the line is good where few states were trained, the trees learn what no line can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.search_space import AXES

Array: TypeAlias = npt.NDArray[np.float64]

FEWEST_STATES: Final = 12
"""With fewer a model says nothing worth showing."""
_REPEATS: Final = 16
_TRAINED_SHARE: Final = 0.8
_MOST_TRAINED, _MOST_TESTED = 600, 300
_SHUFFLES: Final = 2
"""Of an axis in each repeat: few, since most of the time goes into the predictions for them."""
_TREES: Final = 30
_PENALTIES: Final = tuple(10.0**k for k in range(-3, 3))


@dataclass(frozen=True)
class Judged:
    """What models came to that were each fitted to four fifths of the states, drawn anew.

    Attributes:
        unseen: (N,) what models that had not seen a state said of it, in the mean.
        error: root mean square error of ``unseen``.
        explained: share of the variance that ``unseen`` explains; below 0 is worse than the mean.
        rises: (repeats, 5) by how much the mean square error on unseen states rises where an
            axis is shuffled among them.
        elsewhere: (M,) the mean prediction for the other states that were asked for.
    """

    unseen: Array
    error: float
    explained: float
    rises: Array
    elsewhere: Array


@dataclass(frozen=True, slots=True)
class AxisShare:
    """How much of what is explained is an axis': over the repeats in the mean, and in 95 %."""

    axis: str
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Importance:
    """Which axis explains a figure; shares add up to 1, the largest first.

    Attributes:
        explained: share of the figure's variance that the model explains on unseen states.
        axes: of the five.
    """

    explained: float
    axes: list[AxisShare]


def judge(
    states: Sequence[Architecture],
    values: Sequence[float],
    elsewhere: Sequence[Architecture] = (),
    seed: int = 0,
) -> Judged | None:
    """Fit models to parts of what is known and judge them on the rest.

    Args:
        states: N of them, each once.
        values: the figure of each.
        elsewhere: states to predict besides.
        seed: of all draws.

    Returns:
        None with fewer than :data:`FEWEST_STATES`, or where all values are the same.
    """
    known = np.asarray(values, dtype=np.float64)
    if len(known) < FEWEST_STATES or np.ptp(known) == 0:
        return None
    features, others = _features(states), _features(elsewhere)
    rng = np.random.default_rng(seed)
    sums, counts = np.zeros(len(known)), np.zeros(len(known))
    predicted, rises = np.zeros(len(others)), []
    size = min(round(_TRAINED_SHARE * len(known)), _MOST_TRAINED)
    for repeat in range(_REPEATS):
        order = rng.permutation(len(known))
        trained, rest = order[:size], order[size:]
        model = _Model(seed + repeat).fit(features[trained], known[trained])
        sums[rest] += model.predict(features[rest])
        counts[rest] += 1
        tested = rest[:_MOST_TESTED]
        rises.append(_rises(model, features[tested], known[tested], rng))
        if len(others):
            predicted += model.predict(others) / _REPEATS
    unseen = np.divide(sums, counts, out=np.full(len(known), np.nan), where=counts > 0)
    squares = np.square(unseen - known)[counts > 0]
    return Judged(
        unseen,
        float(np.sqrt(squares.mean())),
        float(1 - squares.mean() / known[counts > 0].var()),
        np.array(rises),
        predicted,
    )


def importance(judged: Judged) -> Importance | None:
    """Share the rises of the error out among the axes; None if nothing is explained.

    Args:
        judged: models of the figure.
    """
    rises = judged.rises.clip(min=0)
    totals = rises.sum(axis=1)
    if judged.explained <= 0 or not totals.any():
        return None
    shares = rises[totals > 0] / totals[totals > 0, None]
    figures = (shares.mean(axis=0), *np.percentile(shares, [2.5, 97.5], axis=0))
    axes = [
        AxisShare(axis, float(mean), float(low), float(high))
        for axis, mean, low, high in zip(AXES, *figures, strict=True)
    ]
    return Importance(judged.explained, sorted(axes, key=lambda axis: -axis.share))


def _features(states: Sequence[Architecture]) -> Array:
    rows = [(s.layers, s.heads, s.hidden, s.intermediate) for s in states]
    kinds = [[ACTIVATIONS.index(s.activation)] for s in states]
    return np.hstack([np.log2(np.array(rows).reshape(-1, 4)), np.array(kinds).reshape(-1, 1)])


class _Model:
    """The line and the trees on what it leaves over, as scikit-learn has its regressors."""

    def __init__(self, seed: int) -> None:
        from sklearn.ensemble import ExtraTreesRegressor
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self._line: Any = make_pipeline(StandardScaler(), RidgeCV(_PENALTIES))
        self._trees: Any = ExtraTreesRegressor(_TREES, random_state=seed)

    def fit(self, features: Array, values: Array) -> _Model:
        self._line.fit(features, values)
        self._trees.fit(features, values - self._line.predict(features))
        return self

    def predict(self, features: Array) -> Array:
        said: Array = self._line.predict(features) + self._trees.predict(features)
        return said


def _rises(model: _Model, features: Array, values: Array, rng: np.random.Generator) -> Array:
    """By how much the mean square error rises with each axis shuffled: (5,)."""
    from sklearn.inspection import permutation_importance

    found = permutation_importance(
        model,
        features,
        values,
        scoring=_score,
        n_repeats=_SHUFFLES,
        random_state=int(rng.integers(2**31)),
    )
    rises: Array = found.importances_mean
    return rises


def _score(model: _Model, features: Array, values: Array) -> float:
    return -float(np.square(model.predict(features) - values).mean())
