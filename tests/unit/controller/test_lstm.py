"""The ensemble of LSTMs: torch's values and gradients for each member, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from controller.lstm import CELLS, EPOCHS, MEMBERS, LSTMEnsemble

STEPS, SEQUENCES, WIDTH, PAST = 3, 7, 5, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(STEPS, SEQUENCES, WIDTH))
FLAT = RNG.normal(size=(SEQUENCES, PAST))
Y = RNG.normal(size=SEQUENCES)


def ensemble() -> LSTMEnsemble:
    made = LSTMEnsemble(WIDTH, PAST, np.random.default_rng(1))
    for name in ("past", "constant"):  # which begin at 0
        made.weights[name] = RNG.normal(size=made.weights[name].shape)
    return made


@pytest.mark.parametrize("member", range(MEMBERS))
def test_values_and_gradients_are_torchs(member: int) -> None:
    made = ensemble()
    own = {name: torch.from_numpy(w[member].copy()) for name, w in made.weights.items()}
    lstm = torch.nn.LSTM(WIDTH, CELLS, dtype=torch.float64)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(own["input"].T)
        lstm.weight_hh_l0.copy_(own["recurrent"].T)
        lstm.bias_ih_l0.copy_(own["bias"][0])
        lstm.bias_hh_l0.zero_()
    ends = {k: own[k].requires_grad_() for k in ("head", "past", "constant")}
    hidden = lstm(torch.from_numpy(X))[0][-1]
    np.testing.assert_allclose(made.read(X)[member], hidden.detach().numpy(), rtol=1e-12)
    predicted = hidden @ ends["head"] + torch.from_numpy(FLAT) @ ends["past"] + ends["constant"]
    expected = 0.5 * ((predicted[:, 0] - torch.from_numpy(Y)) ** 2).mean()
    expected.backward()

    _, gradients = made.gradients(X, FLAT, Y)
    for name, parameter in {
        "input": lstm.weight_ih_l0.grad.T,
        "recurrent": lstm.weight_hh_l0.grad.T,
        "bias": lstm.bias_ih_l0.grad[None],
        **{name: value.grad for name, value in ends.items()},
    }.items():
        np.testing.assert_allclose(
            gradients[name][member], parameter.numpy(), rtol=1e-9, atol=1e-12, err_msg=name
        )


def test_members_learn_each_for_itself() -> None:
    made = ensemble()
    alone = {name: value.copy() for name, value in made.weights.items()}
    first, gradients = made.gradients(X, FLAT, Y)
    made.weights["head"][1] += 1.0  # changes what one member sees
    _, changed = made.gradients(X, FLAT, Y)
    for name in alone:
        np.testing.assert_array_equal(gradients[name][0], changed[name][0])
        assert not np.array_equal(gradients[name][1], changed[name][1])
    assert first > 0


def test_it_learns_and_learns_the_same_each_time() -> None:
    one, two = (LSTMEnsemble(WIDTH, PAST, np.random.default_rng(1)) for _ in range(2))
    before, _ = one.gradients(X, FLAT, Y)
    assert one.fit(X, FLAT, Y) < 0.5 * before
    two.fit(X, FLAT, Y)
    assert EPOCHS > 1
    for name, weights in one.weights.items():
        np.testing.assert_array_equal(weights, two.weights[name])
