from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from kdnas.models.start.feed_forward import Neurons, chosen_neurons
from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.walk import ACTIVATIONS
from kdnas.models.start.weights import FeedForward

WIDTH, NEURONS = 8, 12


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def rows() -> Tensor:
    return drawn(400, WIDTH, seed=30) + drawn(WIDTH, seed=31)


def drawn_block(gated: bool, seed: int = 0) -> FeedForward:
    inner = NEURONS * (2 if gated else 1)
    return FeedForward(
        Affine(drawn(WIDTH, inner, seed=seed) / WIDTH**0.5, drawn(inner, seed=seed + 1)),
        Affine(drawn(NEURONS, WIDTH, seed=seed + 2), drawn(WIDTH, seed=seed + 3)),
    )


def neurons_of(block: FeedForward, rows: Tensor, gated: bool, activation: str) -> Tensor:
    inner = block.inner(rows)
    if not gated:
        return ACTIVATIONS[activation](inner)
    active, gate = inner.chunk(2, 1)
    return ACTIVATIONS[activation](active) * gate


def written(block: FeedForward, rows: Tensor, gated: bool, activation: str) -> Tensor:
    return block.outer(neurons_of(block, rows, gated, activation))


def chosen(
    rows: Tensor,
    blocks: list[FeedForward],
    size: int,
    gated: bool = False,
    activations: tuple[str, str] = ("gelu", "gelu"),
) -> FeedForward:
    mapped = InputMap(torch.eye(WIDTH), rows.mean(0))
    layers = [
        Neurons(block, mapped, neurons_of(block, rows, gated, activations[0]).std(0))
        for block in blocks
    ]
    generator = torch.Generator().manual_seed(0)
    return chosen_neurons(
        Inputs(rows), layers, torch.eye(WIDTH), size, gated, generator, activations
    )


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "relu", "silu"])
def test_all_neurons_are_the_whole_block(rows: Tensor, gated: bool, activation: str) -> None:
    block = drawn_block(gated)
    found = chosen(rows, [block], NEURONS, gated, (activation, activation))
    torch.testing.assert_close(
        written(found, rows, gated, activation),
        written(block, rows, gated, activation),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("gated", [False, True])
def test_those_that_move_most_are_chosen(rows: Tensor, gated: bool) -> None:
    block = drawn_block(gated)
    effect = neurons_of(block, rows, gated, "gelu").std(0) * block.outer.weight.norm(dim=1)
    best = effect.argsort(descending=True)[:5].sort().values
    found = chosen(rows, [block], 5, gated)
    assert torch.equal(found.outer.weight, block.outer.weight[best])
    torch.testing.assert_close(
        neurons_of(found, rows, gated, "gelu"),
        neurons_of(block, rows, gated, "gelu")[:, best],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("gated", [False, True])
def test_two_layers_together_write_their_share_of_what_both_write(
    rows: Tensor, gated: bool
) -> None:
    blocks = [drawn_block(gated), drawn_block(gated, seed=10)]
    found = chosen(rows, blocks, 2 * NEURONS, gated)
    both = sum(written(block, rows, gated, "gelu") - block.outer.bias for block in blocks)
    # Of the constants only the last one's is kept: the norm behind the block sets the others.
    torch.testing.assert_close(
        written(found, rows, gated, "gelu") - blocks[-1].outer.bias,
        both / 2**0.5,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("gated", [False, True])
def test_neurons_beyond_the_teachers_write_nothing_and_can_learn(rows: Tensor, gated: bool) -> None:
    block = drawn_block(gated)
    found = chosen(rows, [block], NEURONS + 7, gated)
    assert found.inner.weight.shape == (WIDTH, (NEURONS + 7) * (2 if gated else 1))
    assert not found.outer.weight[NEURONS:].any()
    assert (neurons_of(found, rows, gated, "gelu")[:, NEURONS:].std(0) > 0).all()
    torch.testing.assert_close(
        written(found, rows, gated, "gelu"),
        written(block, rows, gated, "gelu"),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("gelu", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_silu_neurons_are_stretched_to_stand_for_gelu_ones(
    rows: Tensor, gated: bool, gelu: str
) -> None:
    block = drawn_block(gated)
    mapped = InputMap(torch.eye(WIDTH), rows.mean(0))
    layer = Neurons(block, mapped, neurons_of(block, rows, gated, "gelu").std(0))
    found = chosen_neurons(
        Inputs(rows), [layer], torch.eye(WIDTH), NEURONS, gated, torch.Generator(), (gelu, "silu")
    )
    wanted = written(block, rows, gated, "gelu")
    error = (written(found, rows, gated, "silu") - wanted).square().mean() / wanted.var()
    plain = (written(block, rows, gated, "silu") - wanted).square().mean() / wanted.var()
    assert error < 0.001
    assert error < plain / 10


def test_gelu_neurons_stand_for_silu_ones(rows: Tensor) -> None:
    block = drawn_block(False)
    found = chosen(rows, [block], NEURONS, activations=("silu", "gelu"))
    wanted = written(block, rows, False, "silu")
    assert (written(found, rows, False, "gelu") - wanted).square().mean() / wanted.var() < 0.001


def test_relu_neurons_are_taken_as_they_are(rows: Tensor) -> None:
    block = drawn_block(False)
    found = chosen(rows, [block], NEURONS, activations=("gelu", "relu"))
    torch.testing.assert_close(
        written(found, rows, False, "relu"),
        block.outer(F.relu(block.inner(rows))),
        rtol=1e-4,
        atol=1e-4,
    )
