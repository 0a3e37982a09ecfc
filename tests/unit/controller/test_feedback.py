from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import torch

from controller.encoding import StateEncoder
from controller.feedback import (
    CELLS,
    FeedbackController,
    FeedbackNetwork,
)
from kdnas.errors import SpecError
from kdnas.search.protocols import Observation
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_reward

ENCODER = StateEncoder(BENCHMARK_SPACE)
REWARDS = np.array([benchmark_reward(state) for state in BENCHMARK_SPACE.states], np.float64)
MEMORY = ENCODER.memory(Observation(1, 3, float(REWARDS[3])), None)


def controller(seed: int = 0, identity: str = "a") -> FeedbackController:
    return FeedbackController(ENCODER.width, seed, {"space": identity})


def torch_twin(network: FeedbackNetwork) -> tuple[torch.nn.LSTM, torch.nn.Linear]:
    """The same network in torch, whose second bias is zero."""
    w = {name: torch.from_numpy(value.copy()) for name, value in network.weights.items()}
    lstm = torch.nn.LSTM(ENCODER.width, CELLS, batch_first=True, dtype=torch.float64)
    head = torch.nn.Linear(CELLS, 1, dtype=torch.float64)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(w["input"])
        lstm.weight_hh_l0.copy_(w["recurrent"])
        lstm.bias_ih_l0.copy_(w["bias"])
        lstm.bias_hh_l0.zero_()
        head.weight.copy_(w["head"][None])
        head.bias.copy_(w["head_bias"])
    return lstm, head


def test_values_and_gradients_are_torchs() -> None:
    network = FeedbackNetwork(ENCODER.width, np.random.default_rng(0))
    lstm, head = torch_twin(network)
    candidates = ENCODER.candidates([0, 5, 17])
    sequences = torch.from_numpy(np.stack([np.vstack([MEMORY, c]) for c in candidates]))
    reference = head(lstm(sequences)[0][:, -1]).squeeze(-1)
    np.testing.assert_allclose(
        network.predict(MEMORY, candidates), reference.detach().numpy(), rtol=1e-12
    )

    loss, gradients = network.gradients(sequences[1].numpy(), 0.8)
    expected = 0.5 * (reference[1] - 0.8) ** 2
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-12)
    for name, parameter in {
        "input": lstm.weight_ih_l0,
        "recurrent": lstm.weight_hh_l0,
        "bias": lstm.bias_ih_l0,
        "head": head.weight,
        "head_bias": head.bias,
    }.items():
        assert parameter.grad is not None
        theirs = parameter.grad.numpy().reshape(gradients[name].shape)
        np.testing.assert_allclose(gradients[name], theirs, rtol=1e-9, atol=1e-14)


def test_steps_are_torchs_rmsprop() -> None:
    learner = controller()
    weights = {
        name: torch.from_numpy(value.copy()).requires_grad_()
        for name, value in learner._network.weights.items()
    }
    optimizer = torch.optim.RMSprop(weights.values(), lr=1e-3, alpha=0.95)
    rng = np.random.default_rng(0)
    for _ in range(5):
        gradients = {name: rng.normal(size=w.shape) for name, w in weights.items()}
        for name, weight in weights.items():
            weight.grad = torch.from_numpy(gradients[name])
        optimizer.step()
        learner._descend(gradients, 1e-3)
    for name, weight in weights.items():
        ours = learner._network.weights[name]
        np.testing.assert_allclose(ours, weight.detach().numpy(), rtol=1e-12)


def test_it_learns_what_it_is_told() -> None:
    learner, indices = controller(), range(0, len(REWARDS), 2)
    losses = [
        learner.learn(n, MEMORY, ENCODER.candidates(indices), REWARDS[::2]) for n in range(1, 13)
    ]
    assert losses[-1] < 0.1 * losses[0]
    unseen = learner.predict(MEMORY, ENCODER.candidates(range(1, len(REWARDS), 2)))
    assert np.corrcoef(unseen, REWARDS[1::2])[0, 1] > 0.6


def test_learning_rate_falls_by_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    learner = controller()
    monkeypatch.setattr(learner, "_descend", lambda _, rate: rates.append(rate))
    for episode in (1, 2, 15):
        learner.learn(episode, MEMORY, ENCODER.candidates([4, 5]), REWARDS[4:6])
    assert rates == [1e-4] * 20 + [1e-4 * 0.95] * 20 + [1e-4 * 0.95**14] * 20


def test_dump_and_load_are_exact_in_the_middle() -> None:
    one, two = controller(), controller(seed=9)
    batch = ENCODER.candidates(range(8))
    one.learn(1, MEMORY, batch, REWARDS[:8])
    two.load(one.dump())
    two._seed = one._seed  # the order of training is drawn from the search's own seed
    for n in (2, 3):
        assert one.learn(n, MEMORY, batch, REWARDS[:8]) == two.learn(n, MEMORY, batch, REWARDS[:8])
    assert one.dump() == two.dump()
    np.testing.assert_array_equal(one.predict(MEMORY, batch), two.predict(MEMORY, batch))


def test_nothing_global_is_touched() -> None:
    before = np.random.get_state()[1]
    learner = controller()
    learner.learn(1, MEMORY, ENCODER.candidates([1, 2]), REWARDS[1:3])
    learner.load(learner.dump())
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_weights_hang_on_the_seed_alone() -> None:
    assert controller(1).dump() == controller(1).dump()
    assert controller(1).dump() != controller(2).dump()


def changed(state: bytes, **identity: str) -> bytes:
    (length,) = struct.unpack_from("<Q", state)
    header = json.loads(state[8 : 8 + length])
    stored = json.loads(header["__metadata__"]["kdnas"])
    header["__metadata__"]["kdnas"] = json.dumps({**stored, **identity})
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + state[8 + length :]


def test_other_versions_and_spaces_are_refused() -> None:
    learner = controller()
    state = learner.dump()
    learner.load(changed(state))
    with pytest.raises(SpecError, match=r"version '2', this search needs '1'"):
        learner.load(changed(state, version="2"))
    with pytest.raises(SpecError, match="space 'b'"):
        learner.load(controller(identity="b").dump())
    for broken in (b"", b"abc", state[:40], state[:-4], b"\xff" * 100, b"\x02" + b"\0" * 7 + b"[]"):
        with pytest.raises(SpecError, match="cannot be read"):
            learner.load(broken)
    assert learner.dump() == state
