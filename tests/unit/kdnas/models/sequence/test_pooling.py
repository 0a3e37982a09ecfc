from __future__ import annotations

import numpy as np
import torch

from kdnas.models.sequence.pooling import AttentionSum

LENGTHS = (6, 1, 4)
REAL = torch.arange(6) < torch.tensor(LENGTHS)[:, None]


def made() -> AttentionSum:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AttentionSum(5)


def states() -> torch.Tensor:
    return 3 * torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(1))


def test_it_is_the_formula() -> None:
    """In float64, of each text by itself."""
    pooling, given = made(), states()
    w = pooling.project.weight.detach().double().numpy()
    v = pooling.score.weight.detach().double().numpy()[0]
    found, weights = pooling(given, REAL).detach(), pooling.weights(given, REAL).detach()
    for row, length in enumerate(LENGTHS):
        h = given[row, :length].double().numpy()
        e = np.array([v @ np.tanh(w @ h_t) for h_t in h])
        a = np.exp(e) / np.exp(e).sum()
        np.testing.assert_allclose(found[row], (a[:, None] * h).sum(0), atol=1e-6)
        np.testing.assert_allclose(weights[row, :length], a, atol=1e-6)
        assert not weights[row, length:].any()


def test_padding_changes_nothing() -> None:
    pooling, given = made(), states()
    longer = torch.cat([torch.where(REAL[..., None], given, 1e4), torch.full((3, 4, 5), -1e4)], 1)
    real = torch.nn.functional.pad(REAL, (0, 4), value=False)
    torch.testing.assert_close(pooling(longer, real), pooling(given, REAL), atol=1e-6, rtol=0)


def test_a_text_of_padding_alone_gives_0_with_finite_gradients() -> None:
    pooling, given = made(), states().requires_grad_()
    none = torch.zeros_like(REAL)
    found = pooling(given, none)
    assert not found.any()
    found.sum().backward()
    assert given.grad is not None
    assert not given.grad.any()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in pooling.parameters())


def test_weights_are_float32_in_bfloat16() -> None:
    pooling = made().bfloat16()
    assert pooling.weights(states().bfloat16(), REAL).dtype == torch.float32
    assert pooling(states().bfloat16(), REAL).dtype == torch.bfloat16
