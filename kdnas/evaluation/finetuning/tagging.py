"""Tagging of words: each word's first piece carries its tag, all other pieces are ignored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.results import Prediction
from kdnas.evaluation.tasks.examples import TaggedExample

IGNORED = -100
"""Label of pieces that do not count (PyTorch's cross-entropy leaves them out)."""


class TaggingEncoding:
    """Sentences of words as batches, and what the head says as tags.

    A word that the tokenizer gives no piece for, or that lies beyond ``max_length``, is predicted
    to be outside of any span.

    Args:
        task_model: whose tokenizer cuts the words.
        labels: all tags.
        max_length: pieces of a sentence.
    """

    def __init__(self, task_model: TaskModel, labels: Sequence[str], max_length: int) -> None:
        self._task_model = task_model
        self._labels = labels
        self._numbers = {label: i for i, label in enumerate(labels)}
        self._outside = "O" if "O" in self._numbers else labels[0]
        self._max_length = max_length

    def items(self, examples: Sequence[TaggedExample]) -> Sequence[TaggedExample]:
        """Return what is trained on: the sentences as they are."""
        return examples

    def collate(self, examples: Sequence[TaggedExample]) -> dict[str, Tensor]:
        """Make a training batch: input ids and masks (B, T), labels (B, T)."""
        encoded = self._tokenize(examples)
        labels = torch.full(encoded["input_ids"].shape, IGNORED)
        for row, example in enumerate(examples):
            for word, piece in _first_pieces(encoded.word_ids(row)).items():
                labels[row, piece] = self._numbers[example.tags[word]]
        return {**self._task_model.taken(encoded), "labels": labels}

    def predict(self, examples: Sequence[TaggedExample], forward: Forward) -> list[Prediction]:
        """Tag the words of each sentence, in the order of the examples."""
        found: dict[int, Prediction] = {}
        pieces: list[dict[int, int]] = []

        def encode(batch: Sequence[TaggedExample]) -> dict[str, Tensor]:
            encoded = self._tokenize(batch)
            pieces[:] = [_first_pieces(encoded.word_ids(row)) for row in range(len(batch))]
            return self._task_model.taken(encoded)

        for places, (logits,) in forward(examples, lambda e: len(e.tokens), encode):
            numbers = logits.argmax(-1).tolist()
            for place, row, first in zip(places, numbers, pieces, strict=True):
                example = examples[place]
                tags = tuple(
                    self._labels[row[first[word]]] if word in first else self._outside
                    for word in range(len(example.tokens))
                )
                right = tuple(example.tags)
                score = float(tags == right)
                found[place] = Prediction(example.id, tags, score, right, example.asked())
        return [found[i] for i in range(len(examples))]

    def _tokenize(self, examples: Sequence[TaggedExample]) -> Any:
        return self._task_model.tokenizer(
            [list(e.tokens) for e in examples],
            is_split_into_words=True,
            truncation=True,
            max_length=self._max_length,
            padding="longest",
            return_tensors="pt",
        )


def _first_pieces(words: Sequence[int | None]) -> dict[int, int]:
    """Map each word to the place of its first piece."""
    first: dict[int, int] = {}
    for piece, word in enumerate(words):
        if word is not None:
            first.setdefault(word, piece)
    return first
