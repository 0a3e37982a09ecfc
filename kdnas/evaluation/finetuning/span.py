"""Questions answered by spans of a context, which is read in windows that overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from kdnas.evaluation.finetuning.forward import Forward
from kdnas.evaluation.finetuning.model import TaskModel
from kdnas.evaluation.finetuning.windows import SpanFeature, extract_answers, make_features
from kdnas.evaluation.results import Prediction
from kdnas.evaluation.scoring.answers import apply_threshold, score_answer
from kdnas.evaluation.tasks.examples import SpanExample

CHUNK = 256
"""Questions whose windows are in memory at a time while they are answered."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window to learn from, as small as it can be: a training set has a hundred thousand.

    Attributes:
        inputs: what the model takes, (T,) each.
        start: first token of the answer.
        end: last token of it.
    """

    inputs: Mapping[str, NDArray[np.int32]]
    start: int
    end: int


class SpanEncoding:
    """Questions and contexts as batches of windows, and what the head says as answers.

    Args:
        task_model: whose tokenizer cuts the texts.
        max_length: tokens of a window, with its question.
        stride: tokens that neighbouring windows share.
        may_deny: whether the model learns that a question may have no answer; otherwise it must
            always give one.
    """

    def __init__(
        self, task_model: TaskModel, max_length: int, stride: int, *, may_deny: bool
    ) -> None:
        self._task_model = task_model
        self._max_length, self._stride = max_length, stride
        self._may_deny = may_deny

    def items(self, examples: Sequence[SpanExample]) -> Sequence[Window]:
        """Return the windows of all contexts."""
        return [
            Window(
                {name: np.array(values, np.int32) for name, values in self._inputs(f).items()},
                f.start,
                f.end,
            )
            for chunk in _chunks(examples)
            for f in self._features(chunk)
        ]

    def collate(self, windows: Sequence[Window]) -> dict[str, Tensor]:
        """Make a training batch: input ids and masks (B, T), first and last tokens (B,)."""
        return {
            **self._padded([w.inputs for w in windows]),
            "start_positions": torch.tensor([w.start for w in windows]),
            "end_positions": torch.tensor([w.end for w in windows]),
        }

    def predict(self, examples: Sequence[SpanExample], forward: Forward) -> list[Prediction]:
        """Answer every question, in the order of the examples.

        A prediction is what is answered in the end: where the model may deny, and does so more
        than it believes in the best span, nothing. Its score is the F1 of that.
        """
        quiet = replace(forward, on_batch=lambda *_: None)  # windows are no examples
        predictions: list[Prediction] = []
        for chunk in _chunks(examples):
            features = self._features(chunk)
            starts: dict[int, NDArray[np.float32]] = {}
            ends: dict[int, NDArray[np.float32]] = {}
            for places, (first, last) in quiet(
                features,
                lambda f: len(f.offsets),
                lambda batch: self._padded([self._inputs(f) for f in batch]),
                ("start_logits", "end_logits"),
            ):
                for row, place in enumerate(places):
                    starts[place], ends[place] = first[row].numpy(), last[row].numpy()
            first_logits, last_logits = (
                [rows[i] for i in range(len(features))] for rows in (starts, ends)
            )
            answers, denials = extract_answers(first_logits, last_logits, features, chunk)
            given = apply_threshold(answers, denials if self._may_deny else None)
            for example in chunk:
                id_ = example.id
                f1, _ = score_answer(given[id_], example)
                said = Prediction(id_, given[id_], f1, example.answers, example.asked())
                if self._may_deny:
                    said = replace(said, best_span=answers[id_], denial=denials[id_])
                predictions.append(said)
            forward.on_batch(len(chunk), len(examples))
        return predictions

    def _features(self, examples: Sequence[SpanExample]) -> list[SpanFeature]:
        return make_features(examples, self._task_model.tokenizer, self._max_length, self._stride)

    def _inputs(self, feature: SpanFeature) -> Mapping[str, Sequence[int]]:
        return self._task_model.taken(feature.inputs)

    def _padded(
        self, rows: Sequence[Mapping[str, Sequence[int] | NDArray[np.int32]]]
    ) -> dict[str, Tensor]:
        fill = {"input_ids": self._task_model.tokenizer.pad_token_id}
        return {
            name: pad_sequence(
                [torch.as_tensor(row[name], dtype=torch.long) for row in rows],
                batch_first=True,
                padding_value=fill.get(name, 0),
            )
            for name in rows[0]
        }


def _chunks(examples: Sequence[SpanExample]) -> Iterator[Sequence[SpanExample]]:
    return (examples[i : i + CHUNK] for i in range(0, len(examples), CHUNK))
