from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

from kdnas.models.families import Rotary
from kdnas.models.start.attention import FRESH
from kdnas.models.start.heads import Heads
from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.rotary import chosen_rotary_attention, plane_sets, turned
from kdnas.models.start.weights import Attention

WIDTH, TOKENS = 24, 10


def frequencies(planes: int, base: float = 10000.0) -> Tensor:
    return base ** -(torch.arange(planes) / planes)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drawn_attention(width: int = WIDTH) -> Attention:
    q, k, v, o = (drawn(width, width, seed=i) / width**0.5 for i in range(4))
    return Attention(*(Affine(weight, torch.zeros(width)) for weight in (q, k, v, o)))


def scores(attention: Attention, rows: Tensor, heads: int, own: Tensor) -> Tensor:
    """Scores between all tokens of one sequence: (A, T, T)."""
    queries, keys = (
        turned(
            torch.unflatten(product(rows), 1, (heads, -1)).transpose(0, 1)[None], Rotary(own, 1.0)
        )[0]
        for product in (attention.query, attention.key)
    )
    scored: Tensor = queries @ keys.mT / queries.shape[-1] ** 0.5
    return scored


def chosen(
    rows: Tensor, teacher: Attention, teacher_heads: int, heads: int, own: Tensor, theirs: Tensor
) -> Attention:
    width = rows.shape[1]
    size = width // teacher_heads
    choice = Heads(
        teacher,
        InputMap(torch.eye(width), torch.zeros(width)),
        torch.eye(size).expand(teacher_heads, -1, -1),
        1.0,
    )
    return chosen_rotary_attention(
        Inputs(rows, biased=False),
        [choice],
        (Rotary(theirs, 1.0), Rotary(own, 1.0)),
        torch.eye(width),
        heads,
        torch.Generator().manual_seed(0),
    )


PLANES = st.tuples(st.integers(1, 40), st.sampled_from([100.0, 10000.0, 160000.0]))


@given(student=PLANES, teacher=PLANES)
def test_sets_of_planes_share_none(student: tuple[int, float], teacher: tuple[int, float]) -> None:
    own, theirs = frequencies(*student), frequencies(*teacher)
    found = plane_sets(own, theirs)
    mine = [i for first, _ in found for i in first]
    yours = [j for _, second in found for j in second]
    assert len(mine) == len(set(mine))
    assert len(yours) == len(set(yours))
    # Each plane of the one that has fewer is used once; of the other's none is left out.
    if len(own) < len(theirs):
        assert set(mine) == set(range(len(own)))
        assert set(yours) == set(range(len(theirs)))
    else:
        assert set(mine) == set(range(len(own)))
        assert set(yours) <= set(range(len(theirs)))
    assert all(len(first) == 1 or len(second) == 1 for first, second in found)


@given(planes=PLANES)
def test_equal_planes_stand_for_themselves(planes: tuple[int, float]) -> None:
    own = frequencies(*planes)
    assert plane_sets(own, own) == [([i], [i]) for i in range(len(own))]


@pytest.mark.parametrize("scaling", [1.0, 1.25])
def test_planes_turn_as_those_of_transformers_do(scaling: float) -> None:
    own = frequencies(6)
    queries, keys = drawn(2, 3, TOKENS, 12), drawn(2, 3, TOKENS, 12, seed=1)
    angles = torch.arange(TOKENS)[:, None] * torch.cat([own, own])
    cos, sin = (scaling * values[None] for values in (angles.cos(), angles.sin()))
    wanted = apply_rotary_pos_emb(queries, keys, cos, sin)
    torch.testing.assert_close(turned(queries, Rotary(own, scaling)), wanted[0])
    torch.testing.assert_close(turned(keys, Rotary(own, scaling)), wanted[1])


def test_a_turn_keeps_lengths_and_tells_distances() -> None:
    own, values = frequencies(4), drawn(1, 1, 1, 8).expand(1, 1, TOKENS, 8)
    around = turned(values, Rotary(own, 1.0))[0, 0]
    torch.testing.assert_close(around.norm(dim=1), values[0, 0].norm(dim=1))
    products = around @ around.T
    torch.testing.assert_close(products[0, :-1], products[1, 1:])


def test_heads_of_equal_size_score_and_write_as_the_teachers() -> None:
    rows, teacher, own = drawn(200, WIDTH, seed=9), drawn_attention(), frequencies(3)
    student = chosen(rows, teacher, 4, 4, own, own)
    text = rows[:TOKENS]
    torch.testing.assert_close(
        scores(student, text, 4, own), scores(teacher, text, 4, own), rtol=1e-3, atol=1e-3
    )
    ours, theirs = (attention.output(attention.value(text)) for attention in (student, teacher))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_a_wider_head_scores_as_the_head_it_has() -> None:
    rows, own = drawn(200, WIDTH, seed=9), frequencies(3)
    one = drawn_attention()
    query, key = (
        Affine(product.weight[:, :6].repeat(1, 4), product.bias) for product in (one.query, one.key)
    )
    teacher = Attention(query, key, one.value, one.output)
    # Heads twice as wide: of every two planes one is at the teacher's frequency.
    wide = torch.stack([own, own], 1).flatten()
    student = chosen(rows, teacher, 4, 2, wide, own)
    text = rows[:TOKENS]
    wanted = scores(teacher, text, 4, own)
    found = scores(student, text, 2, wide)
    torch.testing.assert_close(found, wanted[:2], rtol=1e-3, atol=1e-3)


def test_planes_that_are_left_over_are_silent_and_can_learn() -> None:
    rows, own, whole = drawn(200, WIDTH, seed=9), frequencies(3), drawn_attention()
    used = (torch.arange(WIDTH) % 3 != 1).float()  # of each head's three planes the outer two
    key = Affine(whole.key.weight * used, whole.key.bias)
    student = chosen(rows, Attention(whole.query, key, whole.value, whole.output), 4, 4, own, own)
    silent = used == 0
    assert torch.equal(student.key.weight.abs().sum(0) == 0, silent)
    fresh = student.query.weight[:, silent]
    assert (fresh.abs().sum(0) > 0).all()
    assert FRESH / 2 < fresh.std() < FRESH * 2
