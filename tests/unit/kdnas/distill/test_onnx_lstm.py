from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kdnas.distill.onnx_graph import write_graph
from kdnas.distill.onnx_lstm import with_onnx_lstms
from kdnas.distill.onnx_session import OnnxGraph


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 3)
        self.layers = nn.ModuleList(nn.LSTM(width, 4, batch_first=True) for width in (3, 4))

    def forward(self, ids: Tensor) -> Tensor:
        states: Tensor = self.words(ids)
        for layer in self.layers:
            states, _ = layer(states)
        return states.flip(1) + states  # torch's own exporter takes the example's length here


def test_any_number_of_them_in_one_process(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        module = Reader().eval()
        write_graph(module, {"ids": torch.ones(2, 8, dtype=torch.int64)}, ["y"], tmp_path / "g", "")
        graph = OnnxGraph(tmp_path / "g", 1)
        for batch, length in ((1, 1), (3, 8), (2, 40)):
            ids = torch.randint(20, (batch, length), generator=generator)
            with torch.inference_mode():
                expected = module(ids)
            np.testing.assert_allclose(graph({"ids": ids.numpy()}), expected, atol=1e-6)


def test_the_module_stays_as_it_is() -> None:
    module = Reader()
    copied = with_onnx_lstms(module)
    assert all(isinstance(layer, nn.LSTM) for layer in module.layers)
    assert not any(isinstance(part, nn.LSTM) for part in copied.modules())
    without = nn.Linear(2, 2)
    assert with_onnx_lstms(without) is without


@pytest.mark.parametrize(
    "options", [{"num_layers": 2}, {"bidirectional": True}, {"bias": False}, {"batch_first": False}]
)
def test_others_are_refused(options: dict[str, Any]) -> None:
    lstm = nn.LSTM(2, 3, **{"batch_first": True} | options)
    with pytest.raises(ValueError, match="must have one layer, one direction"):
        with_onnx_lstms(nn.Sequential(lstm))
