"""Published results, as the papers print them, to be read beside our own.

The figures lie in ``published_tables``, a file a paper. What a paper does not say is None, and
figures that could not be read with certainty are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml


@dataclass(frozen=True, slots=True)
class Score:
    """One figure of a result.

    Attributes:
        task: such as ``MNLI``, ``XNLI sw``, or the name of an average.
        metric: ``accuracy``, ``F1``, ``EM``, ``Matthews``, ``Pearson``, ``Spearman`` …; None where
            the paper does not name it.
        value: as printed, most often in per cent.
        deviation: over seeds, where it is printed.
    """

    task: str
    metric: str | None
    value: float
    deviation: float | None = None


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """A row of a published table.

    Attributes:
        paper: first author and year, such as ``trivedi2023``.
        authors: for a citation.
        year: of publication.
        table: its number in the paper.
        section: where the table belongs.
        about: what the table shows.
        model: what the paper calls the student, or the teacher.
        method: how it was made.
        objective: the objective of ours that this is, where there is one.
        mapping: the layer mapping of ours that this is.
        teacher: who taught it.
        teacher_layer: which layer of the teacher was transferred; L is the last.
        layers: of the student.
        heads: attention heads.
        hidden: hidden size.
        intermediate: intermediate size.
        activation: of the feed-forward part.
        params_millions: embeddings included.
        speedup: over BERT Base.
        cpu_ms: latency of one sentence on a CPU.
        gpu_ms: latency of one sentence on a GPU.
        training: data and length of the distillation.
        split: ``dev`` or ``test``.
        runs: how many fine-tunings a score is the mean of.
        note: what is odd about the row.
        scores: the figures in the order of the table.
        averages: name of an average → the tasks that it is the mean of.
    """

    paper: str
    authors: str
    year: int
    table: str
    section: str
    about: str
    model: str
    method: str
    scores: tuple[Score, ...]
    averages: Mapping[str, tuple[str, ...]]
    objective: str | None = None
    mapping: str | None = None
    teacher: str | None = None
    teacher_layer: str | None = None
    layers: int | None = None
    heads: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    activation: str | None = None
    params_millions: float | None = None
    speedup: float | None = None
    cpu_ms: float | None = None
    gpu_ms: float | None = None
    training: str | None = None
    split: str | None = None
    runs: int | None = None
    note: str | None = None

    def score(self, task: str) -> Score | None:
        """Return the figure of a task, however its name is capitalised; None if there is none."""
        wanted = task.casefold()
        return next((score for score in self.scores if score.task.casefold() == wanted), None)


def published(
    *,
    paper: str | None = None,
    table: str | None = None,
    task: str | None = None,
    method: str | None = None,
    objective: str | None = None,
    model: str | None = None,
) -> tuple[PublishedResult, ...]:
    """Select published results; what is None selects nothing away.

    Capitals make no difference.

    Args:
        paper: its key, or the beginning of it, such as ``wang``.
        table: number of the table.
        task: only rows with a figure of this task.
        method: a part of the method's name, such as ``Universal-KD``.
        objective: name of an objective of ours.
        model: a part of the model's name.

    Returns:
        Rows in the order of the papers, oldest first, and of their tables.
    """
    return tuple(
        row
        for row in _all()
        if (paper is None or row.paper.startswith(paper.casefold()))
        and (table is None or row.table == table)
        and (task is None or row.score(task) is not None)
        and (method is None or method.casefold() in row.method.casefold())
        and (objective is None or row.objective == objective.casefold())
        and (model is None or model.casefold() in row.model.casefold())
    )


def papers() -> tuple[str, ...]:
    """Keys of the papers, oldest first."""
    return tuple(dict.fromkeys(row.paper for row in _all()))


@cache
def _all() -> tuple[PublishedResult, ...]:
    folder = resources.files("kdnas.evaluation.reports") / "published_tables"
    read = [
        yaml.safe_load(file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    ]
    read.sort(key=lambda paper: (paper["year"], paper["paper"]))
    return tuple(
        _result(paper, table, row)
        for paper in read
        for table in paper["tables"]
        for row in table["rows"]
    )


def _result(
    paper: Mapping[str, Any], table: Mapping[str, Any], row: Mapping[str, Any]
) -> PublishedResult:
    """Read a row; what it does not say itself is that of its table and of its model."""
    models = paper.get("models") or {}
    facts = {**table, **models.get(row["model"], {}), **row}
    metrics, averages = table.get("metrics", {}), table.get("averages", {})
    cells = zip(table["columns"], row["scores"], strict=True)
    for key in ("rows", "columns", "metrics", "averages", "scores"):
        facts.pop(key, None)
    return PublishedResult(
        **facts,
        paper=paper["paper"],
        authors=paper["authors"],
        year=paper["year"],
        scores=tuple(
            _score(task, metrics.get(task), cell) for task, cell in cells if cell is not None
        ),
        averages={name: tuple(tasks) for name, tasks in averages.items()},
    )


def _score(task: str, metric: str | None, cell: float | str) -> Score:
    """Read ``76.1`` or ``76.1±0.6``."""
    value, _, deviation = str(cell).partition("±")
    return Score(task, metric, float(value), float(deviation) if deviation else None)
