"""Which parameters an optimiser treats alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn


def parameter_groups(
    parameters: Iterable[nn.Parameter], weight_decay: float
) -> list[dict[str, Any]]:
    """Cut parameters into AdamW's groups: matrices and embeddings decay, the rest does not.

    Biases and the scales of LayerNorms have one dimension. Decay would only pull them off the
    values that the data want, as in BERT's own training, which leaves them out (Devlin et al. 2019,
    ``optimization.py``).

    Returns:
        One group or two, each in the order given; no group is empty.
    """
    parameters = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
