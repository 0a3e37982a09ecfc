from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kdnas.errors import TrainingError
from kdnas.models.start.linear import (
    SLIGHT,
    Affine,
    Inputs,
    by_channel,
    least_squares,
    low_rank,
    nearest_orthogonal,
)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def correlated(tokens: int, width: int, seed: int = 0) -> Tensor:
    """Rows with a mean, whose channels have much in common and differ in size."""
    mixed = drawn(tokens, width, seed=seed) @ drawn(width, width, seed=seed + 1)
    return mixed * torch.linspace(0.1, 3.0, width) + drawn(width, seed=seed + 2)


def test_what_is_not_finite_is_refused() -> None:
    rows = correlated(20, 4)
    rows[3, 1] = torch.inf
    with pytest.raises(TrainingError, match="not finite; check the weights of the teacher"):
        Inputs(rows).map_to(correlated(20, 3))
    with pytest.raises(TrainingError, match="not finite"):
        least_squares(1e30 * correlated(20, 4), correlated(20, 3))


def test_an_affine_map_multiplies_and_adds() -> None:
    rows, weight, bias = drawn(5, 3), drawn(3, 4, seed=1), drawn(4, seed=2)
    torch.testing.assert_close(Affine(weight, bias)(rows), rows @ weight + bias)


@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    rank=st.integers(1, 12),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float64, torch.complex128]),
)
def test_low_rank_is_the_truncated_svd_of_the_product(
    sizes: tuple[int, int, int], rank: int, seed: int, dtype: torch.dtype
) -> None:
    p, q, m = sizes
    left, right = drawn(p, m, seed=seed, dtype=dtype), drawn(q, m, seed=seed + 1, dtype=dtype)
    u, values, v = torch.linalg.svd(left @ right.mH, full_matrices=False)
    a, b = low_rank(left, right, rank)
    assert (a.shape, b.shape) == ((p, rank), (q, rank))
    best = (u[:, :rank] * values[:rank]) @ v[:rank]
    torch.testing.assert_close(a @ b.mH, best, rtol=1e-9, atol=1e-9)
    # Both factors have an equal part in each singular value.
    torch.testing.assert_close(a.abs().square().sum(0), b.abs().square().sum(0))


def test_low_rank_weighted_by_the_inputs_loses_least_where_the_inputs_are() -> None:
    rows = correlated(400, 8)
    inputs = Inputs(rows)
    left, right = drawn(8, 6, seed=3).double(), drawn(8, 6, seed=4).double()
    a, b = low_rank(inputs.root.T @ left, inputs.root.T @ right, 3)
    query, key = inputs.unweighted(a), inputs.unweighted(b)
    centred = (rows - inputs.mean).double()
    exact = centred @ left @ right.T @ centred.T
    error = (centred @ query @ key.T @ centred.T - exact).square().mean()
    # The same of the centred rows themselves, by a direct decomposition.
    values = torch.linalg.svdvals(exact)
    torch.testing.assert_close(
        error, values[3:].square().sum() / exact.numel(), rtol=1e-3, atol=0.0
    )
    plain = low_rank(left, right, 3)
    other = (centred @ plain[0] @ plain[1].T @ centred.T - exact).square().mean()
    assert error < other


def test_columns_beyond_the_rank_are_zero() -> None:
    a, b = low_rank(drawn(6, 2).double(), drawn(5, 2, seed=1).double(), 4)
    assert not a[:, 2:].any()
    assert not b[:, 2:].any()


def test_low_rank_of_nothing_is_nothing() -> None:
    a, b = low_rank(torch.zeros(4, 3).double(), torch.zeros(5, 3).double(), 2)
    assert not (a @ b.T).any()
    assert a.isfinite().all()
    assert b.isfinite().all()


def test_a_map_solves_the_normal_equations_with_a_constant() -> None:
    rows, targets = correlated(300, 7), correlated(300, 4, seed=9)
    found = Inputs(rows).map_to(targets)
    own, there = rows.double(), targets.double()
    centred = own - own.mean(0)
    covariance = centred.T @ centred / len(own)
    covariance += SLIGHT * covariance.diagonal().mean() * torch.eye(7)
    slope = torch.linalg.solve(covariance, centred.T @ (there - there.mean(0)) / len(own))
    torch.testing.assert_close(found.slope.double(), slope, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.there.double(), there.mean(0), rtol=1e-5, atol=1e-5)


