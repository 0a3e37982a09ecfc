"""Classification and regression of a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.results import Prediction
from kdnas.evaluation.tasks.examples import TaskData, TextExample


class TextEncoding:
    """Texts as batches, and what the head says as labels or numbers.

    Texts are tokenised batch by batch while the model works, so that a large training set needs
    no memory of its own and none of it is tokenised in vain.

    Args:
        task_model: whose tokenizer cuts the texts.
        labels: of a classification; None for a regression.
        max_length: tokens of an example; of a pair, the longer text is cut first.
        several: whether a text may have several labels, or none: each is said or not for itself.
    """

    def __init__(
        self,
        task_model: TaskModel,
        labels: Sequence[str] | None,
        max_length: int,
        *,
        several: bool = False,
    ) -> None:
        self._task_model = task_model
        self._labels = labels
        self._numbers = {label: i for i, label in enumerate(labels or ())}
        self.max_length = max_length
        self._several = several

    @property
    def pad_id(self) -> int:
        """Token that fills up a batch."""
        return int(self._task_model.tokenizer.pad_token_id)

    def items(self, examples: Sequence[TextExample]) -> Sequence[TextExample]:
        """Return what is trained on: the examples as they are."""
        return examples

    def collate(self, examples: Sequence[TextExample]) -> dict[str, Tensor]:
        """Make a training batch: input ids and masks (B, T), labels (B,), of several (B, L)."""
        if self._labels is None:
            labels = torch.tensor([e.number for e in examples], dtype=torch.float32)
        elif self._several:
            rows = [[float(name in e.classes) for name in self._labels] for e in examples]
            labels = torch.tensor(rows)
        else:
            labels = torch.tensor([self._numbers[str(e.label)] for e in examples])
        return {**self._encode(examples), "labels": labels}

    def predict(self, examples: Sequence[TextExample], forward: Forward) -> list[Prediction]:
        """Say which label or number each example gets, in the order of the examples."""
        rows = self.logits(examples, forward)
        return [self.prediction(e, row) for e, row in zip(examples, rows, strict=True)]

    def logits(self, examples: Sequence[TextExample], forward: Forward) -> list[Tensor]:
        """Return what the head gives, (labels,) or (1,) each, in the order of the examples."""
        found: dict[int, Tensor] = {}
        for places, (logits,) in forward(examples, _length, self._encode):
            found.update(zip(places, logits, strict=True))
        return [found[i] for i in range(len(examples))]

    def prediction(self, example: TextExample, logits: Tensor) -> Prediction:
        """Say what the head's outputs, (labels,) or (1,), mean for an example."""
        if self._labels is None:
            number = float(logits.squeeze())
            right = example.number
            return Prediction(example.id, number, -abs(number - right), right, example.asked())
        if self._several:
            return self._of_several(example, logits, self._labels)
        label = self._labels[int(logits.argmax())]
        shares = _rounded(logits.double().softmax(-1))
        return Prediction(
            example.id,
            label,
            float(label == example.label),
            example.label,
            example.asked(),
            probabilities=dict(zip(self._labels, shares, strict=True)),
        )

    def _of_several(
        self, example: TextExample, logits: Tensor, labels: Sequence[str]
    ) -> Prediction:
        shares = dict(zip(labels, _rounded(logits.double().sigmoid()), strict=True))
        said, right = said_of(shares), example.classes
        score = float(set(said) == set(right))
        return Prediction(example.id, said, score, right, example.asked(), probabilities=shares)

    def token_ids(self, examples: Sequence[TextExample]) -> Mapping[str, list[list[int]]]:
        """Cut examples into tokens without padding: ``input_ids``, ``token_type_ids`` and the like.

        Types of tokens are there whether or not this model takes them: others that read the same
        tokens may.
        """
        return self._tokenised(examples, return_token_type_ids=True)

    def _encode(self, examples: Sequence[TextExample]) -> dict[str, Tensor]:
        encoded = self._tokenised(examples, padding="longest", return_tensors="pt")
        return self._task_model.taken(encoded)

    def _tokenised(self, examples: Sequence[TextExample], **options: Any) -> Mapping[str, Any]:
        pairs = [e.pair for e in examples]
        encoded: Mapping[str, Any] = self._task_model.tokenizer(
            [e.text for e in examples],
            None if any(pair is None for pair in pairs) else pairs,
            truncation=True,
            max_length=self.max_length,
            **options,
        )
        return encoded


def said_of(probabilities: Mapping[str, float]) -> tuple[str, ...]:
    """Of several labels those that are more likely than not, in the alphabet's order."""
    return tuple(sorted(label for label, share in probabilities.items() if share > 0.5))


def _rounded(shares: Tensor) -> list[float]:
    """As many digits as float32 has: files of them are no longer than they need to be."""
    return [round(share, 7) for share in shares.tolist()]


def _length(example: TextExample) -> int:
    return len(example.text) + len(example.pair or "")


def mean_number(data: TaskData) -> float:
    """The mean of what a regression learns from; 0 of any other task."""
    if data.task.kind != "regression":
        return 0.0
    return fmean(e.number for e in data.train if isinstance(e, TextExample))
