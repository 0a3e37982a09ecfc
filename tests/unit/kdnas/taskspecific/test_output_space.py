"""Outputs compared: classes and numbers; the losses are tried with the methods that use them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kdnas.taskspecific.output_space import Classes, Numbers, OutputSpace

CLASSES, NUMBERS = Classes(3), Numbers(2.0)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_certain_answers_have_finite_losses_and_gradients() -> None:
    """A probability of 0 adds nothing to a divergence."""
    target = torch.tensor([[1.0, 0.0, 0.0]])
    logits = torch.tensor([[200.0, -200.0, 0.0]], requires_grad=True)
    loss = CLASSES.divergence(target, logits).sum()
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_a_class_that_no_layer_gives_a_chance_has_a_finite_gradient() -> None:
    """A mixture of certain answers learns by its weights."""
    weights = torch.tensor([[0.3, 0.7]], requires_grad=True)
    answers = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    target = (weights[:, None] @ answers)[:, 0]
    CLASSES.divergence(target, torch.zeros(1, 3)).sum().backward()
    assert weights.grad is not None
    assert torch.isfinite(weights.grad).all()


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_warmer_comparison_is_scaled_back(temperature: float) -> None:
    """T² keeps gradients of small logits about as large as they were (Hinton et al. 2015)."""
    teacher, student = 0.1 * draw(5, 3), 0.1 * draw(5, 3, seed=1)
    found = CLASSES.output_loss(teacher, student, temperature)
    wanted = CLASSES.output_loss(teacher, student, 1.0)
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=1e-5)


def test_numbers_know_no_temperature() -> None:
    teacher, student = draw(5, 1), draw(5, 1, seed=1)
    assert torch.equal(
        NUMBERS.output_loss(teacher, student, 4.0), (teacher - student).square()[:, 0]
    )


def test_labels_are_compared_with_every_layer() -> None:
    labels = torch.tensor([2, 0])
    logits = draw(2, 4, 3)
    wanted = -logits.log_softmax(-1)[torch.arange(2)[:, None], torch.arange(4), labels[:, None]]
    torch.testing.assert_close(CLASSES.label_loss(logits, labels[:, None]), wanted)
    numbers = draw(2, 4, 1)
    found = NUMBERS.label_loss(numbers, torch.tensor([1.0, -1.0])[:, None])
    wanted = (numbers[..., 0] - torch.tensor([[1.0], [-1.0]])).square()
    torch.testing.assert_close(found, wanted)


def test_a_difference_of_one_deviation_weighs_e_times_less() -> None:
    theirs, own = torch.tensor([[[3.0], [5.0]]]), torch.tensor([[[3.0]]])
    weights = NUMBERS.similarity(theirs, own).softmax(-1)
    assert weights.shape == (1, 1, 2)
    assert float(weights[0, 0, 0] / weights[0, 0, 1]) == pytest.approx(np.e)


def test_what_is_annealed_is_near_to_one_answer_for_all() -> None:
    logits = draw(5, 3)
    assert torch.equal(CLASSES.annealed(logits, 1.0), logits)
    assert torch.equal(CLASSES.annealed(logits, 0.25), logits / 4)
    numbers = Numbers(2.0, centre=3.0)
    said = torch.tensor([[3.0], [5.0], [-1.0]])
    assert torch.equal(numbers.annealed(said, 1.0), said)
    assert numbers.annealed(said, 0.25).flatten().tolist() == [3.0, 3.5, 2.0]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_weights_do_not_depend_on_the_unit(unit: float) -> None:
    theirs, own = draw(2, 4, 1), draw(2, 3, 1, seed=1)
    found = Numbers(2.0 * unit).similarity(theirs * unit, own * unit)
    torch.testing.assert_close(found, NUMBERS.similarity(theirs, own))


def test_distances_of_answers_from_labels() -> None:
    answers = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]])
    found = CLASSES.label_distance(answers, torch.tensor([0]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 2**0.5, 0.5**0.5]]))
    found = NUMBERS.label_distance(torch.tensor([[[1.0], [4.0]]]), torch.tensor([2.0]))
    assert found.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("space", [CLASSES, NUMBERS])
def test_rounded_outputs_are_compared_in_float32(space: OutputSpace) -> None:
    logits = draw(4, space.size).bfloat16()
    labels = torch.tensor([0, 1, 2, 1]) if space is CLASSES else draw(4, seed=2)
    answers = space.answers(logits)
    for values in (
        answers,
        space.divergence(answers, logits),
        space.output_loss(logits, logits, 2.0),
        space.label_loss(logits, labels),
    ):
        assert values.dtype == torch.float32


@pytest.mark.parametrize("deviation", [0.0, -1.0, float("nan")])
def test_numbers_that_are_all_the_same_have_no_space(deviation: float) -> None:
    with pytest.raises(ValueError, match="all the same number"):
        Numbers(deviation)
