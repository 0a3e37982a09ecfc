"""The layers of a Bi-LSTM and of a gated CNN: word embeddings in, the states of every layer out.

Wu et al. 2021 (Universal-KD), §5.5, say that both are feature-based students of 3 and 4 layers with
a hidden size of 768 and about 25M trainable parameters, and name Hochreiter and Schmidhuber 1997
and Dauphin et al. 2017; sizes of kernels, residuals and how two directions are joined they leave
out. What stands here is our reading, chosen so that the parameters come to the published number:
25,989,120 and 23,894,784 with word embeddings of 384, and 28,348,416 and 23,599,104 with those of
BERT-base, 768.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.cpu import runs_lstms_in_bfloat16
from kdnas.models.sequence.config import SequenceConfig


class BiLSTM(nn.Module):
    """LSTMs over both directions of a text.

    With x⁰ the word embeddings, layer l makes of x^(l-1), at the real tokens of a text::

        x^l_t = LSTM→(x^(l-1))_t + LSTM←(x^(l-1))_t

    The two directions, H wide each, are summed, so that a layer is H wide; joined end to end they
    would make 35M parameters, with word embeddings of 384.

    The backward direction is a forward LSTM over the text turned round within its own length, so
    that padding, which comes last, is read after everything that counts. Packed sequences do the
    same and cannot be exported to ONNX.

    Args:
        config: sizes.
    """

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        widths = [config.embedding_size, *[config.hidden] * (config.layers - 1)]
        self.forwards = nn.ModuleList(
            nn.LSTM(width, config.hidden, batch_first=True) for width in widths
        )
        self.backwards = nn.ModuleList(
            nn.LSTM(width, config.hidden, batch_first=True) for width in widths
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedded: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        """Give the states of every layer.

        Args:
            embedded: (B, T, E), of the words.
            real: (B, T), true at tokens that are no padding; these come first.

        Returns:
            M tensors (B, T, H), first layer first, without dropout; 0 at padding.
        """
        order = turned_round(real)  # (B, T)
        states: list[Tensor] = []
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            inputs = self.dropout(states[-1]) if states else embedded
            ahead = _run(forwards, inputs)  # (B, T, H)
            back = _run(backwards, _in_order(inputs, order))
            both = ahead + _in_order(back, order)
            states.append(both.masked_fill(~real.unsqueeze(-1), 0.0))
        return tuple(states)


def _run(lstm: nn.Module, inputs: Tensor) -> Tensor:
    """Run an LSTM; in float32 where the CPU has no other."""
    if torch.is_autocast_enabled("cpu") and not runs_lstms_in_bfloat16():
        with torch.autocast("cpu", enabled=False):
            states, _ = lstm(inputs.float())
    else:
        states, _ = lstm(inputs)
    return states  # type: ignore[no-any-return]


def turned_round(real: Tensor) -> Tensor:
    """Return the places by which texts are read backwards, each within its own length.

    Args:
        real: (B, T), true at tokens that are no padding; these come first.

    Returns:
        (B, T): n - 1 - t for the place t of a text of n tokens, and t behind its end. Taken twice,
        it gives the order that was there before.
    """
    places = torch.arange(real.shape[1], device=real.device)  # (T,)
    lengths = real.sum(1, keepdim=True)  # (B, 1)
    return torch.where(places < lengths, lengths - 1 - places, places)


def _in_order(states: Tensor, order: Tensor) -> Tensor:
    return states.gather(1, order.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class GatedCNN(nn.Module):
    """Convolutions with gates (Dauphin et al. 2017, Eq. 1), each with a residual around it.

    With x⁰ the word embeddings, layer l makes of x^(l-1), at the real tokens of a text::

        x^l = x^(l-1) + (x^(l-1) ∗ W_a + a) ⊙ σ(x^(l-1) ∗ W_b + b)

    A token sees as many tokens on either side (Dauphin et al., who model language, see only those
    before), and what stands beyond the text's ends is 0. Where word embeddings are not H wide, x⁰
    is a linear map of them. W_a and W_b are the two halves of one convolution.

    Args:
        config: sizes.
    """

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        width = config.hidden
        self.widen = (
            nn.Identity()
            if config.embedding_size == width
            else nn.Linear(config.embedding_size, width)
        )
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, 2 * width, config.kernel, padding=config.kernel // 2)
            for _ in range(config.layers)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedded: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        """Give the states of every layer; see :meth:`BiLSTM.forward`."""
        padding = ~real.unsqueeze(-1)  # (B, T, 1)
        widened = self.widen(embedded).masked_fill(padding, 0.0)  # (B, T, H)
        states: list[Tensor] = []
        for convolution in self.convolutions:
            inputs = self.dropout(states[-1]) if states else widened
            both = convolution(inputs.transpose(1, 2))  # (B, 2H, T)
            after = inputs + F.glu(both, dim=1).transpose(1, 2)
            states.append(after.masked_fill(padding, 0.0))
        return tuple(states)


ENCODERS: Mapping[str, type[BiLSTM] | type[GatedCNN]] = {"bilstm": BiLSTM, "gated-cnn": GatedCNN}
"""Kind of a configuration → its layers."""
