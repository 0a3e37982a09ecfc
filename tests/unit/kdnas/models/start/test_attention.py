from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kdnas.models.start.attending import attend
from kdnas.models.start.attention import FRESH, chosen_attention
from kdnas.models.start.heads import Heads
from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.states import Layout
from kdnas.models.start.weights import Attention

WIDTH, TEXT = 24, 10


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def rows() -> Tensor:
    return drawn(300, WIDTH, seed=20) * torch.linspace(0.5, 2.0, WIDTH) + drawn(WIDTH, seed=21)


def drawn_attention(seed: int = 0) -> Attention:
    return Attention(
        *(
            Affine(drawn(WIDTH, WIDTH, seed=seed + i) / WIDTH**0.5, drawn(WIDTH, seed=seed + i + 9))
            for i in range(4)
        )
    )


def identity(rows: Tensor) -> InputMap:
    return InputMap(torch.eye(rows.shape[1]), rows.mean(0))


def choice(rows: Tensor, teacher: Attention, heads: int) -> Heads:
    """A layer to choose heads from, all of which read alike."""
    read = torch.eye(WIDTH // heads).expand(heads, -1, -1)
    return Heads(teacher, identity(rows), read, 1.0)


def chosen(rows: Tensor, teacher: Attention, teacher_heads: int, heads: int) -> Attention:
    return chosen_attention(
        Inputs(rows),
        [choice(rows, teacher, teacher_heads)],
        torch.eye(WIDTH),
        heads,
        torch.Generator().manual_seed(0),
    )


def weights(attention: Attention, rows: Tensor, heads: int) -> Tensor:
    """What each query pays to each key of one sequence: (A, T, T)."""
    queries, keys = (
        torch.unflatten(product(rows), 1, (heads, -1)).transpose(0, 1)
        for product in (attention.query, attention.key)
    )
    paid: Tensor = (queries @ keys.mT / queries.shape[-1] ** 0.5).softmax(-1)
    return paid


def written(attention: Attention, rows: Tensor, heads: int) -> Tensor:
    return attention.output(attend(rows, attention, heads, Layout([len(rows)])))


@pytest.mark.parametrize("heads", [1, 3, 4])
def test_heads_of_equal_size_do_as_the_teachers(rows: Tensor, heads: int) -> None:
    teacher = drawn_attention()
    student = chosen(rows, teacher, heads, heads)
    text = rows[:TEXT]
    paid = weights(teacher, text, heads)
    torch.testing.assert_close(weights(student, text, heads), paid, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        written(student, text, heads), written(teacher, text, heads), rtol=1e-3, atol=2e-3
    )
    assert not student.key.bias.any()  # it would shift all scores of a query alike
    assert not student.value.bias.any()


def test_chosen_heads_of_several_layers_do_as_their_teachers(rows: Tensor) -> None:
    loud = (torch.arange(WIDTH) < 6).float()[:, None] * 9 + 1  # of four heads the first
    layers = [drawn_attention(seed) for seed in (0, 50)]
    layers = [
        Attention(a.query, a.key, a.value, Affine(a.output.weight * loud, a.output.bias * 0))
        for a in layers
    ]
    student = chosen_attention(
        Inputs(rows),
        [choice(rows, layer, 4) for layer in layers],
        torch.eye(WIDTH),
        2,
        torch.Generator().manual_seed(0),
    )
    text = rows[:TEXT]
    for own, layer in enumerate(layers):
        paid = weights(student, text, 2)[own]
        torch.testing.assert_close(paid, weights(layer, text, 4)[0], rtol=1e-3, atol=1e-3)
    alone = [Attention(a.query, a.key, a.value, a.output) for a in layers]
    for layer in alone:
        layer.output.weight[6:] = 0.0
    wanted = sum(written(layer, text, 4) for layer in alone)
    torch.testing.assert_close(written(student, text, 2), wanted, rtol=1e-3, atol=2e-2)


def test_a_head_cut_in_several_writes_what_it_wrote(rows: Tensor) -> None:
    teacher = drawn_attention()
    student = chosen(rows, teacher, 2, 6)
    text = rows[:TEXT]
    paid = weights(student, text, 6)
    # All of one teacher head see alike, and together they write the whole.
    for first in (0, 3):
        for other in (1, 2):
            torch.testing.assert_close(paid[first], paid[first + other])
    values = torch.unflatten(student.value(text), 1, (6, -1)).transpose(0, 1)
    even = student.output(
        (weights(teacher, text, 2).repeat_interleave(3, 0) @ values).transpose(0, 1).flatten(1)
    )
    torch.testing.assert_close(even, written(teacher, text, 2), rtol=1e-3, atol=2e-3)


def test_a_constant_goes_into_the_outputs_bias(rows: Tensor) -> None:
    teacher = drawn_attention()
    student = chosen(rows, teacher, 4, 4)
    one = rows.mean(0, keepdim=True)
    torch.testing.assert_close(
        written(student, one, 4), written(teacher, one, 4), rtol=1e-4, atol=1e-4
    )


def test_dimensions_that_are_left_over_are_silent_and_can_learn(rows: Tensor) -> None:
    whole = drawn_attention()
    used = (torch.arange(WIDTH) % 12 < 3).float()  # each head of 12 scores by 3 dimensions
    teacher = Attention(
        Affine(whole.query.weight * used, whole.query.bias * used),
        Affine(whole.key.weight * 0, whole.key.bias),
        Affine(whole.value.weight * 0, whole.value.bias),
        whole.output,
    )
    student = chosen(rows, teacher, 2, 2)
    assert not student.key.weight.any()
    assert not student.output.weight.any()
    for fresh in (student.query.weight, student.value.weight):
        assert (fresh.abs().sum(0) > 0).all()
        assert fresh.std() == pytest.approx(FRESH, rel=0.2)
    text = rows[:TEXT]
    torch.testing.assert_close(
        written(student, text, 2), written(teacher, text, 2), rtol=1e-3, atol=1e-3
    )


def test_sequences_do_not_see_each_other_nor_padding(rows: Tensor) -> None:
    attention, lengths = drawn_attention(), [1, 3, 3, 7, 8]
    found = attend(rows[:22], attention, 4, Layout(lengths, block=2))
    first = 0
    for length in lengths:
        alone = attend(rows[first : first + length], attention, 4, Layout([length]))
        torch.testing.assert_close(found[first : first + length], alone)
        first += length


def test_a_window_hides_what_is_further_away(rows: Tensor) -> None:
    attention = drawn_attention()
    text = rows[:9]
    found = attend(text, attention, 4, Layout([9]), window=2)
    for place in range(9):
        near = text[max(0, place - 2) : place + 3]
        alone = attend(near, attention, 4, Layout([len(near)]))
        torch.testing.assert_close(found[place], alone[min(place, 2)])
