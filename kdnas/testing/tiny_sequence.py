"""Bi-LSTM and gated-CNN students small enough to build and run within a test."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kdnas.distill.export import copy_tokenizer
from kdnas.models.families import family_of
from kdnas.models.sequence.config import SequenceConfig
from kdnas.models.sequence.model import SequenceClassifier
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher


def make_tiny_sequence(
    folder: Path,
    kind: str = "bilstm",
    labels: tuple[str, ...] = ("no", "yes"),
    *,
    words: Iterable[str] = (),
    hidden: int = 24,
    seed: int = 0,
    **config_values: Any,
) -> SequenceClassifier:
    """Save a student with random layers, over the word embeddings of a tiny teacher.

    Args:
        folder: where to save it, with the teacher's tokenizer; made if missing.
        kind: ``bilstm`` or ``gated-cnn``.
        labels: names of the classes; none of a regression.
        words: whole words of the tokenizer's vocabulary.
        hidden: width of the states.
        seed: of the weights.
        config_values: other values of ``SequenceConfig.for_teacher``.

    Returns:
        The student, in eval mode.
    """
    own = make_tiny_teacher(folder / "teacher", layers=1, words=words)
    teacher = prepare_teacher(str(own))
    config = SequenceConfig.for_teacher(kind, teacher, labels, hidden=hidden, **config_values)
    table = family_of("bert").word_embeddings(load_teacher_model(teacher))
    model = SequenceClassifier.from_teacher(config, table, seed).eval()
    model.save_pretrained(folder)
    copy_tokenizer(teacher, folder)
    shutil.rmtree(own)
    return model
