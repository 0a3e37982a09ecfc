"""What comes out of an evaluation, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any

from kdnas.evaluation.model_figures import ModelFigures
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.evaluation.tasks.task import Task

FIGURES = "figures"
"""Entry of a result's JSON."""

Metrics = Mapping[str, Mapping[str, float]]
"""Evaluation set → metric → value, from −1 or 0 to 1."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model said about one example.

    Attributes:
        id: of the example.
        prediction: label, number, tags, names of passages that were found, or text of the answer,
            empty where it is denied.
        score: how right it is: 1 or 0 for labels and whole lists of tags, F1 for answers, the
            negative distance for numbers, the main metric for what was found.
        gold: what is right, of the type of ``prediction``; of answers all that are right, none
            where the context does not answer; of a retrieval the passages that answer.
        asked: what the model was asked, as plain JSON.
        best_span: text of the best answer, denied or not, where the model may deny.
        denial: how strongly the model denies that the question has an answer, where it may.
        probabilities: of a classification, label → how likely the model thinks it.
        passage: text of the passage that was found first.
    """

    id: str
    prediction: str | float | tuple[str, ...]
    score: float
    gold: str | float | tuple[str, ...] | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    best_span: str | None = None
    denial: float | None = None
    probabilities: Mapping[str, float] | None = None
    passage: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, without what this kind of task does not have.

        ``kdnas predict`` answers in the same keys, without ``gold`` and ``score``.
        """
        values = {
            "id": self.id,
            **self.asked,
            "prediction": self.prediction,
            "gold": self.gold,
            "score": self.score,
            "passage": self.passage,
            "best_span": self.best_span,
            "denial": self.denial if self.denial is None or isfinite(self.denial) else None,
            "probability": self.probabilities and self.probabilities.get(str(self.prediction)),
            "probabilities": self.probabilities,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A model's figures on one task with one seed.

    Attributes:
        task: its name.
        suite: that it belongs to.
        seed: of the fine-tuning.
        settings: of the fine-tuning.
        metrics: evaluation set → metric → value.
        main: the task's score: see :func:`main_score`.
        seconds: training and scoring, of this and of earlier, interrupted runs.
        steps: optimiser steps taken.
        train_examples: how many there were to learn from.
        official_split: whether training and evaluation sets are the benchmark's own.
        sources: files or data sets used.
        notes: what a reader of the figures should know.
        predictions: evaluation set → what was said about each example; empty when read back.
        figures: size and speed of the model, if they were measured.
    """

    task: str
    suite: str
    seed: int
    settings: FinetuneSettings
    metrics: Metrics
    main: float
    seconds: float
    steps: int
    train_examples: int
    official_split: bool
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    predictions: Mapping[str, tuple[Prediction, ...]] = field(default_factory=dict)
    figures: ModelFigures | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values without the predictions; :meth:`from_json` takes them back."""
        return {
            "task": self.task,
            "suite": self.suite,
            "seed": self.seed,
            "settings": self.settings.to_json(),
            "metrics": {name: dict(values) for name, values in self.metrics.items()},
            "main": self.main,
            "seconds": self.seconds,
            "steps": self.steps,
            "train_examples": self.train_examples,
            "official_split": self.official_split,
            "sources": list(self.sources),
            "notes": list(self.notes),
            FIGURES: self.figures and self.figures.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TaskResult:
        """Read back what :meth:`to_json` gave."""
        return cls(
            **{
                **values,
                "settings": FinetuneSettings.from_json(values["settings"]),
                "sources": tuple(values["sources"]),
                "notes": tuple(values["notes"]),
                FIGURES: ModelFigures.from_json(values.get(FIGURES)),
            }
        )

    def main_metric(self) -> tuple[str, tuple[str, ...]] | None:
        """Which metric the score is, and of which evaluation sets; None if it is none of them."""
        sets = tuple(self.metrics)
        for metric in self.metrics[sets[0]] if sets else ():
            values = [self.metrics[name][metric] for name in sets if metric in self.metrics[name]]
            if values[0] == self.main:
                return metric, sets[:1]
            if len(values) == len(sets) and fmean(values) == self.main:
                return metric, sets
        return None


def main_score(task: Task, metrics: Metrics) -> float:
    """Return a task's score: its main metric.

    Of a task in many languages it is their mean, each counting alike; otherwise that of the first
    evaluation set, which of MNLI is the matched part.
    """
    if task.layout.languages:
        return fmean(values[task.main_metric] for values in metrics.values())
    return next(iter(metrics.values()))[task.main_metric]
