"""Hyper-parameters as published: Tables 7, 8 and 9 of Wu et al. 2021, by student and task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EPOCHS, FINETUNE_EPOCHS = 20.0, 10.0
"""Of the two stages (§5.2); stated of Transformers, taken for the other students too."""
EPOCHS_OF: Final[Mapping[str, float]] = {"CoLA": 50.0}
"""Of the first stage, where they are others (§5.2)."""
WEIGHT_DECAY: Final = 0.01
"""Of Transformers, as usual for BERT; for the other students the paper names Adam (App. A.2), which
has none."""
DROPOUT: Final = 0.1
"""Of Transformers, as usual for BERT; the paper states it for the other students alone."""


@dataclass(frozen=True, slots=True)
class PublishedChoice:
    """What was found best for a student on a task.

    Attributes:
        learning_rate: peak rate.
        batch_size: examples of a step.
        beta: β of Eq. 10.
        dropout: of the student.
    """

    learning_rate: float
    batch_size: int
    beta: float
    dropout: float = DROPOUT


_TASKS: Final = ("CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B")


def _table(
    rates: tuple[float, ...],
    batches: tuple[int, ...],
    betas: tuple[float, ...],
    dropouts: tuple[float, ...] = (DROPOUT,) * len(_TASKS),
) -> dict[str, PublishedChoice]:
    rows = zip(rates, batches, betas, dropouts, strict=True)
    return {task: PublishedChoice(*row) for task, row in zip(_TASKS, rows, strict=True)}


_SEQUENCE_RATES = (2e-4, 2e-5, 3e-5, 2e-5, 3e-5, 1e-5, 5e-5, 1e-5)
_SEQUENCE_BETAS = (0.5, 0.5, 0.7, 0.5, 0.5, 0.5, 0.7, 0.2)
_SEQUENCE_DROPOUTS = (0.4, 0.1, 0.4, 0.2, 0.1, 0.4, 0.3, 0.4)

TABLES: Final[Mapping[str, Mapping[str, PublishedChoice]]] = {
    "bert-4": _table(
        (5e-5, 5e-5, 2e-5, 5e-5, 2e-5, 5e-5, 2e-5, 5e-5),
        (32, 32, 32, 32, 32, 16, 32, 32),
        (0.2, 0.5, 0.5, 0.5, 0.7, 0.5, 0.5, 0.2),
    ),
    "distilroberta": _table(
        (2e-5, 2e-5, 5e-5, 5e-5, 5e-5, 5e-5, 5e-5, 5e-5),
        (32, 32, 32, 32, 32, 16, 16, 32),
        (0.5,) * len(_TASKS),
    ),
    "bilstm": _table(
        _SEQUENCE_RATES, (8, 64, 64, 32, 64, 8, 32, 8), _SEQUENCE_BETAS, _SEQUENCE_DROPOUTS
    ),
    "gated-cnn": _table(
        _SEQUENCE_RATES, (64, 64, 16, 32, 32, 16, 64, 8), _SEQUENCE_BETAS, _SEQUENCE_DROPOUTS
    ),
}
"""Student → task → what was found best."""

USUAL: Final[Mapping[str, PublishedChoice]] = {
    "bert-4": PublishedChoice(5e-5, 32, 0.5),
    "distilroberta": PublishedChoice(5e-5, 32, 0.5),
    "bilstm": PublishedChoice(5e-5, 32, 0.5, 0.3),
    "gated-cnn": PublishedChoice(5e-5, 32, 0.5, 0.3),
}
"""For a task that is not in the tables: what most of a table's columns have, or lies between."""


def table_for(student_kind: str, teacher_family: str) -> str:
    """Name the table that is nearest to a student: by its kind, a Transformer's by its teacher.

    Args:
        student_kind: ``transformer``, ``bilstm`` or ``gated-cnn``.
        teacher_family: model type of the teacher.
    """
    if student_kind != "transformer":
        return student_kind
    return "distilroberta" if teacher_family in {"roberta", "xlm-roberta"} else "bert-4"


def published_choice(table: str, task: str | None) -> PublishedChoice:
    """Return what a table has for a task, or what is usual in it, as for a task that is unknown."""
    return TABLES[table].get(task or "", USUAL[table])


def published_epochs(task: str | None) -> tuple[float, float]:
    """Epochs of the first and of the second stage; None is a task that is unknown."""
    return EPOCHS_OF.get(task or "", EPOCHS), FINETUNE_EPOCHS
