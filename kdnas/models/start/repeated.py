"""Text that is said twice, in which heads can be seen that look for the same word elsewhere.

In a sentence few words come again, so that such heads hardly do anything there. But in pairs of
sentences and in longer texts they carry what is compared, and without them a student can hardly be
fine-tuned to compare.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kdnas.models.batch import Batch


def repeated(batch: Batch, longest: int, pad_id: int) -> Batch:
    """Each sequence ``[CLS] A [SEP]`` of a batch as ``[CLS] A [SEP] A [SEP]``.

    Where that would be too long A is cut, and keeps the token that ends it. It is no pair as models
    are given one: both are of token type 0, and one token stands between them in every family.

    Args:
        batch: (B, T), padding behind the tokens.
        longest: tokens that a model has positions for.
        pad_id: what stands where nothing is.
    """
    lengths = batch.attention_mask.sum(1).tolist()
    rows = [
        _twice(ids[:length], longest) for ids, length in zip(batch.input_ids, lengths, strict=True)
    ]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    real = torch.arange(ids.shape[1])[None] < torch.tensor([len(row) for row in rows])[:, None]
    return Batch.of(ids, real.long(), device=str(batch.input_ids.device))


def _twice(ids: Tensor, longest: int) -> Tensor:
    once = min(len(ids), (longest + 1) // 2)
    kept = torch.cat([ids[: once - 1], ids[-1:]])
    return torch.cat([kept, kept[1:]])
