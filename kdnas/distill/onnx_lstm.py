"""LSTMs as the one ONNX operator that they are.

While it traces, torch's exporter writes them out step by step, for which it patches a table of
torch's. With torch 2.13 that works for the first LSTM model of a process alone: a later one is
taken at the length of the example, and its export fails. Here the operator is put into the graph by
name.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn


def with_onnx_lstms(module: nn.Module) -> nn.Module:
    """Return a module whose LSTMs export well: itself if it has none, else a copy.

    The copy is for tracing alone; it computes nothing.

    Args:
        module: whose LSTMs have one layer, one direction, biases, and the batch first.
    """
    if not any(isinstance(part, nn.LSTM) for part in module.modules()):
        return module
    copied = deepcopy(module)
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.LSTM):
                setattr(parent, name, _OnnxLSTM(child))
    return copied


class _OnnxLSTM(nn.Module):
    """The operator ``LSTM``: inputs X (T, B, E), W (1, 4H, E), R (1, 4H, H) and B (1, 8H).

    Torch has the gates in the order input, forget, cell, output; ONNX input, output, forget, cell.
    """

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        if lstm.num_layers > 1 or lstm.bidirectional or not lstm.bias or not lstm.batch_first:
            raise ValueError(f"{lstm} must have one layer, one direction, biases, and batch_first")
        self.hidden = lstm.hidden_size
        weights = {name: _in_onnx_order(value) for name, value in lstm.named_parameters()}
        biases = torch.cat([weights["bias_ih_l0"], weights["bias_hh_l0"]])
        self.of_inputs = nn.Buffer(weights["weight_ih_l0"].unsqueeze(0))
        self.of_states = nn.Buffer(weights["weight_hh_l0"].unsqueeze(0))
        self.biases = nn.Buffer(biases.unsqueeze(0))

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:
        """Give states (B, T, H) for inputs (B, T, E), and nothing where torch has the last ones."""
        batch, length, _ = inputs.shape
        states = torch.onnx.ops.symbolic(
            "LSTM",
            (inputs.transpose(0, 1), self.of_inputs, self.of_states, self.biases),
            {"hidden_size": self.hidden},
            dtype=inputs.dtype,
            shape=(length, 1, batch, self.hidden),
        )
        return states.squeeze(1).transpose(0, 1), None


def _in_onnx_order(weights: Tensor) -> Tensor:
    """Put the gates of weights (4H, …) in the order of ONNX."""
    i, f, g, o = weights.detach().chunk(4)
    return torch.cat([i, o, f, g])
