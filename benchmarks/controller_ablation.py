"""What each part of the learning controller brings: one at a time left out or put in its place.

    python benchmarks/controller_ablation.py run --results FOLDER
    python benchmarks/controller_ablation.py report --results FOLDER --output PAGE

Each variant searches tables and formulas 20 times by the real loop, with goal ``front`` and without
the losses with which states start, as the strategies beside it do. What is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final
from unittest.mock import patch

import numpy as np
from search_study import star, words
from study_files import publish

from api.tabular import compare_strategies
from controller.encoding import Array, StateEncoder
from controller.learning import LearningController, sequences_of
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem

CHOSEN_ON: Final = ("minilm", "additive", "rough")
TABLES: Final = (*CHOSEN_ON, "minilm-relations", "minilm-wikitext")
"""Settings were chosen on some, and not on the last two, but for two that the page names."""
SEEDS: Final = 20
BUDGETS: Final = ("40", "60", "100")
CANDIDATES: Final = 20


FINDINGS: Final = (
    "- **What helps.** To learn from all that was trained, and the loss in place of rewards; axes "
    "as numbers on a logarithmic scale; to learn for long enough; on the trained tables also "
    "standardised losses, and axes that are read one after the other. As published (the last "
    "episode, rewards, one-hot) each is worse on two at least of the three tables that were chosen "
    "on. On the trained tables a regression on what LSTMs have read misses less than one on the "
    "numbers alone (on `minilm` a fifth as much); on the two formulas the numbers are as good.",
    "- **What does not.** Four LSTMs are no better than one, nor 64 cells than 32. To be told what "
    "size says, and first picks by size, matter little after 60 trainings. So does how sure it is: "
    "no confidence at all, Thompson's draws, and picks of an episode that do not know of each "
    "other are as good here. Four times the regression's own uncertainty is no better on any "
    "table, and with goal `reward` on `rough` took 69 trainings in place of 47. One pick in five "
    "that is drawn is no better either. Three times as many epochs are good on the trained tables, "
    "of which one was chosen on, and a little worse on `rough`. A warm start from other searches "
    "or tables was not tried.",
    "- **A start that is known** is the strongest input. With it the controller has the front "
    "after 15 trainings in place of 40 on `minilm`, 46 in place of 137 on `rough`, 10 of 41 on "
    "`minilm-relations` and 12 of 31 on `minilm-wikitext`; on `additive` 29 both ways "
    "(docs/results/search.md).",
)


class _Patched(LearningController):
    """The controller with other constants: ``module.NAME`` → value."""

    constants: ClassVar[Mapping[str, float]] = {}

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose states."""
        with self._changed():
            return super().ask(episode, count, allowed, history)

    def tell(self, episode: int, history: History) -> float | None:
        """Learn from an episode."""
        with self._changed():
            return super().tell(episode, history)

    def _changed(self) -> ExitStack:
        stack = ExitStack()
        for name, value in self.constants.items():
            stack.enter_context(patch(f"controller.{name}", value))
        return stack


class OneMember(_Patched):
    """No ensemble."""

    constants: ClassVar = {"lstm.MEMBERS": 1}


class Untrained(_Patched):
    """LSTMs keep their first weights; the regression alone learns."""

    constants: ClassVar = {"lstm.EPOCHS": 0}


class LongerTraining(_Patched):
    """Three times as many epochs."""

    constants: ClassVar = {"lstm.EPOCHS": 180}


class ShorterTraining(_Patched):
    """A third of the epochs."""

    constants: ClassVar = {"lstm.EPOCHS": 20}


class SlowerLearning(_Patched):
    """A tenth of the learning rate."""

    constants: ClassVar = {"lstm.LEARNING_RATE": 1e-3}


class MoreCells(_Patched):
    """Twice as many cells."""

    constants: ClassVar = {"lstm.CELLS": 64}


class FewerCells(_Patched):
    """Half as many cells."""

    constants: ClassVar = {"lstm.CELLS": 16}


class MoreDoubt(LearningController):
    """Four times the regression's own uncertainty."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.confidence *= 4


class Greedy(LearningController):
    """The best predictions, without upper confidence."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.confidence = 0.0


class DrawnFirst(_Patched):
    """First picks are drawn, but for one, in place of half of them by size."""

    constants: ClassVar = {"modelled.BY_SIZE": sys.maxsize}


