"""What is told of a search from its states: order under another reward, fewer points, coverage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.records import Candidate, ExploredState, Losses
from kdnas.search.coverage import coverage, known_axes
from kdnas.search.hypervolume import hypervolume
from kdnas.search.reranking import front_of, rerank
from kdnas.search.reward import RewardFunction, pareto_front, ranking
from kdnas.search.thinning import evenly, thinned_states
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.search import SpaceSpec

PAPER = SearchSpace.paper()
SHARES = st.floats(0.01, 1.5)


@st.composite
def explored(draw: st.DrawFn) -> list[ExploredState]:
    indices = draw(st.lists(st.integers(0, 2399), min_size=1, max_size=40, unique=True))
    function = RewardFunction("relative", -0.15, 0.6)
    states = []
    for index in indices:
        losses = Losses(0.1, draw(SHARES), draw(SHARES), draw(SHARES))
        ratio = draw(SHARES)
        states.append(
            ExploredState(
                candidate_id=f"c{index}",
                index=index,
                architecture=str(PAPER[index]),
                source="random",
                episode=1,
                predicted_reward=None,
                reward=function(losses, ratio).reward,
                losses=losses,
                latency_ms=10 * ratio,
                latency_ratio=ratio,
                params_millions=1.0,
            )
        )
    return states


def as_candidate(state: ExploredState) -> Candidate:
    return Candidate(
        id=state.candidate_id,
        search_id="s",
        episode=1,
        position=0,
        index=state.index,
        architecture=Architecture.parse(state.architecture),
        source="random",
        predicted_reward=None,
        status="succeeded",
        losses=state.losses,
        latency_ms=state.latency_ms,
        latency_ratio=state.latency_ratio,
        reward=state.reward,
    )


@given(explored(), st.floats(-2, 0), st.floats(0.1, 2), st.sampled_from(["relative", "output"]))
def test_states_are_reranked_as_candidates_are(
    states: list[ExploredState], alpha: float, beta: float, loss: str
) -> None:
    function = RewardFunction(loss, alpha, beta)  # type: ignore[arg-type]
    candidates = [as_candidate(state) for state in states]
    stored = [c.index for c in ranking(candidates)]
    wanted = ranking(function.rescored(c) for c in candidates)
    found = rerank(states, function)
    assert [(entry.state.index, entry.reward) for entry in found] == [
        (c.index, c.reward) for c in wanted
    ]
    assert [entry.rank for entry in found] == list(range(1, len(states) + 1))
    assert all(stored[entry.stored_rank - 1] == entry.state.index for entry in found)


@given(explored(), SHARES)
def test_within_a_latency_the_lowest_loss_is_first(
    states: list[ExploredState], ratio: float
) -> None:
    function = RewardFunction("relative", 0.0, 0.6)
    found = rerank(states, function, ratio)
    within = [state for state in states if state.latency_ratio <= ratio]
    assert {entry.state.index for entry in found} == {state.index for state in within}
    losses = [min(entry.state.losses.relative, 1.0) for entry in found]
    assert losses == sorted(losses)
    stored = {entry.state.index: entry.stored_rank for entry in rerank(states, function)}
    assert all(entry.stored_rank == stored[entry.state.index] for entry in found)


@given(explored())
def test_a_front_says_what_it_would_lose(states: list[ExploredState]) -> None:
    function = RewardFunction("output", -0.15, 0.6)
    found = front_of(states, function)
    points = [(entry.state.losses.output, entry.state.latency_ratio) for entry in found.states]
    assert points == sorted(points, key=lambda point: point[1])
    assert found.hypervolume == pytest.approx(
        hypervolume([(state.losses.output, state.latency_ratio) for state in states])
    )
    for rank, entry in enumerate(found.states, 1):
        rest = points[: rank - 1] + points[rank:]
        assert entry.contribution == pytest.approx(found.hypervolume - hypervolume(rest), abs=1e-9)
        assert entry.rank == rank
        assert entry.reward == function(entry.state.losses, entry.state.latency_ratio).reward


@given(explored(), st.integers(1, 45))
def test_the_front_survives_thinning(states: list[ExploredState], limit: int) -> None:
    kept = thinned_states(states, "relative", limit)
    assert len(kept) == min(limit, len(states)) == len({state.index for state in kept})
    front = pareto_front([(s.losses.relative, s.latency_ms) for s in states])
    if len(front) <= limit:
        assert {states[i].index for i in front} <= {state.index for state in kept}


@pytest.mark.parametrize(
    ("limit", "kept"), [(0, []), (1, [9]), (2, [0, 9]), (4, [0, 3, 6, 9]), (99, list(range(10)))]
)
def test_even_distances(limit: int, kept: list[int]) -> None:
    assert evenly(range(10), limit) == kept


@given(st.lists(st.tuples(st.sampled_from(PAPER.states), st.integers(1, 9)), max_size=30))
def test_each_pair_of_axes_counts_every_candidate(tried: list[tuple[Architecture, int]]) -> None:
    found = coverage([(str(a), count) for a, count in tried], PAPER.axes)
    assert found.axes == {axis: list(values) for axis, values in PAPER.axes.items()}
    assert len({(pair.rows, pair.columns) for pair in found.pairs}) == 10
    for pair in found.pairs:
        rows, columns = found.axes[pair.rows], found.axes[pair.columns]
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                assert pair.counts[i][j] == sum(
                    count
                    for a, count in tried
                    if (getattr(a, pair.rows), getattr(a, pair.columns)) == (row, column)
                )


def test_values_outside_the_known_axes_are_shown_in_order() -> None:
    found = coverage([("5,2,96,100,silu", 2), ("12,2,96,100,gelu", 1)], {})
    assert found.axes == dict(zip(AXES, ([5, 12], [2], [96], [100], ["gelu", "silu"]), strict=True))
    mixed = coverage([("5,2,96,100,silu", 2)], {"layers": (3, 12)})
    assert mixed.axes["layers"] == [3, 5, 12]


def test_axes_that_a_spec_gives_away() -> None:
    assert known_axes(SpaceSpec.read("paper", "space")) == PAPER.axes
    custom = known_axes(SpaceSpec.read({"axes": {"layers": [1, 2]}}, "space"))
    assert (custom["layers"], custom["hidden"]) == ((1, 2), PAPER.hidden)
    assert known_axes(SpaceSpec()) == {}


def test_a_state_keeps_its_own_reward_in_another_order() -> None:
    base = ExploredState(
        "c", 1, str(PAPER[1]), "random", 1, None, 0.5, Losses(0, 0, 0.5, 0), 5, 0.5, 1
    )
    (only,) = rerank([replace(base, reward=0.25)], RewardFunction("relative", 0.0, 1.0))
    assert (only.reward, only.state.reward) == (0.5, 0.25)