def test_a_map_without_constants_goes_through_the_origin() -> None:
    rows, targets = correlated(300, 7), correlated(300, 4, seed=9)
    inputs = Inputs(rows, biased=False)
    found = inputs.map_to(targets)
    assert not inputs.mean.any()
    assert not found.there.any()
    gram = rows.double().T @ rows.double() / len(rows)
    gram += SLIGHT * gram.diagonal().mean() * torch.eye(7)
    slope = torch.linalg.solve(gram, rows.double().T @ targets.double() / len(rows))
    torch.testing.assert_close(found.slope.double(), slope, rtol=1e-3, atol=1e-4)


def test_a_map_that_exists_is_found() -> None:
    rows, weight, bias = correlated(300, 6), drawn(6, 9, seed=5), drawn(9, seed=6)
    found = Inputs(rows).map_to(rows @ weight + bias)
    mapped = (rows - rows.mean(0)) @ found.slope + found.there
    torch.testing.assert_close(mapped, rows @ weight + bias, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize(
    "rows",
    [
        torch.zeros(20, 5),
        torch.ones(20, 5),
        drawn(20, 1).expand(20, 5),
        drawn(3, 5),
        drawn(1, 5),
        torch.cat([drawn(20, 4), torch.zeros(20, 1)], 1) * 1e4,
        drawn(20, 2) @ drawn(2, 5, seed=1) * 1e-12,
    ],
    ids=["zeros", "constant", "one direction", "few", "one", "empty channel", "minute"],
)
@pytest.mark.parametrize("biased", [True, False])
def test_singular_inputs_give_finite_maps(rows: Tensor, biased: bool) -> None:
    inputs, targets = Inputs(rows, biased), drawn(len(rows), 4, seed=2)
    found = inputs.map_to(targets)
    assert found.slope.isfinite().all()
    assert inputs.unweighted(inputs.root.T @ drawn(5, 5).double()).isfinite().all()
    assert least_squares(rows, targets).isfinite().all()
    assert all(part.isfinite().all() for part in by_channel(rows[:, :4], targets, biased))
    assert nearest_orthogonal(rows, targets).isfinite().all()


@given(seed=st.integers(0, 99), biased=st.booleans())
def test_scales_of_channels_are_those_of_a_regression(seed: int, biased: bool) -> None:
    sources, targets = correlated(50, 4, seed), correlated(50, 4, seed + 50)
    scale, shift = by_channel(sources, targets, biased)
    for channel in range(4):
        columns = [sources[:, channel].double()]
        columns += [torch.ones(50, dtype=torch.float64)] if biased else []
        solved = torch.linalg.lstsq(torch.stack(columns, 1), targets[:, channel].double())[0]
        wanted = [*solved.tolist(), 0.0][:2]
        assert [float(scale[channel]), float(shift[channel])] == pytest.approx(
            wanted, rel=1e-3, abs=1e-3
        )


def test_a_silent_channel_only_gets_its_shift() -> None:
    targets = drawn(30, 2)
    scale, shift = by_channel(torch.ones(30, 2), targets)
    assert not scale.any()
    torch.testing.assert_close(shift, targets.mean(0))


def test_least_squares_solves_the_normal_equations() -> None:
    rows, targets = correlated(200, 6), correlated(200, 3, seed=5)
    gram = rows.double().T @ rows.double()
    lifted = gram + 1e-6 * gram.diagonal().mean() * torch.eye(6)
    wanted = torch.linalg.solve(lifted, rows.double().T @ targets.double())
    torch.testing.assert_close(least_squares(rows, targets).double(), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("narrow", "wide"), [(4, 4), (3, 5), (5, 3)])
def test_the_nearest_orthogonal_map_is_orthogonal_and_nearest(narrow: int, wide: int) -> None:
    rows, targets = drawn(100, narrow), drawn(100, wide, seed=1)
    found = nearest_orthogonal(rows, targets)
    gram = found @ found.T if narrow <= wide else found.T @ found
    torch.testing.assert_close(gram, torch.eye(min(narrow, wide)), rtol=0, atol=1e-5)

    def gain(matrix: Tensor) -> float:
        return float((rows.T @ targets * matrix).sum())

    for seed in range(20):
        other = torch.linalg.qr(drawn(max(narrow, wide), min(narrow, wide), seed=seed))[0]
        assert gain(found) > gain(other if narrow >= wide else other.T)


def test_a_rotation_is_found_again() -> None:
    rows, turn = drawn(100, 4), torch.linalg.qr(drawn(4, 4, seed=3))[0]
    torch.testing.assert_close(nearest_orthogonal(rows, rows @ turn), turn, rtol=0, atol=1e-5)
