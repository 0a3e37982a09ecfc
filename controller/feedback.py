"""The feedback controller's network (Trivedi et al. 2023, §3 A, Eq. 3 and App. B).

An LSTM reads (GlobalBest, PreviousBest, candidate) and predicts the candidate's reward. It has
some 13 000 weights and learns in batches of one: a step is a few products of vectors, where a
tensor library spends its time on dispatch and on threads that wait for each other (seconds
instead of milliseconds beside busy workers). So it is written in NumPy, in float64, and its
values and gradients are tested against torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from controller.encoding import Array, sigmoid
from controller.exploration import Purpose, generator
from kdnas.errors import SpecError

CELLS = 32
EPOCHS = 10
PEAK_LEARNING_RATE = 1e-4
EPISODE_DECAY = 0.95
SMOOTHING = 0.95
EPSILON = 1e-8

FORMAT_VERSION = 1
_METADATA_KEY = "kdnas"
_UNREADABLE = (ValueError, KeyError, TypeError, struct.error, safetensors.SafetensorError)

Weights = dict[str, Array]


class _Step(NamedTuple):
    """One step of the LSTM, kept for the way back."""

    x: Array
    hidden_before: Array
    cell_before: Array
    gates: tuple[Array, Array, Array, Array]
    cell: Array
    hidden: Array


class FeedbackNetwork:
    """One LSTM layer of 32 cells with a linear head on its last output.

    Legend: F width of a step, H cells, B candidates; the 4H rows are the input, forget, cell and
    output gates, in this order. Weights start uniform in ±1/√H.

    Attributes:
        weights: ``input`` (4H, F), ``recurrent`` (4H, H), ``bias`` (4H), ``head`` (H),
            ``head_bias`` (1).
    """

    def __init__(self, width: int, rng: np.random.Generator) -> None:
        bound = CELLS**-0.5
        shapes = {
            "input": (4 * CELLS, width),
            "recurrent": (4 * CELLS, CELLS),
            "bias": (4 * CELLS,),
            "head": (CELLS,),
            "head_bias": (1,),
        }
        self.weights: Weights = {k: rng.uniform(-bound, bound, v) for k, v in shapes.items()}

    def predict(self, memory: Array, candidates: Array) -> Array:
        """Predict rewards: memory (2, F) and candidates (B, F) → (B,).

        All candidates share the memory, so its two steps are read once for all of them.
        """
        *_, last = self._steps([*memory, candidates])
        predicted: Array = last.hidden @ self.weights["head"] + self.weights["head_bias"]
        return predicted

    def gradients(self, sequence: Array, reward: float) -> tuple[float, Weights]:
        """Return (r − r̂)²/2 and its gradients for one sequence (3, F), back through time."""
        w = self.weights
        steps = self._steps(list(sequence))
        error = float(steps[-1].hidden @ w["head"] + w["head_bias"][0]) - reward
        grads = {name: np.zeros_like(value) for name, value in w.items()}
        grads["head"] += error * steps[-1].hidden
        grads["head_bias"] += error
        d_hidden, d_cell = error * w["head"], np.zeros(CELLS)
        for step in reversed(steps):
            i, f, g, o = step.gates
            squashed = np.tanh(step.cell)
            d_cell = d_cell + d_hidden * o * (1 - squashed**2)
            d_gates = np.concatenate(
                [
                    d_cell * g * i * (1 - i),
                    d_cell * step.cell_before * f * (1 - f),
                    d_cell * i * (1 - g**2),
                    d_hidden * squashed * o * (1 - o),
                ]
            )
            grads["input"] += np.outer(d_gates, step.x)
            grads["recurrent"] += np.outer(d_gates, step.hidden_before)
            grads["bias"] += d_gates
            d_hidden, d_cell = d_gates @ w["recurrent"], d_cell * f
        return 0.5 * error**2, grads

    def _steps(self, sequence: list[Array]) -> list[_Step]:
        w = self.weights
        hidden = cell = np.zeros(CELLS)
        steps = []
        for x in sequence:  # each (F,) or (B, F)
            z = x @ w["input"].T + hidden @ w["recurrent"].T + w["bias"]  # (…, 4H)
            i, f, g, o = np.split(z, 4, axis=-1)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            new_cell = f * cell + i * g
            new_hidden = o * np.tanh(new_cell)
            steps.append(_Step(x, hidden, cell, (i, f, g, o), new_cell, new_hidden))
            hidden, cell = new_hidden, new_cell
        return steps


class FeedbackController:
    """The network with its optimiser: predicts, learns from an episode, survives a restart.

    Args:
        width: F, numbers in a step of the input.
        seed: of the starting weights and of the order of training.
        identity: what a dumped state must agree in, such as the space's fingerprint.
    """

    def __init__(self, width: int, seed: int, identity: Mapping[str, str]) -> None:
        self._seed = seed
        self._identity = {**identity, "version": str(FORMAT_VERSION), "width": str(width)}
        self._network = FeedbackNetwork(width, generator(seed, 0, Purpose.WEIGHTS))
        self._mean_square = {k: np.zeros_like(v) for k, v in self._network.weights.items()}

    def predict(self, memory: Array, candidates: Array) -> Array:
        """Predict rewards: memory (2, F) and candidates (B, F) → (B,)."""
        return self._network.predict(memory, candidates)

    def learn(self, episode: int, memory: Array, candidates: Array, rewards: Array) -> float:
        """Ten epochs of (r − r̂)²/2 over an episode, in batches of one, by RMSProp.

        The learning rate is 1e-4 · 0.95^(episode − 1): the paper names the peak and an
        exponential schedule, the factor is our reading. The order is drawn anew in each epoch.

        Args:
            episode: number of the episode, from 1.
            memory: (2, F) GlobalBest and PreviousBest as they were in that episode.
            candidates: (B, F).
            rewards: (B,) true rewards.

        Returns:
            Mean loss of the last epoch, each candidate read just before it was learned from.
        """
        rate = PEAK_LEARNING_RATE * EPISODE_DECAY ** (episode - 1)
        rng = generator(self._seed, episode, Purpose.TRAINING_ORDER)
        losses: list[float] = []
        for _ in range(EPOCHS):
            losses = []
            for i in rng.permutation(len(rewards)):
                sequence = np.vstack([memory, candidates[i]])
                loss, gradients = self._network.gradients(sequence, float(rewards[i]))
                self._descend(gradients, rate)
                losses.append(loss)
        return float(np.mean(losses))

    def _descend(self, gradients: Weights, rate: float) -> None:
        """θ ← θ − rate·g / (√v + 1e-8) with v ← γ·v + (1 − γ)·g²."""
        for name, gradient in gradients.items():
            mean_square = self._mean_square[name]
            mean_square *= SMOOTHING
            mean_square += (1 - SMOOTHING) * gradient**2
            self._network.weights[name] -= rate * gradient / (np.sqrt(mean_square) + EPSILON)

    def dump(self) -> bytes:
        """Write weights and optimiser state as safetensors, with version and identity."""
        tensors = {f"weights.{k}": v for k, v in self._network.weights.items()}
        tensors |= {f"mean_square.{k}": v for k, v in self._mean_square.items()}
        written: bytes = safetensors.numpy.save(
            tensors,
            # One key: the order of several would differ from run to run.
            {_METADATA_KEY: json.dumps(self._identity, sort_keys=True)},
        )
        return written

    def load(self, state: bytes) -> None:
        """Take up what :meth:`dump` wrote.

        Raises:
            SpecError: the bytes are no controller's state, or one of another version, variant or
                space; nothing is changed then.
        """
        try:
            identity = _metadata(state)
            tensors = safetensors.numpy.load(state)
        except _UNREADABLE as error:
            raise SpecError(
                f"the stored controller state cannot be read ({error}); start a new search"
            ) from None
        for key in sorted({*identity, *self._identity}):
            if identity.get(key) != self._identity.get(key):
                raise SpecError(
                    f"the stored controller state has {key} {identity.get(key)!r}, this search "
                    f"needs {self._identity.get(key)!r}; start a new search"
                )
        # Copies, since what safetensors returns may be read-only.
        self._network.weights = {k: tensors[f"weights.{k}"].copy() for k in self._network.weights}
        self._mean_square = {k: tensors[f"mean_square.{k}"].copy() for k in self._mean_square}


def _metadata(state: bytes) -> dict[str, str]:
    """Read the header of safetensors bytes; the library does so for files only.

    The format: eight bytes with the header's length, little-endian, then the header as JSON.
    """
    (length,) = struct.unpack_from("<Q", state)
    header = json.loads(state[8 : 8 + length])
    identity: dict[str, str] = json.loads(header["__metadata__"][_METADATA_KEY])
    return identity
