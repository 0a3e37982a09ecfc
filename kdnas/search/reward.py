"""The reward of a student, and the orders that follow from it: ranking, Pareto front, budgets.

Pure functions of losses and latencies, so rewards can be computed anew from what is stored for
any choice of loss, α and β.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeVar

from kdnas.architecture import Architecture
from kdnas.records import Candidate, Losses, LossName
from kdnas.specs.search import RewardSpec


class Rated(Protocol):
    """What has an order: a candidate, or a state that was explored."""

    @property
    def index(self) -> int:
        """Index of the state."""

    @property
    def reward(self) -> float | None:
        """None before training, and of a failed candidate."""

    @property
    def losses(self) -> Losses | None:
        """None before training, and of a student that was not trained to the end."""

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds of an inference."""


AnyRated = TypeVar("AnyRated", bound=Rated)


class Scored(NamedTuple):
    """A reward, and a remark if its loss had to be clipped."""

    reward: float
    note: str | None


def reward(loss: float, latency_ms: float, teacher_ms: float, alpha: float, beta: float) -> Scored:
    """(1 − L) · (lat(S) / (β·lat(T)))^α (Trivedi et al. 2023, Eq. 4).

    The paper's L stays far below 1; ours may not, and with L > 1 the sign would flip and slower
    would become better. So L is clipped to [0, 1], and the note says so.

    Args:
        loss: L, the student's distillation loss; finite.
        latency_ms: lat(S), above 0, in any unit that ``teacher_ms`` shares.
        teacher_ms: lat(T), above 0.
        alpha: weight of the latency, at most 0.
        beta: share of the teacher's latency that counts as the target, above 0.

    Raises:
        ValueError: the loss is not finite, or a latency or beta is not above 0.
    """
    if not math.isfinite(loss):
        raise ValueError(f"a reward needs a finite loss, not {loss}")
    if not (0 < latency_ms < math.inf and 0 < teacher_ms < math.inf and beta > 0):
        raise ValueError(
            f"latencies and beta must be above 0, not student {latency_ms}, teacher {teacher_ms}, "
            f"beta {beta}"
        )
    clipped = min(max(loss, 0.0), 1.0)
    note = None if clipped == loss else f"loss {loss:.4g} counts as {clipped:g} in the reward"
    return Scored((1 - clipped) * (latency_ms / (beta * teacher_ms)) ** alpha, note)


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """Eq. 4 with its constants fixed.

    Attributes:
        loss: which held-out loss is L.
        alpha: weight of the latency, at most 0.
        beta: share of the teacher's latency that counts as the target.
    """

    loss: LossName
    alpha: float
    beta: float

    @classmethod
    def from_spec(cls, spec: RewardSpec) -> RewardFunction:
        """Take the constants from a request; α may come from its latency price."""
        return cls(spec.loss, spec.exponent, spec.beta)

    def __call__(self, losses: Losses, latency_ratio: float) -> Scored:
        """Reward a student from its losses and its latency as a share of the teacher's."""
        return reward(losses.named(self.loss), latency_ratio, 1.0, self.alpha, self.beta)

    def of_loss(self, loss: float, latency_ratio: float) -> float:
        """Reward of a student with this loss and this share of the teacher's latency."""
        return reward(loss, latency_ratio, 1.0, self.alpha, self.beta).reward

    def loss_of(self, reward: float, latency_ratio: float) -> float:
        """Loss of a student with this reward: what :meth:`of_loss` has made it of, from 0 to 1.

        Of a reward that no student can have it lies outside.
        """
        return 1 - reward / self.of_loss(0.0, latency_ratio)

    def rescored(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the reward that this function gives it.

        A candidate that failed, or has no losses (as one that was stopped) or no latency, has no
        reward.
        """
        losses, ratio = candidate.losses, candidate.latency_ratio
        if candidate.status == "failed" or losses is None or ratio is None:
            return replace(candidate, reward=None)
        value, note = self(losses, ratio)
        return replace(candidate, reward=value, note=note)


def depth_warning(loss: LossName, architectures: Iterable[Architecture]) -> str | None:
    """Warn of a reward by the mean loss over students of different depth; None if all is well.

    Depth decides which layers are paired, and the mean over the pairs goes with their scale, so
    students of different depth are not ranked by how much they have learned (docs/science.md).
    """
    if loss != "mean":
        return None
    depths = sorted({architecture.layers for architecture in architectures})
    if len(depths) < 2:
        return None
    return (
        "reward.loss mean cannot rank students of different depth, and these have "
        f"{', '.join(map(str, depths[:-1]))} or {depths[-1]} layers; take reward.loss relative, "
        "or a space of one depth"
    )


def rank_key(candidate: Rated) -> tuple[float, float, int]:
    """Sort key, best first: reward, then the smaller latency, then the lower index."""
    reward = -math.inf if candidate.reward is None else candidate.reward
    latency = math.inf if candidate.latency_ms is None else candidate.latency_ms
    return (-reward, latency, candidate.index)


def ranking(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Order the succeeded candidates, best first; a state that occurs twice appears once."""
    first: dict[int, Candidate] = {}
    for candidate in candidates:
        if candidate.status == "succeeded" and candidate.reward is not None:
            first.setdefault(candidate.index, candidate)
    return sorted(first.values(), key=rank_key)


def best_under(candidates: Iterable[AnyRated], budget_ms: float, loss: LossName) -> AnyRated | None:
    """Return the lowest loss whose latency is within the budget, or None.

    By loss, not by reward: who has a budget has paid for the latency already. Ties go to the
    smaller latency, then the lower index.
    """
    within = [
        (c.losses.named(loss), c.latency_ms, c.index, c)
        for c in candidates
        if c.losses is not None and c.latency_ms is not None and c.latency_ms <= budget_ms
    ]
    return min(within, key=lambda entry: entry[:3])[3] if within else None


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the positions of the points that no other point beats, fastest first.

    Args:
        points: (loss, latency) of each student, smaller is better in both. A point beats another
            if it is no worse in both and better in one; of equal points the first is kept.
    """
    front: list[int] = []
    lowest = math.inf
    for i in sorted(range(len(points)), key=lambda i: (points[i][1], points[i][0], i)):
        if points[i][0] < lowest:
            front.append(i)
            lowest = points[i][0]
    return front
