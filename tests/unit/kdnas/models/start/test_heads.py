from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from kdnas.models.start.heads import Heads, chosen_heads
from kdnas.models.start.linear import Affine, InputMap
from kdnas.models.start.weights import Attention

WIDTH, HEADS, TEXT = 12, 3, 200
SIZE = WIDTH // HEADS


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_layer(seed: int, loudness: Tensor, stream: float = 1.0) -> Heads:
    """Heads that write as loud as they are told to."""
    rows = drawn(TEXT, HEADS, SIZE, seed=seed)
    centred = rows - rows.mean(0)
    read = torch.einsum("nai,naj->aij", centred, centred) / TEXT
    product = Affine(drawn(WIDTH, WIDTH, seed=seed + 1), torch.zeros(WIDTH))
    loud = product.weight * loudness.repeat_interleave(SIZE)[:, None]
    output = Affine(loud, product.bias)
    return Heads(
        Attention(product, product, product, output),
        InputMap(torch.eye(WIDTH), torch.zeros(WIDTH)),
        read,
        stream,
    )


def test_an_effect_is_the_variance_of_what_a_head_writes() -> None:
    layer = a_layer(0, torch.tensor([1.0, 0.1, 2.0]), stream=4.0)
    basis = drawn(WIDTH, 5, seed=9)
    rows = drawn(TEXT, HEADS, SIZE, seed=0)
    for head, effect in enumerate(layer.effects(basis)):
        written = rows[:, head] @ layer.block.output.weight[layer.columns(head)] @ basis
        wanted = written.var(0, correction=0).sum() / 4.0
        torch.testing.assert_close(effect, wanted, rtol=1e-4, atol=1e-6)


def test_the_strongest_heads_are_chosen_in_the_teachers_order() -> None:
    layers = [
        a_layer(0, torch.tensor([10.0, 0.1, 0.2])),
        a_layer(5, torch.tensor([0.3, 9.0, 8.0])),
    ]
    found = chosen_heads(layers, torch.eye(WIDTH), 3)
    assert [(c.layer, c.head, c.part) for c in found] == [(0, 0, 0), (1, 1, 0), (1, 2, 0)]


def test_heads_count_by_their_share_of_the_stream() -> None:
    equal = torch.ones(HEADS)
    layers = [a_layer(0, equal, stream=100.0), a_layer(0, equal, stream=1.0)]
    assert {c.layer for c in chosen_heads(layers, torch.eye(WIDTH), HEADS)} == {1}


@given(layers=st.integers(1, 4), count=st.integers(1, 40))
def test_no_head_is_cut_much_finer_than_another(layers: int, count: int) -> None:
    choice = [a_layer(n, torch.ones(HEADS)) for n in range(layers)]
    found = chosen_heads(choice, torch.eye(WIDTH), count)
    assert len(found) == count
    assert found == sorted(found)
    parts = Counter((c.layer, c.head) for c in found)
    wanted, extra = divmod(count, layers * HEADS)
    assert sorted(parts.values()) == sorted(
        [wanted] * (layers * HEADS - extra) * bool(wanted) + [wanted + 1] * extra
    )
    for place, times in parts.items():
        assert [c.part for c in found if (c.layer, c.head) == place] == list(range(times))
