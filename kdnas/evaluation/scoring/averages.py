"""Averages that papers report, under the names that published tables use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from kdnas.evaluation.tasks.task import Task

# WNLI is left out by every paper: its development part contradicts its training part.
GLUE_TASKS = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")
AVERAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "glue": {
        "GLUE": GLUE_TASKS,
        "GLUE w/o CoLA": tuple(task for task in GLUE_TASKS if task != "CoLA"),
    },
}


@dataclass(frozen=True, slots=True)
class Average:
    """A mean in which each task, or each language, counts alike.

    Attributes:
        name: as in published tables.
        value: mean of what there is.
        over: tasks or languages in it.
        missing: those that papers have and this lacks: if there are any, the value is not to be
            compared with a published one.
    """

    name: str
    value: float
    over: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def label(self) -> str:
        """The name, and how many of how many are in it where some are missing."""
        if not self.missing:
            return self.name
        return f"{self.name} ({self._how_many})"

    @property
    def long_label(self) -> str:
        """The name, and which of them are in it, or which are not, where some are missing."""
        if not self.missing:
            return self.name
        is_most = len(self.over) > len(self.missing)
        which = f"without {', '.join(self.missing)}" if is_most else ", ".join(self.over)
        return f"{self.name} ({self._how_many}: {which})"

    @property
    def _how_many(self) -> str:
        return f"{len(self.over)} of {len(self.over) + len(self.missing)}"


def suite_averages(suite: str, scores: Mapping[str, float]) -> list[Average]:
    """Averages over the tasks of a suite.

    Args:
        suite: key of ``tasks.SUITES``; only GLUE has averages over tasks.
        scores: task → its main metric.

    Returns:
        One for each average that at least two of its tasks enter; in the order of ``AVERAGES``.
    """
    averages = (_average(name, tasks, scores) for name, tasks in AVERAGES.get(suite, {}).items())
    return [average for average in averages if average and len(average.over) > 1]


def language_average(
    task: Task, metrics: Mapping[str, Mapping[str, float]], metric: str | None = None
) -> Average | None:
    """The mean over the languages of a multilingual task; None where the task has none.

    Args:
        task: such as XNLI.
        metrics: language → metric → value.
        metric: which one; the main one by default.
    """
    languages = tuple(dict.fromkeys(task.layout.languages.values()))
    if not languages:
        return None
    chosen = metric or task.main_metric
    scores = {name: values[chosen] for name, values in metrics.items() if chosen in values}
    return _average(task.name, languages, scores)


def _average(name: str, wanted: Sequence[str], scores: Mapping[str, float]) -> Average | None:
    over = tuple(one for one in wanted if one in scores)
    if not over:
        return None
    missing = tuple(one for one in wanted if one not in scores)
    return Average(name, fmean(scores[one] for one in over), over, missing)
