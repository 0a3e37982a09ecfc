"""How sure figures are: chance is what brute force says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from kdnas.architecture import Architecture
from kdnas.records import ExploredState, Losses
from kdnas.search.analysis.chance import by_chance
from kdnas.search.analysis.findings import (
    Analysis,
    analyse,
    near_front,
    predictions_of,
    within_noise,
)
from kdnas.search.analysis.noise import KnownNoise
from kdnas.search.analysis.surrogate import importance, judge
from kdnas.search.analysis.words import in_words
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reward import RewardFunction, pareto_front
from kdnas.tabular.surface import Surface, synthetic

REWARD = RewardFunction("relative", -0.152, 0.6)


@pytest.fixture(scope="module")
def surface() -> Surface:
    return synthetic("additive")


def ratio(surface: Surface, index: int) -> float:
    return surface.latency_ms[index] / surface.teacher_ms


def state(surface: Surface, index: int, source: str = "random") -> ExploredState:
    loss = surface.observed(index, 1)
    return ExploredState(
        candidate_id=f"c{index}",
        index=index,
        architecture=str(surface.space[index]),
        source=source,
        episode=1,
        predicted_reward=None,
        reward=REWARD.of_loss(loss, ratio(surface, index)),
        losses=Losses(loss, loss, loss, loss),
        latency_ms=surface.latency_ms[index],
        latency_ratio=ratio(surface, index),
        params_millions=1.0,
    )


def drawn(surface: Surface, count: int, seed: int = 0) -> list[ExploredState]:
    rng = np.random.default_rng(seed)
    return [state(surface, int(i)) for i in rng.choice(len(surface.space), count, replace=False)]


def ratios(surface: Surface) -> dict[Architecture, float]:
    return {a: ratio(surface, index) for index, a in enumerate(surface.space.states)}


def test_as_many_equal_states_are_told_apart_as_the_level_says() -> None:
    rng, noise = np.random.default_rng(1), KnownNoise(0.01, 10_000, 10_000)
    wrong = 0
    for _ in range(2000):
        pair = [REWARD.of_loss(0.3 + e, 0.5) for e in rng.normal(0, 0.01, 2)]
        wrong += not within_noise([(r, 0.5) for r in pair], noise, REWARD)[1]
    assert wrong / 2000 == pytest.approx(0.05, abs=0.015)


def test_noise_weighs_as_latency_does() -> None:
    noise = KnownNoise(0.01, 20, 20)
    best, slow = REWARD.of_loss(0.3, 0.2), REWARD.of_loss(0.0, 0.9)
    least = 2.086 * 0.01 * math.hypot(REWARD.of_loss(0.0, 0.2), slow)
    figures = [(best, 0.2), (best - 0.99 * least, 0.9), (best - 1.01 * least, 0.9)]
    assert within_noise(figures, noise, REWARD) == [True, True, False]


def test_off_the_front_is_who_is_beaten_by_more_than_noise_at_most_as_slow() -> None:
    noise = KnownNoise(0.01, 20, 20)
    reach = 2.086 * 0.01 * math.sqrt(2)
    points = [
        (0.50 + 0.99 * reach, 1.5),  # near what is faster, and slower than it
        (0.30, 2.0),
        (0.50, 1.0),
        (0.30 + 1.01 * reach, 2.5),
        (0.30, 2.0),  # the same again, which is not on the front
        (0.50 + 0.5 * reach, 1.0),
        (0.90, 0.5),
        (0.30 + 0.99 * reach, 3.0),
        (0.30 + 1.01 * reach, 2.0),
    ]
    assert near_front(points, noise) == [5, 0, 4, 7]
    assert near_front([], noise) == []
    assert near_front(points, KnownNoise(0.0, 20, 20)) == []


def test_as_many_equals_of_the_front_are_found_as_the_level_says() -> None:
    """Of two states that seeds alone tell apart, the slower one is on the front half the time."""
    rng, noise = np.random.default_rng(1), KnownNoise(0.01, 10_000, 10_000)
    off, found = 0, 0
    for faster, slower in rng.normal(0.3, 0.01, (2000, 2)):
        off += slower >= faster
        found += len(near_front([(faster, 1.0), (slower, 2.0)], noise))
    assert off / 2000 == pytest.approx(0.5, abs=0.04)
    assert found / off == pytest.approx(0.95, abs=0.02)


def test_predictions_are_those_of_the_strategy_in_finished_episodes(surface: Surface) -> None:
    own = [replace(s, source="controller", episode=2) for s in drawn(surface, 5)]
    foreseen = [foreseeing(s, s.losses.relative + 0.1) for s in own]
    few = [replace(s, episode=3) for s in foreseen[:2]]
    chance = [replace(s, source="random", predicted_reward=0.0) for s in foreseen]
    alike = [replace(foreseeing(s, 0.3), episode=4) for s in own]
    unfinished = [replace(s, episode=5) for s in foreseen]
    states = [*foreseen, *few, *chance, *alike, *unfinished]
    two, three, four = predictions_of(states, {2, 3, 4}, REWARD)
    assert (two.episode, two.pairs, two.spearman) == (2, 5, pytest.approx(1))
    assert two.rmse == pytest.approx(0.1)
    assert (three.pairs, three.spearman, three.rmse) == (2, None, None)
    assert (four.pairs, four.spearman) == (5, None)
    assert four.rmse is not None


def foreseeing(state: ExploredState, loss: float) -> ExploredState:
    """With the reward that was predicted of a loss."""
    return replace(state, predicted_reward=REWARD.of_loss(loss, state.latency_ratio))


def test_who_knows_the_latency_alone_foresees_nothing(surface: Surface) -> None:
    """Though its predicted rewards go with the true ones where latency has a price."""
    steep = RewardFunction("relative", -1.0, 0.6)
    rng = np.random.default_rng(5)
    guessed = [
        replace(
            s,
            source="gp",
            reward=steep.of_loss(s.losses.relative, s.latency_ratio),
            predicted_reward=steep.of_loss(float(rng.uniform(0.2, 0.4)), s.latency_ratio),
        )
        for s in drawn(surface, 200)
    ]
    (found,) = predictions_of(guessed, {1}, steep)
    assert found.spearman == pytest.approx(0, abs=0.15)
    assert spearmanr([(s.predicted_reward, s.reward) for s in guessed]).statistic > 0.8


@pytest.mark.parametrize("axis", ["layers", "hidden", "activation"])
def test_the_axis_that_matters_is_found(surface: Surface, axis: str) -> None:
    rng = np.random.default_rng(2)
    states = [surface.space[int(i)] for i in rng.choice(len(surface.space), 80, replace=False)]
    values = [effect(getattr(s, axis)) + float(rng.normal(0, 0.02)) for s in states]
    judged = judge(states, values)
    assert judged is not None
    found = importance(judged)
    assert found is not None
    assert found.axes[0].axis == axis
    assert found.axes[0].share > 0.9
    assert sum(one.share for one in found.axes) == pytest.approx(1)
    assert all(0 <= one.low <= one.share <= one.high <= 1 for one in found.axes)
    assert found.axes[0].low > 0.8
    assert judge(states[:11], values[:11]) is None
    assert judge(states, [0.5] * len(states)) is None


def effect(value: int | str) -> float:
    return (
        {"gelu": 0.0, "relu": 1.0, "silu": 0.3}[value]
        if isinstance(value, str)
        else math.log2(value)
    )


def test_nothing_is_important_where_all_is_noise(surface: Surface) -> None:
    states = [surface.space[i] for i in range(0, 2400, 40)]
    judged = judge(states, [float(n) for n in np.random.default_rng(3).normal(0, 1, len(states))])
    assert judged is not None
    assert judged.explained <= 0
    assert importance(judged) is None


@pytest.mark.parametrize("picked", [0, 40])
def test_chance_is_what_brute_force_says(surface: Surface, picked: int) -> None:
    """Also of a search whose picks crowd around the optimum."""
    everything = [state(surface, index, "controller") for index in range(len(surface.space))]
    best_first = sorted(everything, key=lambda s: -s.reward)
    states = {s.index: s for s in [*best_first[: 4 * picked : 4], *drawn(surface, 60 - picked)]}
    explored = list(states.values())
    judged = judge(
        [surface.space[s.index] for s in explored],
        [s.losses.relative for s in explored],
        surface.space.states,
    )
    assert judged is not None
    found = by_chance(explored, ratios(surface), REWARD, "front", judged)
    assert (found.budget, found.num_allowed) == (len(explored), 2400)
    volume, reward = found.measures
    rng, rewards = np.random.default_rng(4), np.array([s.reward for s in everything])
    draws = [rng.choice(2400, len(explored), replace=False) for _ in range(400)]
    true = np.array([rewards[draw].max() for draw in draws])
    assert reward.expected == pytest.approx(true.mean(), abs=0.005)
    low, high = np.percentile(true, [2.5, 97.5])
    assert (reward.low, reward.high) == pytest.approx((low, high), abs=0.008)
    assert reward.as_good == pytest.approx(np.mean(true >= reward.found), abs=0.15)
    assert reward.found == max(s.reward for s in explored)
    points = [(s.losses.relative, s.latency_ratio) for s in everything]
    volumes = [hypervolume([points[i] for i in draw]) for draw in draws[:100]]
    assert volume.expected == pytest.approx(np.mean(volumes), abs=0.06)
    assert volume.by_own_random == hypervolume(
        [points[s.index] for s in explored if s.source == "random"]
    )


def test_an_analysis_in_words(surface: Surface) -> None:
    states = drawn(surface, 30)
    noise = KnownNoise(0.002, 20, 20)
    found = analyse(states, {1}, REWARD, "reward", noise, ratios(surface))
    assert found.within_noise is not None
    assert max(states, key=lambda s: s.reward).architecture not in found.within_noise
    words = " ".join(in_words(found, "reward", 30, 60))
    assert "standard deviation of 0.0020 (20 degrees of freedom, from 20 states)" in words
    assert "as many random states (30 of 2400)" in words
    assert "% of draws at least the" in words
    assert "That is an estimate" in words
    of_table = replace(found, noise=replace(noise, table="minilm"))
    assert "20 states of the table minilm, trained as these are)" in " ".join(
        in_words(of_table, "reward", 30, 60)
    )
    front = analyse(states, {1}, REWARD, "front", noise, None)
    assert front.chance is None
    assert "latencies of the other states are not stored" in in_words(front, "front", 30, 60)[-1]


def test_with_goal_front_the_front_is_what_others_are_compared_with(surface: Surface) -> None:
    states = drawn(surface, 30)
    front = {states[i].architecture for i in pareto_front([points_of(s) for s in states])}
    most = analyse(states, {1}, REWARD, "front", KnownNoise(1.0, 20, 20), None)
    assert most.within_noise is not None
    assert len(most.within_noise) == 30 - len(front)
    assert not front & set(most.within_noise)
    assert f"cannot tell {30 - len(front)} other states from those of the front" in " ".join(
        in_words(most, "front", 30, 60)
    )
    none = analyse(states, {1}, REWARD, "front", KnownNoise(1e-9, 20, 20), None)
    assert none.within_noise == []
    assert "off the front is beaten by more than noise" in " ".join(in_words(none, "front", 30, 60))


def points_of(state: ExploredState) -> tuple[float, float]:
    return state.losses.relative, state.latency_ratio


def test_what_is_not_known_is_said_with_how_to_get_it(surface: Surface) -> None:
    found = analyse(drawn(surface, 3), {1}, REWARD, "reward", None, ratios(surface))
    assert found == Analysis(None, None, [], None, None, None)
    words = in_words(found, "reward", 3, 60)
    assert "`kdnas sweep --steps 60 --seeds 1,2 --states 20`" in words[0]
    assert "12 states" in words[-1]
    assert "another proxy.seed" in in_words(found, "reward", 3, None)[0]