class AtOnce(LearningController):
    """Axes in one step in place of one after the other."""

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        super().begin(problem)
        self._sequences = self.features[None]


class OneHot(LearningController):
    """Axes one-hot, as published, in place of numbers on a logarithmic scale."""

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        super().begin(problem)
        encoded = StateEncoder(problem.space).states
        varied = encoded[:, encoded.std(axis=0) > 0]
        binary = [column for column in varied.T if set(np.unique(column)) == {0.0, 1.0}]
        self.features = np.array(binary).T - np.mean(binary, axis=1)
        self._sequences = self.features[None]


class NoSize(LearningController):
    """Not told what size alone says of the loss, but for the first picks."""

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        super().begin(problem)
        *self.groups, size = self.groups
        self.features = np.delete(self.features, size, axis=1)
        self._sequences = sequences_of(self.features, self.groups)


class AsTheyAre(LearningController):
    """Losses as they are, in place of standardised ones."""

    def scale_of(self, losses: Array) -> tuple[float, float]:
        """Leave them."""
        return 0.0, 1.0


class NoSequence(LearningController):
    """A regression on the numbers alone: no LSTM."""

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        super().begin(problem)
        self._sequences = np.zeros_like(self._sequences)


class Thompson(LearningController):
    """Losses drawn from one LSTM's belief, anew for each pick, in place of upper confidence."""

    looked = sys.maxsize  # a shortlist would be by upper confidence

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose states."""
        self._rng = np.random.default_rng([self._seed, episode])
        return super().ask(episode, count, allowed, history)

    def hoped(self, belief: Any) -> Array:
        """Draw a member, and losses from it."""
        member = belief._members[self._rng.integers(len(belief._members))]
        variances, axes = np.linalg.eigh(member._covariance)
        deviations = np.sqrt(variances.clip(min=0))
        drawn: Array = axes @ (deviations * self._rng.normal(size=len(deviations)))
        return member.mean + member._features @ drawn


class LastEpisode(LearningController):
    """Learns from the last episode alone, as published."""

    def tell(self, episode: int, history: History) -> float | None:
        """Learn from an episode."""
        return super().tell(episode, History(history.episodes[-1:]))

    def believe(self, known: Mapping[int, float], *rest: Any) -> Any:
        """Model the loss."""
        return super().believe({i: known[i] for i in self._last if i in known}, *rest)

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose states."""
        last = history.episodes[-1] if history.episodes else ()
        self._last = [o.index for o in last]
        return super().ask(episode, count, allowed, history)


class LikePicks(LearningController):
    """Picks of an episode do not know of each other."""

    def believe(self, *asked: Any) -> Any:
        """Model the loss."""
        states, belief = super().believe(*asked)
        belief.look = lambda position: None
        return states, belief


class PredictsReward(LearningController):
    """Learns rewards, from which a loss is taken back, in place of the loss."""

    looked = sys.maxsize  # a shortlist would be by what is no loss yet

    def believe(self, known: Mapping[int, float], *rest: Any) -> Any:
        """Model the loss."""
        prices = self._prices
        told = {i: 1 - prices[i] * (1 - loss) for i, loss in known.items()}
        states, belief = super().believe(told, *rest)
        own = prices[np.asarray(states)]
        belief.mean = 1 - (1 - belief.mean) / own
        for member in belief._members:
            member.variance = member.variance / own**2
        belief._between = belief._between / own**2
        return states, belief

    def begin(self, problem: SearchProblem) -> None:
        """Take note of what is known."""
        super().begin(problem)
        count = len(problem.facts)
        self._prices = np.array([problem.reward_of(i, 0.0) for i in range(count)])

    def tell(self, episode: int, history: History) -> float | None:
        """Learn from an episode."""
        return None


