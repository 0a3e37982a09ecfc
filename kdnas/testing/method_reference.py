"""Losses of all methods of distillation for a task in float64 NumPy, written from the formulas.

One example at a time, layer by layer, as the docstrings have it; gradients by central differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
STEP = 1e-5
"""Of central differences; their error is of its square."""


@dataclass(frozen=True)
class Case:
    """What a method is given, as plain numbers.

    B examples, K outputs, N teacher layers, M student layers, D_T and D_S their widths.

    Attributes:
        logits: (B, K) of the student.
        layers: (B, M, K) of the student; what stands behind the last one is left to ``logits``.
        states: (B, M, D_S) of the student.
        teacher_logits: (B, K).
        teacher_layers: (B, N, K).
        teacher_states: (B, N, D_T).
        labels: (B,).
        share: of the first stage's epochs.
        beta: β.
        temperature: T.
        deviation: s of a regression; None of a classification.
        centre: mean of the labels of a regression; 0 of a classification.
        matched: teacher layer of each inner layer, from 1 on.
        chosen: teacher layers, from 1 on.
        maps: (M - 1, D_S, D_T) to the teacher's width; None where both are the same.
    """

    logits: Array
    layers: Array
    states: Array
    teacher_logits: Array
    teacher_layers: Array
    teacher_states: Array
    labels: Array
    share: float
    beta: float
    temperature: float
    deviation: float | None
    centre: float
    matched: tuple[int, ...]
    chosen: tuple[int, ...]
    maps: Array | None = None

    @property
    def inner(self) -> range:
        """Inner layers of the student, from 0 on."""
        return range(self.layers.shape[1] - 1)

    def answer(self, z: Array) -> Array:
        """f: the softmax of logits (K,), or the number itself."""
        if self.deviation is not None:
            return z
        powers = np.exp(z - z.max())
        answer: Array = powers / powers.sum()
        return answer

    def distance(self, target: Array, z: Array) -> float:
        """KL(target ‖ σ(z)), or the squared error."""
        if self.deviation is not None:
            return float(((target - z) ** 2).sum())
        own = self.answer(z)
        return sum(float(p * (np.log(p) - np.log(q))) for p, q in zip(target, own, strict=True))

    def output(self, b: int) -> float:
        """L_KD of an example."""
        theirs, own = self.teacher_logits[b], self.logits[b]
        if self.deviation is not None:
            return self.distance(theirs, own)
        t = self.temperature
        return t**2 * self.distance(self.answer(theirs / t), own / t)

    def label(self, z: Array, b: int) -> float:
        """Cross entropy with the label, or the squared error."""
        if self.deviation is not None:
            return float((z[0] - self.labels[b]) ** 2)
        return -float(np.log(self.answer(z)[int(self.labels[b])]))

    def weights(self, z: Array, b: int) -> Array:
        """λ (N,) of a student layer that says z (K,)."""
        own = self.answer(z)
        scores = []
        for said in self.teacher_layers[b]:
            theirs = self.answer(said)
            if self.deviation is None:
                scores.append(float(theirs @ own))
            else:
                scores.append(-float((theirs[0] - own[0]) ** 2) / self.deviation**2)
        return _softmax(np.array(scores))

    def universal(self, z: Array, b: int) -> float:
        """l_Univ of a student layer that says z (K,)."""
        mixture = sum(
            w * self.answer(said)
            for w, said in zip(self.weights(z, b), self.teacher_layers[b], strict=True)
        )
        return self.distance(np.asarray(mixture), z)

    def state(self, b: int, j: int) -> Array:
        """State of a student's inner layer, in the teacher's width."""
        own: Array = self.states[b, j]
        return own if self.maps is None else own @ self.maps[j]

    def total(self, b: int, own: float) -> float:
        """β·L_KD + (1 − β)·L_method."""
        return self.beta * self.output(b) + (1 - self.beta) * own


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max())
    weights: Array = powers / powers.sum()
    return weights


def _direction_distance(a: Array, b: Array) -> float:
    """‖a/‖a‖ − b/‖b‖‖²."""
    return float(((a / np.sqrt((a**2).sum()) - b / np.sqrt((b**2).sum())) ** 2).sum())


def _none(case: Case, b: int) -> float:
    return case.label(case.logits[b], b)


def _vanilla_kd(case: Case, b: int) -> float:
    return case.output(b)


def _pkd(case: Case, b: int) -> float:
    theirs = [case.teacher_states[b, layer - 1] for layer in case.matched]
    return case.total(b, sum(_direction_distance(theirs[j], case.state(b, j)) for j in case.inner))


def _mhkd(case: Case, b: int) -> float:
    own = 0.0
    for j, layer in zip(case.inner, case.matched, strict=True):
        z = case.layers[b, j]
        own += case.distance(case.answer(case.teacher_layers[b, layer - 1]), z)
        own += case.label(z, b)
    return case.total(b, own)


def _alp_kd(case: Case, b: int) -> float:
    own, theirs = 0.0, case.teacher_states[b]
    for j in case.inner:
        state = case.state(b, j)
        a = _softmax(np.array([float(h @ state) for h in theirs]))
        own += _direction_distance(a @ theirs, state)
    return case.total(b, own)


def _dih(case: Case, b: int) -> float:
    losses = [
        case.distance(case.answer(case.teacher_layers[b, i - 1]), case.logits[b])
        for i in case.chosen
    ]
    return case.total(b, sum(losses) / len(losses))


def _annealing_kd(case: Case, b: int) -> float:
    target = case.centre + case.share * (case.teacher_logits[b] - case.centre)
    return float(((case.logits[b] - target) ** 2).sum())


def _universal_inner(case: Case, b: int) -> float:
    return case.total(b, sum(case.universal(case.layers[b, j], b) for j in case.inner))


def _universal_last(case: Case, b: int) -> float:
    return case.total(b, case.universal(case.logits[b], b))


def _universal_weighted(case: Case, b: int) -> float:
    z = case.logits[b]
    losses = [case.distance(case.answer(said), z) for said in case.teacher_layers[b]]
    return case.total(b, float(case.weights(z, b) @ np.array(losses)))


REFERENCES: Final[Mapping[str, Callable[[Case, int], float]]] = {
    "none": _none,
    "vanilla-kd": _vanilla_kd,
    "pkd": _pkd,
    "mhkd": _mhkd,
    "alp-kd": _alp_kd,
    "takd": _vanilla_kd,
    "dih": _dih,
    "annealing-kd": _annealing_kd,
    "universal-kd-il": _universal_inner,
    "universal-kd-cg": _universal_last,
    "universal-kd-ca": _universal_inner,
    "universal-kd-weighted": _universal_weighted,
}
"""Method → loss of one example."""


def reference_loss(name: str, case: Case) -> float:
    """Loss of a method: the mean over the examples."""
    return float(np.mean([REFERENCES[name](case, b) for b in range(len(case.logits))]))


def reference_gradient(name: str, case: Case, of: str) -> Array:
    """Gradient of a method's loss by one of the arrays of its case, by central differences.

    Args:
        name: of the method.
        case: where.
        of: ``logits``, ``layers``, ``states`` or ``maps``.
    """
    values: Array = getattr(case, of)
    gradient = np.zeros_like(values)
    for place in np.ndindex(*values.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = values.copy()
            moved[place] += step
            changed: dict[str, Any] = {of: moved}
            ends.append(reference_loss(name, replace(case, **changed)))
        gradient[place] = (ends[0] - ends[1]) / (2 * STEP)
    return gradient
