"""A search in one JSON value: how much it did, and what it found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import fmean, quantiles
from typing import Any, TypeVar

from kdnas.records import (
    Candidate,
    Episode,
    ExploredState,
    LossName,
    SearchRecord,
    StateCounts,
)
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reward import (
    AnyRated,
    RewardFunction,
    best_under,
    pareto_front,
    rank_key,
    ranking,
)
from kdnas.search.rungs import steps_saved
from kdnas.specs.search import RewardSpec

Figured = TypeVar("Figured", Candidate, ExploredState)


def summarise(
    search: SearchRecord, episodes: Sequence[Episode], reward: RewardSpec | None = None
) -> dict[str, Any]:
    """Sum up a search.

    Every explored state counts once, so ``explored`` = ``trained`` + ``reused`` + ``failed`` +
    ``stopped``: trained in this search, only looked up, neither with success, or ended at a rung.
    ``steps_saved`` is the share of the steps that rungs have saved. ``attempts`` counts the
    trainings that were started, a worker's death included. ``best`` holds every succeeded state in
    order of reward; ``loss`` is the L of the reward, ``loss_start`` the relative loss before the
    first step (null where it was not read). ``pareto`` holds the states that no other beats in
    loss and latency, fastest first; ``budgets`` the lowest loss within the quartiles of the
    explored latencies; ``baseline`` sets the random picks beside the others, by source.
    ``hypervolume``, of all states and of each source's, is null unless the goal is the front.

    Args:
        search: the stored search.
        episodes: its episodes with their candidates.
        reward: rank by this reward instead of the stored one.
    """
    spec = RewardSpec.read(search.spec.get("reward", {}), "reward") if reward is None else reward
    candidates = [candidate for episode in episodes for candidate in episode.candidates]
    if reward is not None:
        candidates = [RewardFunction.from_spec(reward).rescored(c) for c in candidates]

    succeeded = {c.index for c in candidates if c.status == "succeeded"}
    trained = {c.index for c in candidates if c.status == "succeeded" and not c.reused}
    failed = {c.index for c in candidates if c.status == "failed"} - succeeded
    stopped = {c.index for c in candidates if c.status == "stopped"}
    counts = StateCounts(
        explored=len(succeeded | failed | stopped),
        trained=len(trained),
        reused=len(succeeded - trained),
        failed=len(failed),
        attempts=sum(c.num_attempts for c in candidates),
        stopped=len(stopped),
        steps_saved=steps_saved(candidates),
    )
    return _summary(search, counts, ranking(candidates), spec.loss, None)


def summarise_states(
    search: SearchRecord,
    counts: StateCounts,
    states: Iterable[ExploredState],
    num_best: int | None = None,
) -> dict[str, Any]:
    """Sum up a search as :func:`summarise` does, from its states instead of all its candidates.

    Args:
        search: the stored search.
        counts: of its states.
        states: those with a reward.
        num_best: give so many under ``best``; None gives all.
    """
    loss = RewardSpec.read(search.spec.get("reward", {}), "reward").loss
    return _summary(search, counts, sorted(states, key=rank_key), loss, num_best)


def pareto_states(states: Sequence[AnyRated], loss: LossName) -> list[AnyRated]:
    """Return what no other beats in loss and latency, fastest first."""
    placed = [
        (s, (s.losses.named(loss), s.latency_ms))
        for s in states
        if s.losses is not None and s.latency_ms is not None
    ]
    return [placed[i][0] for i in pareto_front([point for _, point in placed])]


def _summary(
    search: SearchRecord,
    counts: StateCounts,
    ranked: Sequence[Figured],
    loss: LossName,
    num_best: int | None,
) -> dict[str, Any]:
    goal = search.spec.get("goal", "reward")
    return {
        "id": search.id,
        "name": search.name,
        "status": search.status,
        "goal": goal,
        "error": search.error,
        **asdict(counts),
        "hypervolume": _volume(ranked, loss, goal),
        "best": [_entry(c, loss) for c in ranked[:num_best]],
        "pareto": [_entry(c, loss) for c in pareto_states(ranked, loss)],
        "budgets": [
            {"latency_ms": budget, "best": _entry(found, loss)}
            for budget in _budgets(ranked)
            if (found := best_under(ranked, budget, loss)) is not None
        ],
        "baseline": _by_source(ranked, loss, goal),
    }


def _entry(candidate: Figured, loss: LossName) -> dict[str, Any]:
    losses = candidate.losses
    return {
        "architecture": str(candidate.architecture),
        "reward": candidate.reward,
        "loss": losses and losses.named(loss),
        "relative_loss": losses and losses.relative,
        "output_loss": losses and losses.output,
        "loss_start": candidate.loss_start,
        "latency_ms": candidate.latency_ms,
        "latency_ratio": candidate.latency_ratio,
        "params_millions": candidate.params_millions,
        "episode": candidate.episode,
        "source": candidate.source,
    }


def _budgets(ranked: Iterable[Figured]) -> list[float]:
    latencies = [c.latency_ms for c in ranked if c.latency_ms is not None]
    if len(latencies) < 2:
        return latencies
    return sorted(set(quantiles(latencies, n=4, method="inclusive")))


def _by_source(
    ranked: Iterable[Figured], loss: LossName, goal: str
) -> dict[str, dict[str, float | int | None]]:
    by_source: dict[str, list[Figured]] = {}
    for candidate in ranked:
        by_source.setdefault(candidate.source, []).append(candidate)
    found = {}
    for source, theirs in sorted(by_source.items()):
        rewards = [candidate.reward for candidate in theirs if candidate.reward is not None]
        if rewards:
            found[source] = {
                "count": len(rewards),
                "best_reward": max(rewards),
                "mean_reward": fmean(rewards),
                "hypervolume": _volume(theirs, loss, goal),
            }
    return found


def _volume(found: Iterable[Figured], loss: LossName, goal: str) -> float | None:
    """Return the hypervolume of states; None if there are none, or none are wanted as a front."""
    points = [
        (c.losses.named(loss), c.latency_ratio)
        for c in found
        if c.losses is not None and c.latency_ratio is not None
    ]
    return hypervolume(points) if goal == "front" and points else None
