from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.errors import LatencyError
from kdnas.latency.block_model import (
    PARTS,
    Block,
    BlockModel,
    BlockTiming,
    balanced_order,
    measured_depths,
)
from kdnas.search_space import SearchSpace

SPACE = SearchSpace.paper()
BLOCKS = sorted({Block.of(a) for a in SPACE.states})


def law_ms(a: Architecture) -> float:
    """A machine whose kernels have a taste: smooth costs, and some sizes dearer than others."""
    taste = 1.0 + 0.04 * ((a.hidden // 96 + a.intermediate // 128) % 3)
    layer = taste * (0.05 + a.hidden**2 / 4e5 + a.hidden * a.intermediate / 8e5)
    attention = 0.004 * a.heads + 0.03 * (a.activation == "gelu")
    weights = a.layers * (4 * a.hidden**2 + 2 * a.hidden * a.intermediate) / 1e6
    return 0.2 + a.hidden / 4e3 + a.layers * (layer + attention) + 0.05 * max(0.0, weights - 8.0)


def timings(blocks: list[Block], depths: tuple[int, int], noise: float = 0.0) -> list[BlockTiming]:
    rng = np.random.default_rng(0)
    return [
        BlockTiming(
            b, {d: law_ms(b.at(d)) * (1 + noise * rng.standard_normal()) for d in depths}, i // 8
        )
        for i, b in enumerate(blocks)
    ]


def errors(model: BlockModel) -> np.ndarray:
    truth = np.array([law_ms(a) for a in SPACE.states])
    return np.abs(model.predict(SPACE.states) / truth - 1)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_noiseless_blocks_extrapolate_exactly_however_rough_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = balanced_order(BLOCKS, seed)[:40]
    layer_ms = dict(zip(blocks, rng.uniform(0.1, 5.0, len(blocks)), strict=True))

    def ms(block: Block, depth: int) -> float:
        return 0.1 + block.hidden / 2e3 + depth * layer_ms[block]

    model = BlockModel([BlockTiming(b, {d: ms(b, d) for d in (2, 6)}) for b in blocks], length=32)
    states = [b.at(depth) for b in blocks for depth in (1, 3, 12)]
    expected = [ms(b, depth) for b in blocks for depth in (1, 3, 12)]
    np.testing.assert_allclose(model.predict(states), expected, rtol=1e-6)


def test_a_tenth_of_the_blocks_finds_the_law() -> None:
    model = BlockModel(timings(balanced_order(BLOCKS, 0)[:48], (4, 10)), length=32)
    assert np.median(errors(model)) < 0.01
    assert np.quantile(errors(model), 0.9) < 0.03


def test_noise_is_averaged_out() -> None:
    model = BlockModel(timings(balanced_order(BLOCKS, 0)[:160], (4, 10), noise=0.03), length=32)
    assert 0.01 < model.noise < 0.04
    assert np.median(errors(model)) < 0.015
    assert np.quantile(errors(model), 0.9) < 0.04


def test_a_drift_of_one_batch_does_not_become_a_property_of_its_blocks() -> None:
    steady = timings(balanced_order(BLOCKS, 0)[:120], (4, 10), noise=0.005)
    drifting = [
        BlockTiming(
            t.block, {d: ms * (1.1 if t.batch == 3 else 1.0) for d, ms in t.ms_at.items()}, t.batch
        )
        for t in steady
    ]
    assert np.median(errors(BlockModel(drifting, length=32))) < 0.015


def test_longer_students_of_a_block_take_longer() -> None:
    model = BlockModel(timings(balanced_order(BLOCKS, 1)[:30], (3, 12), noise=0.02), length=32)
    for block in BLOCKS[::50]:
        assert (np.diff(model.predict([block.at(d) for d in SPACE.layers])) > 0).all()


@pytest.mark.parametrize(
    ("layers", "depths"),
    [
        ((1, 2, 3, 5, 6), (2, 5)),
        ((12, 3, 4, 6, 10), (4, 10)),
        ((1, 2, 3), (1, 3)),
        ((4,), (2, 4)),
        ((1,), (1, 2)),
    ],
)
def test_depths_bracket_the_space(layers: tuple[int, ...], depths: tuple[int, int]) -> None:
    assert measured_depths(layers) == depths


def test_balanced_order_is_a_seeded_permutation_that_covers_sizes_early() -> None:
    order = balanced_order(BLOCKS, 5)
    assert sorted(order) == BLOCKS
    assert order == balanced_order(BLOCKS, 5) != balanced_order(BLOCKS, 6)
    pairs = {PARTS[4](b) for b in order[:40]}
    assert len(pairs) == len(SPACE.hidden) * len(SPACE.intermediate)


def test_blocks_at_one_depth_are_refused() -> None:
    with pytest.raises(LatencyError, match="two depths"):
        BlockModel([BlockTiming(BLOCKS[0], {2: 1.0})], length=32)


def disturbed(known: list[BlockTiming], count: int) -> list[BlockTiming]:
    """The first of some timings as a busy machine may have them: deeper students in no time."""
    low = [replace(t, ms_at={depth: 1e-6 / depth for depth in t.ms_at}) for t in known[:count]]
    return [*low, *known[count:]]


def test_a_block_that_seems_to_take_no_time_is_predicted_from_the_others() -> None:
    known = timings(balanced_order(BLOCKS, 0)[:48], (4, 10))
    model = BlockModel(disturbed(known, 3), length=32)
    assert np.median(errors(model)) < 0.01
    assert np.quantile(errors(model), 0.9) < 0.03
    assert (model.block_ms(BLOCKS) > 0).all()


def test_a_machine_on_which_most_blocks_seem_to_take_no_time_is_too_busy() -> None:
    known = timings(balanced_order(BLOCKS, 0)[:8], (4, 10))
    with pytest.raises(LatencyError, match=r"of 8 blocks, such as Block.*machine is too busy"):
        BlockModel(disturbed(known, 7), length=32)
