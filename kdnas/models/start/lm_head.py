"""A student's masked-LM head, begun where it says what its teacher's says.

Scores are z = g·Eᵀ + b, with g what the head makes of a hidden state and E the word embeddings. Two
tables of words differ, and the narrower one cannot hold all: the g^S whose scores come closest to
the teacher's, up to what is equal for all words of a place (a softmax does not see it), is

    g^S = g^T·C_TS·C_SS⁻¹,  C_SS = Cov_p(E^S),  C_TS = Cov_p(E^T, E^S)

with words weighted by the teacher's mean distribution p, since near it KL is half the variance of
the scores' difference. The head is then brought to give that: its dense layer by least squares,
at a level where the activation is nearly the identity, for LayerNorm takes away what all channels
have in common; then LayerNorm channel by channel.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.start.linear import Inputs, by_channel
from kdnas.models.start.norms import normalised

PLACES = 512
"""At which the teacher's mean distribution is read."""
RIDGE = 1e-3
"""Of the covariance of the student's word embeddings, as a share of its mean diagonal."""
LEVEL, DEVIATION = 3.0, 0.5
"""Of what the activation is given: far enough to the right for relu, gelu and silu to be straight,
and as large as what a fresh dense layer gives."""
EPS = 1e-12


@torch.no_grad()
def start_lm_head(
    head: MaskedLMHead,
    teacher: MaskedLMHead,
    states: Tensor,
    teacher_states: Tensor,
    words: Tensor,
    teacher_words: Tensor,
) -> None:
    """Write the weights that a student's masked-LM head begins with.

    Args:
        head: the student's, with a decoder tied to its word embeddings.
        teacher: the teacher's.
        states: (N, d) last hidden states of the student, on text with hidden tokens.
        teacher_states: (N, D) the teacher's on the same tokens.
        words: (V, d) word embeddings of the student.
        teacher_words: (V, E) those of the teacher.
    """
    inputs = Inputs(states, "dense_bias" not in head.absent)
    decoder = teacher_words if teacher.decoder is None else teacher.decoder
    same_words = decoder.shape == words.shape and torch.equal(decoder, words)
    if same_words and head.activation == teacher.activation:  # the teacher's own head serves
        _copy(head, teacher)
        _set_dense(head, inputs, teacher_states @ teacher.dense_weight.T + teacher.dense_bias)
        return
    _, given, likely = _said(teacher, teacher_states, teacher_words)
    own = _covariance(words, words, likely)
    own.diagonal().add_(RIDGE * own.diagonal().mean())
    brought = torch.linalg.solve(own, _covariance(words, decoder, likely))  # (d, E)
    wanted = (given.double() @ brought.T).float()  # g^S, (N, d)
    _set_dense(head, inputs, LEVEL + DEVIATION * normalised(wanted, EPS))
    head.norm_weight.fill_(1.0)
    head.norm_bias.zero_()
    scale, shift = by_channel(head.transformed(states), wanted, "norm_bias" not in head.absent)
    head.norm_weight.copy_(scale)
    head.norm_bias.copy_(shift)
    if "bias" not in head.absent:
        bias = teacher.bias + decoder @ given.mean(0) - words @ head.transformed(states).mean(0)
        head.bias.copy_(bias - likely @ bias)


def _copy(head: MaskedLMHead, teacher: MaskedLMHead) -> None:
    for name, value in head.state_dict().items():
        value.copy_(teacher.state_dict()[name])


def _set_dense(head: MaskedLMHead, inputs: Inputs, targets: Tensor) -> None:
    """Fit the dense layer to what it should give: (N, d)."""
    mapped = inputs.map_to(targets)
    head.dense_weight.copy_(mapped.slope.T)
    head.dense_bias.copy_(mapped.there - inputs.mean @ mapped.slope)


class _Said(NamedTuple):
    """What a teacher's head makes of a text.

    Attributes:
        states: (N, D) of the text.
        given: g^T, (N, E).
        likely: what the teacher expects on average, (V,), adding up to 1.
    """

    states: Tensor
    given: Tensor
    likely: Tensor


_SAID: WeakKeyDictionary[MaskedLMHead, _Said] = WeakKeyDictionary()
"""By the teacher's head, which all students of a group share: it is asked once for all of them."""


def _said(teacher: MaskedLMHead, states: Tensor, words: Tensor) -> _Said:
    known = _SAID.get(teacher)
    if known is None or known.states is not states:
        places = states[:: max(1, len(states) // PLACES)]
        likely = teacher(places, words).softmax(1).mean(0)
        known = _SAID[teacher] = _Said(states, teacher.transformed(states), likely)
    return known


def _covariance(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """Covariance over words of (V, d) and (V, e) tables, weighted: (d, e), float64."""
    of = weights[:, None]
    left, right = left - (of * left).sum(0), right - (of * right).sum(0)
    return ((of * left).T @ right).double()
