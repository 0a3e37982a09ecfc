"""An ensemble of small LSTMs that learn together, each from weights of its own.

All members read the same sequences at once, so that a step is a product of a few larger matrices.
In NumPy and float64, as the published controller beside it and for the same reason; values and
gradients are tested against torch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from controller.encoding import Array, sigmoid

MEMBERS: Final = 4
CELLS: Final = 32
EPOCHS: Final = 60
LEARNING_RATE: Final = 1e-2
WEIGHT_DECAY: Final = 1e-3
_MOMENTA: Final = (0.9, 0.99)
_TINY: Final = 1e-8

Weights = dict[str, Array]


class _Step(NamedTuple):
    """One step of the sequence, kept for the way back."""

    x: Array
    hidden_before: Array
    cell_before: Array
    gates: tuple[Array, Array, Array, Array]
    squashed: Array


class LSTMEnsemble:
    """One LSTM layer a member, with a linear head on its last output and on the inputs themselves.

    Legend: E members, T steps, B sequences, F width of a step, D width of what goes past the LSTM,
    H cells; the 4H columns are the input, forget, cell and output gates, in this order. Weights
    start uniform in ±1/√H, those of what goes past at 0, and gates begin by not forgetting.

    Attributes:
        weights: ``input`` (E, F, 4H), ``recurrent`` (E, H, 4H), ``bias`` (E, 1, 4H), ``head``
            (E, H, 1), ``past`` (E, D, 1), ``constant`` (E, 1, 1).
    """

    def __init__(self, width: int, past: int, rng: np.random.Generator) -> None:
        bound = CELLS**-0.5
        drawn = {
            "input": (MEMBERS, width, 4 * CELLS),
            "recurrent": (MEMBERS, CELLS, 4 * CELLS),
            "bias": (MEMBERS, 1, 4 * CELLS),
            "head": (MEMBERS, CELLS, 1),
        }
        self.weights: Weights = {k: rng.uniform(-bound, bound, v) for k, v in drawn.items()}
        self.weights["bias"][..., CELLS : 2 * CELLS] += 1.0
        self.weights["past"] = np.zeros((MEMBERS, past, 1))
        self.weights["constant"] = np.zeros((MEMBERS, 1, 1))

    def read(self, sequences: Array) -> Array:
        """The last hidden state of each member: (E, B, H) of (T, B, F)."""
        return self._steps(sequences)[1]

    def fit(self, sequences: Array, past: Array, targets: Array) -> float:
        """Learn with Adam from all sequences at once, :data:`EPOCHS` times.

        Weight decay is decoupled (Loshchilov & Hutter 2019) and spares the constants.

        Args:
            sequences: (T, B, F).
            past: (B, D) what goes past the LSTM.
            targets: (B,) of a mean near 0 and a deviation near 1.

        Returns:
            Mean of half the squared errors in the last epoch, before its step.
        """
        first = {k: np.zeros_like(v) for k, v in self.weights.items()}
        second = {k: np.zeros_like(v) for k, v in self.weights.items()}
        loss = 0.0
        for step in range(1, EPOCHS + 1):
            loss, gradients = self.gradients(sequences, past, targets)
            for name, gradient in gradients.items():
                for moment, rate, value in (
                    (first, _MOMENTA[0], gradient),
                    (second, _MOMENTA[1], gradient**2),
                ):
                    moment[name] = rate * moment[name] + (1 - rate) * value
                mean = first[name] / (1 - _MOMENTA[0] ** step)
                scale = np.sqrt(second[name] / (1 - _MOMENTA[1] ** step)) + _TINY
                decay = 0.0 if name == "constant" else WEIGHT_DECAY
                weights = self.weights[name]
                self.weights[name] = weights - LEARNING_RATE * (mean / scale + decay * weights)
        return loss

    def gradients(self, sequences: Array, past: Array, targets: Array) -> tuple[float, Weights]:
        """Return the loss, a mean over members and sequences, and its gradients through time.

        Gradients are of each member's own mean, as if it learned alone.
        """
        w = self.weights
        steps, hidden = self._steps(sequences)
        predicted = hidden @ w["head"] + past @ w["past"] + w["constant"]  # (E, B, 1)
        errors = predicted - targets[:, None]
        share = errors / len(targets)
        grads = {name: np.zeros_like(value) for name, value in w.items()}
        grads["head"] = _turned(hidden) @ share
        grads["past"] = past.T @ share
        grads["constant"] = share.sum(axis=1, keepdims=True)
        d_hidden, d_cell = share @ _turned(w["head"]), np.zeros(hidden.shape)
        for step in reversed(steps):
            i, f, g, o = step.gates
            d_cell = d_cell + d_hidden * o * (1 - step.squashed**2)
            d_gates = np.concatenate(
                [
                    d_cell * g * i * (1 - i),
                    d_cell * step.cell_before * f * (1 - f),
                    d_cell * i * (1 - g**2),
                    d_hidden * step.squashed * o * (1 - o),
                ],
                axis=-1,
            )
            grads["input"] += step.x.T @ d_gates
            grads["recurrent"] += _turned(step.hidden_before) @ d_gates
            grads["bias"] += d_gates.sum(axis=1, keepdims=True)
            d_hidden, d_cell = d_gates @ _turned(w["recurrent"]), d_cell * f
        return 0.5 * float(np.mean(errors**2)), grads

    def _steps(self, sequences: Array) -> tuple[list[_Step], Array]:
        w = self.weights
        hidden = cell = np.zeros((MEMBERS, sequences.shape[1], CELLS))
        steps = []
        for x in sequences:  # (B, F)
            z = x @ w["input"] + hidden @ w["recurrent"] + w["bias"]  # (E, B, 4H)
            i, f, g, o = np.split(z, 4, axis=-1)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            new_cell = f * cell + i * g
            squashed = np.tanh(new_cell)
            steps.append(_Step(x, hidden, cell, (i, f, g, o), squashed))
            hidden, cell = o * squashed, new_cell
        return steps, hidden


def _turned(matrices: Array) -> Array:
    return matrices.transpose(0, 2, 1)
