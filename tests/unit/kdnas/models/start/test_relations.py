from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kdnas.models.start.attending import attend
from kdnas.models.start.attention import FRESH
from kdnas.models.start.linear import Affine, InputMap, Inputs
from kdnas.models.start.relations import related_attention
from kdnas.models.start.states import Layout
from kdnas.models.start.weights import Attention

WIDTH, HEADS, TEXT = 24, 4, 10
PARTS = ("query", "key", "value")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def rows() -> Tensor:
    """What comes into the teacher's attention: a few directions hold most of it."""
    return drawn(300, WIDTH, seed=20) * torch.linspace(0.1, 2.0, WIDTH) + drawn(WIDTH, seed=21)


@pytest.fixture
def teacher() -> Attention:
    return Attention(
        *(
            Affine(drawn(WIDTH, WIDTH, seed=i) / WIDTH**0.5, drawn(WIDTH, seed=i + 9))
            for i in range(4)
        )
    )


def related(rows: Tensor, theirs: Tensor, teacher: Attention, basis: Tensor) -> Attention:
    inputs = Inputs(rows)
    return related_attention(
        inputs, inputs.map_to(theirs), teacher, HEADS, basis, torch.Generator().manual_seed(0)
    )


def relations(projection: Affine, rows: Tensor) -> Tensor:
    """A·Aᵀ / √d_r of each relation head, between the tokens of one sequence: (A_r, T, T)."""
    values = torch.unflatten(projection(rows), 1, (HEADS, -1)).transpose(0, 1)
    found: Tensor = values @ values.mT / values.shape[2] ** 0.5
    return found


def test_of_the_teachers_width_relations_and_what_is_written_are_the_teachers(
    rows: Tensor, teacher: Attention
) -> None:
    own = related(rows, rows, teacher, torch.eye(WIDTH))
    for part in PARTS:
        mine, yours = (relations(getattr(a, part), rows[:TEXT]) for a in (own, teacher))
        torch.testing.assert_close(mine, yours, atol=5e-3, rtol=1e-2)
    layout = Layout([TEXT] * (len(rows) // TEXT))
    written, wanted = (a.output(attend(rows, a, HEADS, layout)) for a in (own, teacher))
    torch.testing.assert_close(written, wanted, atol=5e-3, rtol=1e-2)


@pytest.mark.parametrize("part", PARTS)
def test_a_narrow_layer_has_the_directions_in_which_a_heads_values_are_largest(
    rows: Tensor, teacher: Attention, part: str
) -> None:
    width = 16
    basis = torch.linalg.qr(drawn(WIDTH, width, seed=30)).Q
    own = related(rows @ basis, rows, teacher, basis)
    wanted = relations(getattr(teacher, part), rows[:TEXT])
    found = relations(getattr(own, part), (rows @ basis)[:TEXT])
    first = WIDTH // HEADS
    any_directions = Affine(
        *(  # as many of each head's values as the student has, the first ones
            value.unflatten(-1, (HEADS, first))[..., : width // HEADS].flatten(-2)
            for value in getattr(teacher, part)
        )
    )
    assert (found - wanted).norm() < (relations(any_directions, rows[:TEXT]) - wanted).norm()


def test_what_a_layer_has_too_many_of_changes_nothing_and_can_learn(
    rows: Tensor, teacher: Attention
) -> None:
    wide = torch.cat([rows, drawn(len(rows), 8, seed=31)], 1)
    basis = torch.eye(WIDTH, WIDTH + 8)
    inputs = Inputs(wide)
    mapped = InputMap(torch.eye(WIDTH + 8, WIDTH), rows.mean(0))
    own = related_attention(inputs, mapped, teacher, HEADS, basis, torch.Generator().manual_seed(0))
    layout = Layout([TEXT] * (len(rows) // TEXT))
    written = own.output(attend(wide, own, HEADS, layout))
    wanted = teacher.output(attend(rows, teacher, HEADS, layout))
    torch.testing.assert_close(written[:, :WIDTH], wanted, atol=5e-3, rtol=1e-2)
    empty = own.key.weight.abs().sum(0) == 0
    assert int(empty.sum()) == 8
    assert own.query.weight[:, empty].std().item() == pytest.approx(FRESH, rel=0.2)
    assert (own.output.weight.abs().sum(1) == 0).sum() == 8
    assert (own.value.weight.abs().sum(0) > 0).all()
