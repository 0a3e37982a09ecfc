"""Dropout by masks that cost little."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from kdnas.models.quick_dropout import LEVELS, quick_dropout


def dropped(
    p: float, seed: int = 0, count: int = 400_001, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Ones after dropout."""
    model = nn.Sequential(nn.Dropout(p))
    with quick_dropout(model, seed):
        return model(torch.ones(count, dtype=dtype))


@pytest.mark.parametrize("p", [0.1, 0.4, 0.9])
def test_as_many_drop_out_as_asked_and_expectations_stay(p: float) -> None:
    found = dropped(p)
    kept = found[found != 0]
    share = 1 - round(p * LEVELS) / LEVELS
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / share))
    assert abs(len(kept) / len(found) - share) < 4 * (p * (1 - p) / len(found)) ** 0.5


def test_neighbours_drop_out_independently() -> None:
    """Four masks come of one draw."""
    lost = (dropped(0.5)[:400_000] == 0).double().view(-1, 4)
    correlation = torch.corrcoef(lost.T) - torch.eye(4, dtype=torch.float64)
    assert correlation.abs().max() < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_go_through_what_is_kept(dtype: torch.dtype) -> None:
    model, states = nn.Dropout(0.3), torch.randn(7, 5, 3, dtype=dtype, requires_grad=True)
    with quick_dropout(model, 1):
        found = model(states)
    found.sum().backward()
    assert states.grad is not None
    assert found.shape == states.shape
    torch.testing.assert_close(states.grad * states, found)


def test_the_seed_decides_and_the_process_draws_on_undisturbed() -> None:
    before = torch.get_rng_state()
    one, same, other = dropped(0.1, 3), dropped(0.1, 3), dropped(0.1, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_nothing_and_everything_may_drop_out() -> None:
    assert torch.equal(dropped(0.0, count=9), torch.ones(9))
    assert torch.equal(dropped(1.0, count=9), torch.zeros(9))


def test_it_ends_with_the_block_and_is_still_in_eval_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    states = torch.randn(3, 4)
    with quick_dropout(model, 0):
        assert torch.equal(model(states), model[0](states))
    model.train()
    torch.manual_seed(0)
    found = model[1](states)
    torch.manual_seed(0)
    assert torch.equal(found, nn.functional.dropout(states, 0.5))
