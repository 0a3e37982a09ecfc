from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.exploration import Purpose, draw, draw_apart, epsilon, generator, num_random
from kdnas.specs.strategies import ControllerStrategySpec


def test_as_published() -> None:
    options = ControllerStrategySpec(variant="paper")
    assert [epsilon(options, 15, n) for n in (1, 2, 15, 20, 21, 500)] == [
        1,
        0.95,
        0.3,
        0.05,
        0.05,
        0.05,
    ]
    counts = [num_random(epsilon(options, 15, n), 20) for n in range(1, 16)]
    assert counts == list(range(20, 5, -1))


def test_spread_ends_at_the_minimum() -> None:
    options = ControllerStrategySpec(variant="once", epsilon_decay="spread")
    assert [epsilon(options, 4, n) for n in range(1, 6)] == pytest.approx(
        [1, 1 - 0.95 / 3, 1 - 1.9 / 3, 0.05, 0.05]
    )
    assert epsilon(options, 1, 1) == 1


@given(st.integers(1, 60), st.integers(1, 80), st.floats(0, 1), st.floats(0, 1), st.integers(1, 50))
def test_never_rises_and_stays_a_share(
    episodes: int, episode: int, start: float, least: float, count: int
) -> None:
    for decay in (0.05, "spread"):
        options = ControllerStrategySpec(
            variant="once",
            epsilon_start=start,
            epsilon_min=least,
            epsilon_decay=decay,  # type: ignore[arg-type]
        )
        now, later = epsilon(options, episodes, episode), epsilon(options, episodes, episode + 1)
        assert 0 <= later <= now <= 1
        assert 0 <= num_random(now, count) <= count


def test_halves_are_rounded_up() -> None:
    assert [num_random(e, 10) for e in (0.95, 0.85, 0.05, 0.04)] == [10, 9, 1, 0]


def test_draws_hang_on_seed_episode_and_purpose_alone() -> None:
    def drawn(*key: int) -> list[int]:
        seed, episode, purpose = key
        return draw(generator(seed, episode, Purpose(purpose)), range(1000), 10)

    assert drawn(0, 1, 1) == drawn(0, 1, 1)
    assert len({tuple(drawn(*k)) for k in ((0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 1, 2))}) == 4
    assert sorted(draw(generator(0, 1, Purpose.EXPLORATION), [3, 1], 5)) == [1, 3]
    assert draw(generator(0, 1, Purpose.EXPLORATION), [], 5) == []


@given(st.sets(st.integers(0, 29)), st.integers(0, 40), st.sets(st.integers(0, 29)))
def test_draws_that_lie_apart_are_members_and_distinct(
    pool: set[int], count: int, there: set[int]
) -> None:
    features = np.random.default_rng(0).normal(size=(30, 2))
    rng = generator(0, 1, Purpose.EXPLORATION)
    drawn = draw_apart(rng, sorted(pool), count, features, sorted(there))
    assert len(drawn) == len(set(drawn)) == min(count, len(pool))
    assert set(drawn) <= pool


def test_draws_that_lie_apart_are_the_farthest_of_those_drawn() -> None:
    """With fewer members than candidates it is the farthest of all."""
    line = np.array([[0.0], [1.0], [2.0], [6.0], [10.0]])
    rng = generator(0, 1, Purpose.EXPLORATION)
    assert draw_apart(rng, [1, 2, 3, 4], 4, line, [0]) == [4, 3, 2, 1]
    assert len(draw_apart(rng, [0, 1, 2], 2, np.zeros((3, 0)))) == 2