class RandomShare(LearningController):
    """One pick in five is drawn, as ε does, in place of the last of the hopeful ones."""

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose states."""
        hopeful = super().ask(episode, count - count // 5, allowed, history)
        taken = {proposal.index for proposal in hopeful} | history.indices
        free = [index for index in allowed if index not in taken]
        rng = np.random.default_rng([self._seed, episode])
        drawn = rng.permutation(free)[: count - len(hopeful)]
        return [*hopeful, *(Proposal(int(index), "random") for index in drawn)]


VARIANTS: Final = (
    NoSequence, Untrained, LongerTraining, ShorterTraining, SlowerLearning, MoreCells, FewerCells,
    OneMember, AtOnce, OneHot, NoSize, DrawnFirst, MoreDoubt, Greedy, Thompson, LikePicks,
    LastEpisode, PredictsReward, AsTheyAre, RandomShare,
)  # fmt: skip
BESIDE: Final = ("controller", "gp", "gp-thompson", "random", "controller-once")


def names() -> list[str]:
    """The strategies: what is there, and each variant by its class."""
    module = "controller_ablation"
    return [*BESIDE, *(f"{module}:{variant.__name__}" for variant in VARIANTS)]


def compare(table: str, folder: Path, seeds: int = SEEDS) -> dict[str, Any]:
    """Compare all variants on one table; resumes what is in the folder."""
    return compare_strategies(
        table,
        names=names(),
        seeds=seeds,
        budgets=BUDGETS,
        candidates=CANDIDATES,
        goal="front",
        latency_price=None,
        max_latency_ratio=None,
        rungs=[],
        keep=None,
        schedule=None,
        starts=False,
        reference="controller",
        workers=None,
        output=_kept(folder, table),
        on_progress=lambda done, total, name: print(f"{table} {done}/{total} {name}", flush=True),
    )


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Word what was found: a row a variant, its trainings and regrets on each table."""
    heads = [f"`{table}`: trainings | regret after {BUDGETS[1]}" for table in found]
    places = {
        table: {row["name"]: row for row in result["standings"]} for table, result in found.items()
    }
    return "\n".join(
        [
            "# What makes the controller learn",
            "",
            "The learning controller as it is, and with one thing changed at a time; beside it the "
            "Gaussian process, also with Thompson's draws in place of upper confidence, the "
            "published controller without repeats, and draws. Goal `front`, "
            f"no start known, episodes of {CANDIDATES}, {_seeds(found)} seeds on each table: "
            "trainings until 99 % of the hypervolume is recommended, and what is missing of it "
            f"after {BUDGETS[1]} trainings, in thousandths. Medians with 95 % intervals; `*`: "
            "differs from `controller` (Wilcoxon, paired by seed, Holm, p < 0.05). Settings were "
            f"chosen on {_and(CHOSEN_ON)}, where no row is a forecast; that models see what size "
            f"says, and that first picks lie apart, was tried on all five.{_still_to_come(found)}",
            "",
            f"| | {' | '.join(heads)} |",
            "|---" * (1 + 2 * len(found)) + "|",
            *(f"| {_said(name)} | {_row(name, places)} |" for name in names()),
            "",
            *FINDINGS,
            "",
            "Made with `python benchmarks/controller_ablation.py`.",
            "",
        ]
    )


def _and(names: Sequence[str]) -> str:
    *first, last = [f"`{name}`" for name in names]
    return f"{', '.join(first)} and {last}" if first else last


def _still_to_come(found: Mapping[str, Mapping[str, Any]]) -> str:
    missing = [table for table in TABLES if table not in found]
    return f" Still to come: {_and(missing)}." if missing else ""


def _seeds(found: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(map(str, sorted({result["seeds"] for result in found.values()})))


def _said(name: str) -> str:
    told = {f"controller_ablation:{v.__name__}": (v.__doc__ or "").rstrip(".") for v in VARIANTS}
    return told.get(name, f"`{name}`")


def _row(name: str, places: Mapping[str, Mapping[str, Any]]) -> str:
    cells = []
    for rows in places.values():
        row = rows[name]
        tests = row["p_regrets"] or [None] * len(BUDGETS)
        cells.append(words(row["trainings"], 1, 0) + star(row["p_trainings"]))
        cells.append(words(row["regrets"][1], 1000, 1) + star(tests[1]))
    return " | ".join(cells)


def _kept(folder: Path, table: str) -> Path:
    return folder / f"ablation-{table}.json"


def main() -> None:
    """Run the comparisons, or write the page of what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="Of the page, without an ending.")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    tables = asked.tables.split(",")
    if asked.what == "run":
        for table in tables:
            compare(table, asked.results, asked.seeds)
        return
    found = {
        table: result
        for table in tables
        if (path := _kept(asked.results, table)).exists()
        and (result := json.loads(path.read_text("utf-8")))["standings"]  # of whole comparisons
    }
    told = {
        table: {k: v for k, v in result.items() if k not in ("replays", "curves")}
        for table, result in found.items()
    }
    publish(page(found), told, asked.output)


if __name__ == "__main__":
    main()
