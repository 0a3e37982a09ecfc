from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from kdnas.models.sequence.config import SequenceConfig
from kdnas.models.sequence.encoders import ENCODERS, BiLSTM, GatedCNN, turned_round

LENGTHS = (7, 1, 4)
REAL = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
KINDS = pytest.mark.parametrize("kind", ENCODERS)


def config(kind: str, **values: Any) -> SequenceConfig:
    sizes = {"layers": 2, "embedding_size": 5, "hidden": 6, "vocab_size": 9, "pad_token_id": 0}
    return SequenceConfig(kind=kind, **sizes | values)


def made(kind: str, seed: int = 0, **values: Any) -> BiLSTM | GatedCNN:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return ENCODERS[kind](config(kind, **values)).eval()


def embedded(width: int = 5) -> torch.Tensor:
    return torch.randn(3, 7, width, generator=torch.Generator().manual_seed(1))


def as_float64(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().double().numpy() for name, p in module.named_parameters()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_reference(weights: dict[str, np.ndarray], text: np.ndarray) -> np.ndarray:
    """Hochreiter and Schmidhuber's cell with a forget gate, a step at a time: (n, E) → (n, H)."""
    width = weights["weight_hh_l0"].shape[1]
    state, cell, states = np.zeros(width), np.zeros(width), []
    for word in text:
        gates = weights["weight_ih_l0"] @ word + weights["bias_ih_l0"]
        gates = gates + weights["weight_hh_l0"] @ state + weights["bias_hh_l0"]
        i, f, g, o = np.split(gates, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(cell)
        states.append(state)
    return np.stack(states)


def bilstm_reference(model: nn.Module, text: np.ndarray) -> list[np.ndarray]:
    states = []
    for ahead, back in zip(model.forwards, model.backwards, strict=True):  # type: ignore[arg-type]
        text = (
            lstm_reference(as_float64(ahead), text)
            + lstm_reference(as_float64(back), text[::-1])[::-1]
        )
        states.append(text)
    return states


def gated_cnn_reference(model: nn.Module, text: np.ndarray) -> list[np.ndarray]:
    if isinstance(model.widen, nn.Linear):
        weights = as_float64(model.widen)
        text = text @ weights["weight"].T + weights["bias"]
    states = []
    for convolution in model.convolutions:  # type: ignore[union-attr]
        weights = as_float64(convolution)
        kernel, width = weights["weight"].shape[2], text.shape[1]
        side = kernel // 2
        around = np.pad(text, ((side, side), (0, 0)))
        both = np.stack(
            [
                weights["bias"]
                + sum(weights["weight"][:, :, k] @ around[t + k] for k in range(kernel))
                for t in range(len(text))
            ]
        )
        text = text + both[:, :width] * sigmoid(both[:, width:])
        states.append(text)
    return states


@pytest.mark.parametrize("width", [5, 6])
@pytest.mark.parametrize(
    ("kind", "reference"), [("bilstm", bilstm_reference), ("gated-cnn", gated_cnn_reference)]
)
def test_states_are_those_of_the_formula(kind: str, reference: Any, width: int) -> None:
    """Of each text by itself, in float64, without padding."""
    model, words = made(kind, embedding_size=width), embedded(width)
    found = model(words, REAL)
    assert len(found) == 2
    for row, length in enumerate(LENGTHS):
        for layer, expected in enumerate(reference(model, words[row, :length].double().numpy())):
            ours = found[layer][row].detach()
            np.testing.assert_allclose(ours[:length], expected, atol=1e-6)
            assert not ours[length:].any()  # 0 at padding


@KINDS
def test_padding_changes_nothing(kind: str) -> None:
    """Neither what stands there nor how much: by at most 1e-6, as sums come in another order."""
    model, words = made(kind), embedded()
    expected = model(words, REAL)
    loud = torch.where(REAL[..., None], words, 1e6)
    longer = nn.functional.pad(loud, (0, 0, 0, 9), value=-1e6)
    found = model(longer, nn.functional.pad(REAL, (0, 9), value=False))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours[:, :7], theirs, atol=1e-6, rtol=0)
        assert not ours[:, 7:].any()


@KINDS
def test_no_gradient_reaches_padding(kind: str) -> None:
    words = embedded().requires_grad_()
    sum(states.sum() for states in made(kind)(words, REAL)).backward()
    assert words.grad is not None
    assert words.grad.isfinite().all()
    assert (words.grad[REAL] != 0).any(-1).all()
    assert not words.grad[~REAL].any()


def test_a_text_is_turned_round_within_its_length() -> None:
    order = turned_round(REAL)
    assert order.tolist() == [[6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 6], [3, 2, 1, 0, 4, 5, 6]]
    assert torch.equal(order.gather(1, order), torch.arange(7).expand(3, -1))


@KINDS
def test_dropout_is_between_layers(kind: str) -> None:
    """States are given as they are; the next layer reads what dropout has left of them."""
    model, words = made(kind, dropout=0.5), embedded()
    without = model(words, REAL)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        found = model.train()(words, REAL)
    assert torch.equal(found[0], without[0])
    assert not torch.allclose(found[1], without[1])


@pytest.mark.parametrize(
    ("kind", "layers", "width", "count"),
    [
        ("bilstm", 3, 384, 25_989_120),
        ("bilstm", 3, 768, 28_348_416),
        ("gated-cnn", 4, 384, 23_894_784),
        ("gated-cnn", 4, 768, 23_599_104),
    ],
)
def test_parameters_come_to_the_published_number(
    kind: str, layers: int, width: int, count: int
) -> None:
    """About 25M (Wu et al. 2021, §5.5); the narrower words are MiniLM's, the wider BERT-base's."""
    with torch.device("meta"):
        sizes = config(kind, layers=layers, hidden=768, embedding_size=width)
        model = ENCODERS[kind](sizes)
    assert sum(p.numel() for p in model.parameters()) == count
