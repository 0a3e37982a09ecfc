from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kdnas.models.start.basis import principal_components, student_basis


@pytest.fixture
def covariances() -> Tensor:
    rows = torch.randn(3, 200, 8, generator=torch.Generator().manual_seed(0))
    rows = rows * torch.linspace(3.0, 0.1, 8)
    return rows.mT @ rows / 200


def test_components_are_the_directions_of_most_variance(covariances: Tensor) -> None:
    components = principal_components(covariances)
    torch.testing.assert_close(components.T @ components, torch.eye(8), rtol=0, atol=1e-5)
    variances = (components.T @ covariances.sum(0) @ components).diagonal()
    assert torch.equal(variances, variances.sort(descending=True).values)
    total = torch.linalg.eigvalsh(covariances.sum(0))
    torch.testing.assert_close(variances, total.flip(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_narrower_student_has_the_strongest_directions(covariances: Tensor, width: int) -> None:
    components = principal_components(covariances)
    basis = student_basis(components, width, seed=0)
    assert basis.shape == (8, width)
    torch.testing.assert_close(basis.T @ basis, torch.eye(width), rtol=0, atol=1e-5)
    strongest = components[:, :width]
    torch.testing.assert_close(basis @ basis.T, strongest @ strongest.T, rtol=0, atol=1e-5)


def test_the_turn_spreads_the_variance_over_channels(covariances: Tensor) -> None:
    components = principal_components(covariances)
    basis = student_basis(components, 7, seed=0)
    total = covariances.sum(0)
    straight, turned = ((m.T @ total @ m).diagonal() for m in (components[:, :7], basis))
    assert turned.max() / turned.min() < straight.max() / straight.min()


def test_a_student_as_wide_as_its_teacher_has_its_channels(covariances: Tensor) -> None:
    basis = student_basis(principal_components(covariances), 8, seed=0)
    assert torch.equal(basis, torch.eye(8))


@pytest.mark.parametrize("width", [9, 20])
def test_a_wider_student_holds_the_whole_space(covariances: Tensor, width: int) -> None:
    basis = student_basis(principal_components(covariances), width, seed=0)
    assert basis.shape == (8, width)
    torch.testing.assert_close(basis @ basis.T, torch.eye(8), rtol=0, atol=1e-5)


@pytest.mark.parametrize("width", [3, 20])
def test_a_seed_decides_the_turn(covariances: Tensor, width: int) -> None:
    components = principal_components(covariances)
    first, again, other = (student_basis(components, width, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
