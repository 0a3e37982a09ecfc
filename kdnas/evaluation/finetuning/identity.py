"""What makes two fine-tunings the same, so that a finished one is not done again."""

from __future__ import annotations

import hashlib
import json

from kdnas.evaluation.data.splitting import TUNING_SET
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.examples import TaskData

METHOD = 4
"""Version of the way of fine-tuning and scoring; older results do not count for a newer one.

Version 3 sets the dropout of every head: version 2 left DistilBERT's and ModernBERT's as they were,
and comes to the same for all models whose configuration gives the head none of its own. Version 4
comes to something else for two kinds of models: early stopping and resuming take up the layer norms
of BERTs whose files call them gamma and beta, and tagged words have a space before them whatever
class a byte-level tokenizer is of.
"""


def data_fingerprint(data: TaskData, *, tuned: bool = False) -> str:
    """Name a task's data by their content: examples in their order, parts, and labels.

    Args:
        data: of the task.
        tuned: something is chosen by the examples that are there for it, which then count too.
    """
    digest = hashlib.sha256(repr((data.task.name, data.task.metrics, data.labels)).encode())
    parts = [("train", data.train), *data.evaluations.items()]
    if tuned:
        parts.append((TUNING_SET, data.tuning))
    for name, part in parts:
        digest.update(repr((name, len(part))).encode())
        for example in part:
            digest.update(repr(example).encode("utf-8", "surrogatepass"))
    for passage in data.passages.items():
        digest.update(repr(passage).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def evaluation_key(
    model: str, task: str, data: str, settings: FinetuneSettings, seed: int, variant: str = ""
) -> str:
    """Name a fine-tuning by what decides its result.

    Args:
        model: fingerprint of the model.
        task: name of the task.
        data: fingerprint of its data.
        settings: hyper-parameters.
        seed: of the fine-tuning.
        variant: what is done to the model beside.
    """
    parts = [METHOD, model, task, data, settings.to_json(), seed]
    if variant:  # without one, keys are those of older results
        parts.append(variant)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
