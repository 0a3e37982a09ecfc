"""Pseudo-classifiers of the teacher, warmed up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kdnas.taskspecific.output_space import Classes, OutputSpace
from kdnas.taskspecific.pseudo_classifiers import PseudoClassifiers, moments, warm_up
from kdnas.testing.tiny_task_training import tiny_examples, tiny_space

TRAIN, NUMBERS = tiny_examples(120), tiny_examples(120, numbers=True)


def separable(labels: Tensor, layers: int = 3, width: int = 6) -> Tensor:
    """States that say more of the label the deeper they are; those of the first say nothing."""
    noise = torch.randn(len(labels), layers, width, generator=torch.Generator().manual_seed(0))
    signal = torch.zeros(layers, width)
    signal[1:, 0] = 2.0 * torch.arange(1, layers)
    return noise + (labels.float() - labels.float().mean())[:, None, None] * signal


def warmed(
    states: Tensor,
    space: OutputSpace | None = None,
    seed: int = 0,
    epochs: int = 10,
    *,
    standardised: bool = False,
) -> PseudoClassifiers:
    examples = TRAIN if space is None else NUMBERS
    return warm_up(
        states,
        examples,
        space or Classes(2),
        epochs=epochs,
        learning_rate=1e-2,
        seed=seed,
        standardised=standardised,
    )


def accuracies(heads: PseudoClassifiers, states: Tensor) -> list[float]:
    right = heads(states).argmax(-1) == TRAIN.labels[:, None]
    return [float(layer) for layer in right.float().mean(0)]


def test_what_states_say_of_the_label_is_learned_layer_by_layer() -> None:
    states = separable(TRAIN.labels)
    found = accuracies(warmed(states), states)
    assert found[2] > 0.9
    assert found[2] > found[1] > found[0]


def test_numbers_are_learned_too() -> None:
    states = separable(NUMBERS.labels)
    heads = warmed(states, tiny_space(NUMBERS))
    errors = (heads(states)[..., 0] - NUMBERS.labels[:, None]).square().mean(0)
    assert float(errors[2]) < 0.5 * float(NUMBERS.labels.var())
    assert float(errors[2]) < float(errors[0])


def test_numbers_begin_at_their_mean() -> None:
    """By small rates a bias would take thousands of steps to get there."""
    space = tiny_space(NUMBERS)
    states = separable(NUMBERS.labels)
    slow: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-9, "seed": 0}
    heads = warm_up(states, NUMBERS, space, **slow)
    centre = torch.full((3, 1), float(NUMBERS.labels.mean()))
    torch.testing.assert_close(heads.bias, centre)
    standardised = warm_up(states, NUMBERS, space, **slow, standardised=True)
    torch.testing.assert_close(standardised(states).mean(0), centre, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 0.5), (1.0, 0.0), (100.0, -700.0)])
def test_what_states_are_scaled_by_does_not_matter(scale: float, shift: float) -> None:
    """[CLS] of a lower layer varies by a thousandth around a vector that says nothing."""
    states = separable(TRAIN.labels).double()
    moved = (scale * states + shift).float()
    as_they_are, of_moved = (
        warmed(one, epochs=40, standardised=True) for one in (states.float(), moved)
    )
    torch.testing.assert_close(of_moved(moved), as_they_are(states), rtol=1e-3, atol=2e-3)
    assert accuracies(of_moved, moved)[2] > 0.9


def test_what_hardly_varies_is_not_blown_up() -> None:
    states = separable(TRAIN.labels)
    states[:, 1, 3], states[:, 2] = 5.0, 7.0
    mean, deviation = moments(states)
    torch.testing.assert_close(mean, states.mean(0))
    assert float(deviation[1, 3]) == pytest.approx(0.01 * float(states[:, 1].std(0, False).mean()))
    assert deviation[2].tolist() == [1.0] * 6
    others = [0, 1, 2, 4, 5]
    torch.testing.assert_close(deviation[1, others], states[:, 1].std(0, False)[others])
    assert warmed(states, standardised=True)(states).isfinite().all()


def test_the_same_inputs_give_the_same() -> None:
    states, before = separable(TRAIN.labels), torch.get_rng_state()
    one, same, other = warmed(states), warmed(states), warmed(states, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.weight, same.weight)
    assert torch.equal(one.bias, same.bias)
    assert not torch.equal(one.weight, other.weight)


def test_layers_do_not_influence_each_other() -> None:
    """Whatever the states of one layer are, the classifiers of the others come out the same."""
    states = separable(TRAIN.labels)
    others = states.clone()
    others[:, 1] = 50 * torch.randn(len(states), 6, generator=torch.Generator().manual_seed(7))
    one, other = warmed(states), warmed(others)
    for layer in (0, 2):
        torch.testing.assert_close(one.weight[layer], other.weight[layer], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(one.bias[layer], other.bias[layer], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(one.weight[1], other.weight[1])


def test_they_are_frozen_afterwards() -> None:
    heads = warmed(separable(TRAIN.labels), epochs=1)
    assert not heads.training
    assert not any(parameter.requires_grad for parameter in heads.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_speak_in_float32(dtype: torch.dtype) -> None:
    heads = PseudoClassifiers(3, 6, 2)
    states = separable(TRAIN.labels).to(dtype)
    said = heads(states)
    assert (said.shape, said.dtype) == ((120, 3, 2), torch.float32)
    by_layer = torch.stack(
        [states[:, i].float() @ heads.weight[i] + heads.bias[i] for i in range(3)], 1
    )
    torch.testing.assert_close(said, by_layer)
