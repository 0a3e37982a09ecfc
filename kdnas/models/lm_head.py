"""The masked-LM head: from hidden states to scores over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kdnas.models.teacher import TeacherHandle

HEAD_STD = 0.02


class MaskedLMHead(nn.Module):
    """Dense layer, GELU, layer norm, and a decoder that is tied to the word embeddings.

    Every supported family has this head, under names of its own. The embeddings are given at each
    call, since they belong to the encoder, which may be training.

    Args:
        hidden: D, width of the hidden states.
        embedding: E, width of the word embeddings.
        vocab_size: V.
        seed: of the dense layer; the process's own random state stays as it was.
        layer_norm_eps: of the layer norm.
        tied: False for a checkpoint whose decoder has weights of its own.
    """

    def __init__(
        self,
        hidden: int,
        embedding: int,
        vocab_size: int,
        *,
        seed: int = 0,
        layer_norm_eps: float = 1e-12,
        tied: bool = True,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(embedding, hidden, generator=generator) * HEAD_STD
        self.dense_weight = nn.Parameter(weight)
        self.dense_bias = nn.Parameter(torch.zeros(embedding))
        self.norm_weight = nn.Parameter(torch.ones(embedding))
        self.norm_bias = nn.Parameter(torch.zeros(embedding))
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.decoder = None if tied else nn.Parameter(torch.zeros(vocab_size, embedding))
        self._eps = layer_norm_eps

    def forward(self, hidden: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return scores (M, V) in float32 of hidden states (M, D), with embeddings (V, E)."""
        transformed = F.gelu(F.linear(hidden, self.dense_weight, self.dense_bias))
        normed = F.layer_norm(
            transformed.float(),
            (len(self.norm_weight),),
            self.norm_weight,
            self.norm_bias,
            self._eps,
        )
        decoder = word_embeddings if self.decoder is None else self.decoder
        return F.linear(normed, decoder, None).float() + self.bias


def load_teacher_lm_head(handle: TeacherHandle) -> MaskedLMHead:
    """Load the teacher's masked-LM head: the fitted one if there is one, else the checkpoint's.

    Raises:
        TeacherError: it has none.
    """
    raise NotImplementedError
