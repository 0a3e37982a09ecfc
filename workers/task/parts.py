"""Parts of a task's data as what is trained takes them, and scores of what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from kdnas.evaluation.data.splitting import TUNING_SET
from kdnas.evaluation.finetuning.text import TextEncoding
from kdnas.evaluation.results import main_score
from kdnas.evaluation.scoring.judging import judge
from kdnas.evaluation.tasks.examples import Example, TaskData, TextExample
from kdnas.taskspecific.examples import Examples


@dataclass(frozen=True)
class Part:
    """Some examples of the task, as tokens, with their labels.

    Attributes:
        examples: as read.
        tokens: the same, cut.
    """

    examples: Sequence[TextExample]
    tokens: Examples


def part_of(examples: Sequence[Example], encoding: TextEncoding, data: TaskData) -> Part:
    """Tokenise some examples of a task.

    Args:
        examples: to take.
        encoding: of the teacher, which its students read like it.
        data: of the task, whose labels are in the order of the outputs.
    """
    texts = [example for example in examples if isinstance(example, TextExample)]
    encoded = encoding.token_ids(texts)
    ids = [np.array(row, np.int64) for row in encoded["input_ids"]]
    types = encoded.get("token_type_ids")
    if data.labels is None:
        labels = torch.tensor([float(cast(float, e.label)) for e in texts])
    else:
        numbers = {label: number for number, label in enumerate(data.labels)}
        labels = torch.tensor([numbers[str(e.label)] for e in texts])
    return Part(
        texts,
        Examples(
            ids,
            None if types is None else [np.array(row, np.int64) for row in types],
            labels,
            encoding.pad_id,
            encoding.max_length,
        ),
    )


@dataclass(frozen=True)
class Judge:
    """Scores outputs of any network of the task.

    Attributes:
        data: of the task.
        encoding: that makes predictions of outputs.
    """

    data: TaskData
    encoding: TextEncoding

    def metrics(self, examples: Sequence[TextExample], logits: Tensor) -> dict[str, float]:
        """All metrics of logits (E, K) in the order of the examples."""
        said = [
            self.encoding.prediction(example, row)
            for example, row in zip(examples, logits, strict=True)
        ]
        return judge(self.data.task, said, examples)

    def main(self, examples: Sequence[TextExample], logits: Tensor) -> float:
        """The score that counts."""
        return main_score(self.data.task, {TUNING_SET: self.metrics(examples, logits)})
