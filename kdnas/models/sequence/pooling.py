"""From the states of a text's tokens to one vector, by attention that is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AttentionSum(nn.Module):
    """The attention sum that Wu et al. 2021, §5.5, put on their LSTM and CNN students.

    They cite Bahdanau et al. 2015, whose score of a state compares it with a decoder's; a
    classifier has none, and so we read::

        e_t = v · tanh(W h_t)
        a_t = exp(e_t) / Σ_s exp(e_s)       over the real tokens s of the text; 0 at padding
        h   = Σ_t a_t h_t

    Scores and weights are float32 whatever the states are. A text of padding alone gives 0.

    Args:
        hidden: H, width of the states.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.project = nn.Linear(hidden, hidden, bias=False)  # W
        self.score = nn.Linear(hidden, 1, bias=False)  # v

    def weights(self, states: Tensor, real: Tensor) -> Tensor:
        """Say how much each token counts.

        Args:
            states: h, (B, T, H).
            real: (B, T), true at tokens that are no padding.

        Returns:
            a, (B, T) in float32: its rows add up to 1.
        """
        scores = self.score(torch.tanh(self.project(states))).squeeze(-1).float()  # (B, T)
        # Not -inf, with which a text of padding alone would have no gradient that is a number.
        scores = scores.masked_fill(~real, torch.finfo(scores.dtype).min)
        weights: Tensor = scores.softmax(-1).masked_fill(~real, 0.0)
        return weights

    def forward(self, states: Tensor, real: Tensor) -> Tensor:
        """Sum states (B, T, H) over the real tokens (B, T) by their weights: (B, H)."""
        weights = self.weights(states, real).to(states.dtype)
        return torch.einsum("bt,bth->bh", weights, states)
