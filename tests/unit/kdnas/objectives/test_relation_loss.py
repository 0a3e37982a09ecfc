from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from kdnas.objectives.relation_loss import Pair, relation_loss, uniform_relation_loss
from kdnas.testing.relation_reference import eager_relation_loss, sequence_losses

LENGTHS = (7, 3, 0, 1, 6)


def mask(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(1, *lengths))[None] < torch.tensor(lengths)[:, None]


def pair(
    lengths: Sequence[int],
    width: int,
    seed: int,
    dtype: torch.dtype = torch.float64,
    same: bool = False,
) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(1, *lengths), width)
    one, other = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    one, other = one.to(dtype), other.to(dtype)
    return (one, one) if same else (one, other)


def learning(values: Pair) -> Pair:
    for tensor in values:
        tensor.requires_grad_()
    return values


def value_and_gradients(loss: Tensor, student: Pair) -> tuple[float, list[Tensor]]:
    found = torch.autograd.grad(loss, [x for x in student if x.requires_grad])
    return float(loss.detach()), list(found)


def assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest entry."""
    size = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= tolerance * size + 1e-14


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=2, max_size=5),
    heads=st.integers(1, 4),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    same=st.booleans(),
    chunk=st.none() | st.integers(1, 400),
    seed=st.integers(0, 1000),
)
def test_values_and_gradients_equal_the_formula(
    lengths: list[int],
    heads: int,
    sizes: tuple[int, int],
    same: bool,
    chunk: int | None,
    seed: int,
) -> None:
    student = learning(pair(lengths, heads * sizes[0], seed, same=same))
    teacher, real = pair(lengths, heads * sizes[1], seed + 1), mask(lengths)
    losses, baselines = sequence_losses(student, teacher, lengths, heads)
    loss = relation_loss(student, teacher, real, heads, chunk)
    value, gradients = value_and_gradients(loss, student)
    assert value == pytest.approx(losses.sum(), rel=1e-9, abs=1e-12)
    uniform = uniform_relation_loss(teacher, real, heads, chunk)
    assert float(uniform) == pytest.approx(baselines.sum(), rel=1e-9, abs=1e-12)
    expected = value_and_gradients(eager_relation_loss(student, teacher, real, heads), student)[1]
    for found, right in zip(gradients, expected, strict=True):
        assert_near(found, right, 1e-9)


@pytest.mark.parametrize("same", [False, True])
def test_gradients_are_those_of_small_differences(same: bool) -> None:
    lengths = (4, 0, 2)
    teacher, real = pair(lengths, 4, 2), mask(lengths)
    student = learning(pair(lengths, 6, 1))

    def loss(one: Tensor, other: Tensor) -> Tensor:
        return 3 * relation_loss((one, one if same else other), teacher, real, 2, 40)

    assert torch.autograd.gradcheck(loss, student)


@pytest.mark.parametrize("chunk", [100_000, 700_000, None])
def test_float32_equals_float64_within_1e_5(chunk: int | None) -> None:
    """48 relation heads, 130 tokens, chunks that divide neither."""
    lengths = (130, 65, 101)
    real = mask(lengths)
    student, teacher = pair(lengths, 96, 1), pair(lengths, 144, 2)
    exact, right = value_and_gradients(
        eager_relation_loss(learning(student), teacher, real, 48), student
    )
    single = learning(tuple(x.detach().float() for x in student))
    loss = relation_loss(single, tuple(x.float() for x in teacher), real, 48, chunk)
    value, gradients = value_and_gradients(loss, single)
    assert loss.dtype == torch.float32
    assert value == pytest.approx(exact, rel=1e-5)
    for found, expected in zip(gradients, right, strict=True):
        assert_near(found.double(), expected, 1e-5)


def test_equal_relations_score_exactly_zero() -> None:
    """KL(p, p) = 0, and so is its gradient: a perfect student stays where it is."""
    student = learning(pair(LENGTHS, 6, 1, torch.float32))
    teacher = student[0].detach().clone(), student[1].detach().clone()
    value, gradients = value_and_gradients(
        relation_loss(student, teacher, mask(LENGTHS), 3), student
    )
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)


def test_a_student_of_zeros_has_uniform_relations() -> None:
    teacher, real = pair(LENGTHS, 6, 2), mask(LENGTHS)
    nothing = torch.zeros(*real.shape, 4, dtype=torch.float64)
    loss = relation_loss((nothing, nothing), teacher, real, 2)
    uniform = uniform_relation_loss(teacher, real, 2)
    assert float(loss) > 0.1
    assert float(loss) == pytest.approx(float(uniform), rel=1e-12)


@pytest.mark.parametrize("rubbish", [1e4, float("inf"), float("nan")])
def test_what_is_in_the_padding_changes_no_bit(rubbish: float) -> None:
    real, results = mask(LENGTHS), []
    for padding in (0.0, rubbish):
        student, teacher = (
            tuple(x.masked_fill(~real[..., None], padding) for x in pair(LENGTHS, 6, seed))
            for seed in (1, 2)
        )
        loss = relation_loss(learning(student), teacher, real, 2)
        results.append((loss.detach(), *torch.autograd.grad(loss, student)))
        assert not results[-1][1][~real].any()
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_sequences_without_a_real_token_give_zero() -> None:
    real = mask((4, 4)) & False
    student, teacher = learning(pair((4, 4), 6, 1)), pair((4, 4), 6, 2)
    value, gradients = value_and_gradients(relation_loss(student, teacher, real, 2), student)
    assert value == 0
    assert not any(gradient.any() for gradient in gradients)
    assert float(uniform_relation_loss(teacher, real, 2)) == 0


def test_the_teacher_gets_no_gradient_and_each_side_of_the_student_its_own() -> None:
    real = mask(LENGTHS)
    teacher = learning(pair(LENGTHS, 4, 2))
    both = learning(pair(LENGTHS, 6, 1))
    expected = torch.autograd.grad(relation_loss(both, teacher, real, 2), both)
    for side in (0, 1):
        student = pair(LENGTHS, 6, 1)
        student[side].requires_grad_()
        relation_loss(student, teacher, real, 2).backward()
        assert student[side].grad is not None
        assert torch.equal(student[side].grad, expected[side])
        assert student[1 - side].grad is None
    assert all(x.grad is None for x in teacher)


def test_nothing_larger_than_the_student_is_kept() -> None:
    """Relations would be 8 heads × 40 × 40 a sequence; kept are two gradients of 40 × 16."""
    lengths = (40, 40, 40)
    student, teacher = learning(pair(lengths, 16, 1)), pair(lengths, 16, 2)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss = relation_loss(student, teacher, mask(lengths), 8)
        assert kept == [3 * 40 * 16] * 2
        kept.clear()
        with torch.no_grad():
            assert not relation_loss(student, teacher, mask(lengths), 8).requires_grad
        assert not kept
    loss.backward()


def test_autocast_rounds_nothing_and_bfloat16_gets_bfloat16_back() -> None:
    real = mask(LENGTHS)
    student = learning(pair(LENGTHS, 6, 1, torch.bfloat16))
    teacher = pair(LENGTHS, 6, 2, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        loss = relation_loss(student, teacher, real, 2)
        uniform = uniform_relation_loss(teacher, real, 2)
    value, gradients = value_and_gradients(loss, student)
    wide = learning(tuple(x.detach().float() for x in student))
    wide_teacher: Pair = tuple(x.float() for x in teacher)
    exact, right = value_and_gradients(relation_loss(wide, wide_teacher, real, 2), wide)
    assert loss.dtype == uniform.dtype == torch.float32
    assert value == exact
    assert torch.equal(uniform, uniform_relation_loss(wide_teacher, real, 2))
    for found, expected in zip(gradients, right, strict=True):
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, expected.bfloat16())


def test_heads_that_do_not_divide_a_width_are_refused() -> None:
    with pytest.raises(ValueError, match="4 relation heads do not divide the width 6"):
        relation_loss(pair(LENGTHS, 8, 1), pair(LENGTHS, 6, 2), mask(LENGTHS), 4)
