"""Scores of the models of a pipeline: what they are compared by, and how sure a difference is.

Models are compared by their mean over the tasks that all of them have, each task counting alike.
Intervals come from drawing the examples anew (paired bootstrap) where the predictions of both lie
on this machine, elsewhere from the seeds (Welch's t; of a ratio by the delta method).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import fmean

from api.pipelines.results import Beside, Estimate
from kdnas.evaluation.reports.report import Cell
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.averages import suite_averages
from kdnas.evaluation.scoring.paired import Files, compare, compare_together


@dataclass(frozen=True)
class ScoredModel:
    """A model with its results.

    Attributes:
        name: of the model.
        results: a task and a seed each.
        files: its predictions, as far as they lie on this machine.
    """

    name: str
    results: tuple[TaskResult, ...]
    files: Files

    def mains(self, task: str) -> dict[int, float]:
        """Seed → score on a task."""
        return {result.seed: result.main for result in self.results if result.task == task}

    def on(self, task: str) -> ScoredModel:
        """The same with what is known of one task alone."""
        return ScoredModel(
            self.name,
            tuple(result for result in self.results if result.task == task),
            {key: kept for key, kept in self.files.items() if key[0] == task},
        )


class Scoring:
    """Compares models over the tasks that all of those with results have.

    Args:
        suite: of the tasks.
        models: that are compared.
        also: models that are compared with those over the same tasks if they have them all, and
            otherwise have no score.
    """

    def __init__(
        self, suite: str, models: Sequence[ScoredModel], also: Sequence[ScoredModel] = ()
    ) -> None:
        self._suite = suite
        deciding = {model.name: model for model in models if model.results}
        self._models = deciding | {model.name: model for model in also if model.results}
        self.tasks = tuple(
            task
            for task in dict.fromkeys(r.task for m in deciding.values() for r in m.results)
            if all(model.mains(task) for model in deciding.values())
        )

    @property
    def name(self) -> str:
        """What a score is: a task, or a mean of several."""
        if len(self.tasks) == 1:
            return self.tasks[0]
        averages = suite_averages(self._suite, dict.fromkeys(self.tasks, 0.0))
        exact = [average for average in averages if set(average.over) == set(self.tasks)]
        exact.sort(key=lambda average: bool(average.missing))  # whole ones first
        return exact[0].label if exact else f"mean of {len(self.tasks)} tasks"

    def score(self, name: str) -> Cell | None:
        """A model's score; None if it has no results, or no task is common to all models."""
        values = self._by_seed(name)
        return Cell.of(values) if values else None

    def _seeds(self, name: str) -> frozenset[int]:
        """The seeds that a model has for all tasks."""
        if name not in self._models or not self.tasks:
            return frozenset()
        mains = (self._models[name].mains(task) for task in self.tasks)
        return frozenset.intersection(*(frozenset(one) for one in mains))

    def _by_seed(self, name: str, among: frozenset[int] = frozenset()) -> list[float]:
        """Mean over the tasks for each seed that all tasks have, else over what there is.

        Args:
            name: of the model.
            among: of these seeds alone, if there are any.
        """
        if name not in self._models or not self.tasks:
            return []
        mains = [self._models[name].mains(task) for task in self.tasks]
        if not all(mains):
            return []
        seeds = self._seeds(name) & among if among else self._seeds(name)
        if not seeds:
            return [fmean(fmean(one.values()) for one in mains)]
        return [fmean(one[seed] for one in mains) for seed in sorted(seeds)]

    def _files(self, name: str, seeds: frozenset[int]) -> Files:
        """Predictions of a model with some of its seeds."""
        files = self._models[name].files
        return {key: kept for key, kept in files.items() if key[1] in seeds}

    def retained(self, name: str, other: str) -> Estimate | None:
        """What share of another model's score a model has; None where that is not above 0."""
        return self._compared(name, other, relative=True)

    def difference(self, name: str, other: str) -> Estimate | None:
        """How far a model's score is above another's; None if one has none."""
        return self._compared(name, other, relative=False)

    def beside(self, name: str, other: str) -> Beside | None:
        """Set a model beside another; None if one has no score."""
        difference = self.difference(name, other)
        if difference is None:
            return None
        tests = compare(self._models[name].files, self._models[other].files)
        return Beside(name, other, difference, difference.verdict, tests)

    def _compared(self, name: str, other: str, *, relative: bool) -> Estimate | None:
        """Compare by examples, if the scores can be had from what was kept of them; or by seeds.

        Where models share seeds those count alone, so that a difference and its interval are of the
        same runs also while others are not done yet, or have failed.
        """
        if name not in self._models or other not in self._models:
            return None
        shared = self._seeds(name) & self._seeds(other)
        files = self._files(name, shared), self._files(other, shared)
        is_whole = bool(shared) and all(
            (task, seed) in kept for kept in files for task in self.tasks for seed in shared
        )
        together = compare_together(*files, self.tasks) if is_whole else None
        if together is None and len(shared) < 2:
            shared = frozenset()  # of a single pair nothing could be said
        first, second = self._by_seed(name, shared), self._by_seed(other, shared)
        if not first or not second or (relative and min(fmean(first), fmean(second)) <= 0):
            return None
        value = fmean(first) / fmean(second) if relative else fmean(first) - fmean(second)
        ends = None
        if together is not None:
            ends = together.share if relative else together.difference
        if ends is not None:
            return Estimate(value, *ends, over="examples")
        spread = _spread(first, second, relative=relative)
        if spread is None:
            return Estimate(value)
        if relative:
            return Estimate(value, value * exp(-spread), value * exp(spread), over="seeds")
        return Estimate(value, value - spread, value + spread, over="seeds")


def _spread(first: Sequence[float], second: Sequence[float], *, relative: bool) -> float | None:
    """Half the 95 % interval of a difference of means, or of their logarithms.

    Returns:
        None of a single seed, or where the seeds do not differ at all, which says nothing.
    """
    if len(first) < 2 or len(second) < 2:
        return None
    errors = []
    for values in (first, second):
        mean = fmean(values)
        variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
        errors.append(variance / len(values) / (mean**2 if relative else 1))
    if not sum(errors):
        return None
    from scipy.special import stdtrit  # takes half a second to load

    weights = sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (first, second), strict=True)
    )
    freedom = sum(errors) ** 2 / weights
    return float(stdtrit(freedom, 0.975)) * sqrt(sum(errors))
