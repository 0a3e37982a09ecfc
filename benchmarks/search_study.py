"""What a search is worth: every strategy on every table, under every goal.

    python benchmarks/search_study.py run --results FOLDER
    python benchmarks/search_study.py report --results FOLDER --output docs/results/search

``run`` plays each strategy with many seeds by the real loop; each search is kept, and what is there
is not played again. A question is asked twice: with the losses with which states start, as a sweep
reads them, and without, since a win of that reading is no win of a strategy. ``report`` writes the
page, its figures, and a picture for each question of goal ``front``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import real_searches
from study_files import publish

from api.tabular import compare_strategies
from kdnas.cli.screens.plot import plot_regrets
from kdnas.cli.screens.tabular import REGRETS
from kdnas.tabular.surface import SYNTHETIC

TABLES: Final = ("minilm", *SYNTHETIC, "minilm-relations", "minilm-wikitext")
"""Settings were chosen on the first three, but for two that the page names."""
SEEDS: Final = 20
BUDGETS: Final = "20,60,100,300"
CANDIDATES: Final = 20
DEFAULT: Final = "gp"
"""The strategy that the presets take."""
LEARNER: Final = "controller"
BASELINES: Final = ("fastest-first", "largest-first", "size-only", "reading-only", "reading-fit")
GOALS: Final[dict[str, dict[str, float]]] = {
    "front": {},
    "limit": {"max_latency_ratio": 0.4},
    "reward": {"latency_price": 0.1},
}
BARS: Final = {"random": 4.0, "tpe": 1.5, **dict.fromkeys(BASELINES, 1.0)}
"""How many times fewer trainings than these the default needs at least."""
LOOKED_AT: Final = [60, 100, 300]
"""Trainings after which nobody may be significantly better than the default."""
LEARNER_BAR: Final = 1.5
"""How many times more trainings than the Gaussian process the controller takes at most."""

FINDINGS: Final = (
    "Names of questions are table, goal, and `blind` where no strategy knows the losses with which "
    "states start. What the figures say so far:",
    "",
    "- **To the end of a front comes a model soonest.** `gp` recommends 99 % of the hypervolume "
    "after 29 to 41 trainings on four of five tables, and after 100 on `rough`, where a part of "
    "each loss is the state's own; `controller` after 29 to 41, and 137. NSGA-II takes 146 to 282, "
    "TPE 141 to 279 or is not there after 300, draws 197 to 240 or are not there either.",
    "- **At first a rule of thumb is better than the models.** `size-only` learns nothing, and is "
    "ahead of them after 20 trainings on every table: half of the models' first picks are drawn, "
    "so that they have something to learn from. After 60 it is still ahead on `rough` (16.7 "
    "thousandths are missing, with `gp` 20.5), which misses a bar; elsewhere, and everywhere from "
    "100 on, nobody is better than `gp` over a front by more than chance. Tried on `rough`: all of "
    "the first picks by size (20.7), three quarters (23.4), a third (20.0). To its end the rule "
    "takes 47 to 199 trainings, and on `minilm-wikitext` 13, where `gp` takes 32. Its root was "
    "chosen on 688 states of `minilm`; where no start is known the models see what it says as one "
    "of their inputs.",
    "- **With a price for latency the question decides who wins, and not the search.** Students "
    "that start from their teacher are best at one end: at the default price (0.10) wide students "
    "of one layer on `minilm` and `minilm-wikitext`, the largest on `minilm-relations`. With the "
    "latencies of another machine the largest were it on `minilm`, too. Where relations are "
    "learned `largest-first` has one of the best after 3 trainings, `gp` after 55, draws after 74 "
    "and `controller` after 113, so that after 60 `largest-first` is better by more than chance. "
    "Nobody knows beforehand which end it will be; a price is for those who know what a halving of "
    "latency is worth to them. The largest state as the first of its picks would let `gp` have the "
    "best of `minilm-relations` at once, and on `rough` it took 41 trainings with it in place of "
    "34 (six seeds): it is not done, since settings are not chosen on that table.",
    "- **Within a latency the deepest and widest are nearly the best.** One of the first three "
    "picks of `gp` and `controller` is one of the best on all five tables where no start is known, "
    "as it is with `size-only`, of which they take half of their first picks; TPE takes 40 to 65 "
    "trainings. With a start that tells less (`additive`, `rough`) it is the fourth or second one.",
    "- **A loss at the start tells nearly all of the loss after 60 steps** (rank correlation .995 "
    "to .997 over the three tables; docs/results/readings.md): where it is known, `reading-only` "
    "and the models find the best in the first episode alike, which is a win of the reading. "
    "Where a start tells less (`additive`, `rough`) the models win over a front. Of the loss after "
    "960 steps it tells less: among students of like latency a rank correlation of .79, where "
    "that of the rule by size is .86.",
    "- **Where bars are missed.** On `rough` with a price (`rough-reward-blind`) twelve of 2400 "
    "states solve it, and which twelve is up to each state's own part of its loss, which no model "
    "foretells: a model leads near them, and from there on draws, too, are lucky at times. Tried "
    "there: first picks that begin with the largest state (41 trainings in place of 34), or that "
    "are spread over latencies (45), six seeds each. The LSTMs are slower where the best stand "
    "apart from what lies near them (2.1 times on `minilm-relations`, 1.4 on `rough`). With starts "
    "known `gp` takes fifteen of its first twenty picks by them and draws the others, so that it "
    "is at best even with `reading-only`, and on `minilm-reward`, where the seventeenth is the "
    "first of the best, behind by four. Ties under `limit` are of first picks that are the same. "
    "Where a bar is not shown the largest budget is too small for it: played to 600 trainings, "
    "draws have the front of `rough` after 427 (381 to 505), 4.3 times as many as `gp`.",
    "- Ratios are of medians, with intervals from seeds that are drawn in pairs. Two that do not "
    "vary with the seed are one observation each, of which no test is made: where starts are known "
    "many first picks, and with them the end of a search, are the same for all seeds.",
    "- Settings of strategies were chosen on `minilm` and the two formulas, but for two things "
    "that were tried on all five tables, with six seeds: that models see what size says (first on "
    "`minilm-wikitext`), and that first picks lie apart. There these figures are no forecast.",
    "- `controller-paper` keeps ε as published, 1 in the first episode and 0.05 less in each that "
    "follows: of its first 100 trainings nine in ten are drawn.",
    "",
)


@dataclass(frozen=True)
class Cell:
    """One question: a table, a goal, and whether starts are known."""

    table: str
    goal: str
    starts: bool

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.table}-{self.goal}{'' if self.starts else '-blind'}"

    @property
    def is_drawn(self) -> bool:
        """Whether the page has a picture of it: those of the goal that the presets ask for."""
        return self.goal == "front"

    def compare(self, results: Path, seeds: int, budgets: list[str]) -> dict[str, Any]:
        """Play what is missing, and sum up."""
        limit = GOALS[self.goal]

        def told(done: int, total: int, strategy: str) -> None:
            print(f"{self.name} {done}/{total} {strategy}", flush=True)

        return compare_strategies(
            self.table,
            names=None,
            seeds=seeds,
            budgets=budgets,
            candidates=CANDIDATES,
            goal=self.goal,
            latency_price=limit.get("latency_price"),
            max_latency_ratio=limit.get("max_latency_ratio"),
            rungs=[],
            keep=None,
            schedule=None,
            starts=self.starts,
            reference=DEFAULT,
            workers=None,
            output=results / f"{self.name}.json",
            on_progress=told,
        )


def cells(tables: list[str]) -> Iterator[Cell]:
    """All questions, the default's first."""
    for starts in (False, True):
        for goal in GOALS:
            for table in tables:
                yield Cell(table, goal, starts)


def page(found: dict[Cell, dict[str, Any]], output: Path) -> str:
    """Word what was found."""
    lines = [
        "# What a search is worth",
        "",
        f"Every strategy, episodes of {CANDIDATES}, by the loop that real searches run, on three "
        "tables of students that were trained before and two formulas (docs/tabular.md; "
        "`minilm-rungs`, of 200 states, is for docs/results/rungs.md). Solved: one of the best "
        "half per cent was trained, or with goal `front` 99 % of the hypervolume is recommended. "
        "Medians with 95 % intervals by the bootstrap; `never` is more than the largest budget. "
        f"`*`: differs from `{DEFAULT}` (Wilcoxon, paired by seed, Holm, p < 0.05).",
        "",
        *bars(found),
        *_still_to_come(found),
        *FINDINGS,
        *_real(output.with_name("real_searches.json")),
    ]
    for cell, result in found.items():
        known = "known" if cell.starts else "not known"
        lines += [
            f"## `{cell.table}`, goal `{cell.goal}`{_limit(cell.goal)}, starts {known}",
            "",
            f"{result['num_allowed']} of {result['num_states']} states may be taken; "
            f"{result['seeds']} seeds, {_noise(result)}.",
            "",
            *table(result),
            "",
            *([f"![regret]({output.name}-{cell.name}.png)", ""] if cell.is_drawn else []),
        ]
    return "\n".join(lines)


def _real(path: Path) -> list[str]:
    """What real searches found, if their own page was made before this one."""
    if not path.exists():
        return []
    return [
        "## Real searches",
        "",
        f"On another text than any table's, in full on [their own page]({path.stem}.md): means of "
        "hypervolume over 60 trainings, and of losses after longer trainings of what was found "
        "under a share of the teacher's latency, with the lowest and the highest.",
        "",
        *real_searches.rows(json.loads(path.read_text("utf-8"))),
        "",
        f"![what real searches cover, and what they find]({path.stem}.png)",
        "",
    ]


def _still_to_come(found: dict[Cell, dict[str, Any]]) -> list[str]:
    """Which questions were not asked yet."""
    missing = [f"`{cell.name}`" for cell in cells(list(TABLES)) if cell not in found]
    return [f"Still to be played: {', '.join(missing)}.", ""] if missing else []


def _noise(result: dict[str, Any]) -> str:
    known = result["knows_noise"]
    return "told with the noise of a seed" if known else "told the truth, no noise being known"


def _limit(goal: str) -> str:
    return "".join(f" ({name} {value:g})" for name, value in GOALS[goal].items())


def table(result: dict[str, Any]) -> Iterator[str]:
    """A row a strategy."""
    unit = REGRETS[result["goal"]].split(maxsplit=1)[0]
    heads = [f"regret after {n}" for n in result["budgets"]]
    yield f"| strategy | trainings | {' | '.join(heads)} (thousandths of {unit}) |"
    yield "|---" * (2 + len(heads)) + "|"
    for row in result["standings"]:
        tests = row["p_regrets"] or [None] * len(heads)
        regrets = [
            words(value, 1000, 1) + star(p) for value, p in zip(row["regrets"], tests, strict=True)
        ]
        needed = words(row["trainings"], 1, None) + star(row["p_trainings"])
        yield f"| `{row['name']}` | {needed} | {' | '.join(regrets)} |"


def words(interval: list[float | None], scale: float, digits: int | None) -> str:
    """A median with its interval; without digits as it is, such as with a half."""
    how = "g" if digits is None else f".{digits}f"
    told = ["never" if x is None else f"{x * scale:{how}}" for x in interval]
    return told[0] if told[1] == told[2] else f"{told[0]} ({told[1]} to {told[2]})"


def star(p: float | None) -> str:
    """Mark a difference."""
    return "*" if p is not None and p < 0.05 else ""


def bars(found: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    """Say of each question which bars are met and which are missed."""
    yield "| question | " + " | ".join(_bar_heads()) + " |"
    yield "|---" * (1 + len(_bar_heads())) + "|"
    for cell, result in found.items():
        rows = {row["name"]: row for row in result["standings"]}
        own = rows[DEFAULT]["trainings"]
        shown = [
            _verdict(rows[name], own, bar, result["budgets"][-1]) if name in rows else "not played"
            for name, bar in BARS.items()
        ]
        shown += [_learner(rows[LEARNER], own), _better(result)]
        yield f"| `{cell.name}` | {words(own, 1, None)} | " + " | ".join(shown) + " |"
    yield ""


def _bar_heads() -> list[str]:
    fewer = [f"× fewer than `{name}` (≥ {bar:g})" for name, bar in BARS.items()]
    learner = f"`{LEARNER}` takes × as many (≤ {LEARNER_BAR:g})"
    return [
        f"`{DEFAULT}`: trainings",
        *fewer,
        learner,
        f"significantly better at {', '.join(map(str, LOOKED_AT))}",
    ]


def _verdict(row: dict[str, Any], own: list[float | None], bar: float, last: int) -> str:
    """How many times fewer trainings the default takes, and whether that is enough.

    Of who has not solved it after the last training all that is known is a bound.
    """
    if own[0] is None:
        return "neither solved" if row["trainings"][0] is None else "`never` **missed**"
    ratio = row["times_reference"][0]
    if ratio is None and last / own[0] < bar:
        return f"{_times(row)}: more than {last / own[0]:.1f}, **not shown**"
    met = ratio is None or (ratio >= bar if bar > 1 else ratio > bar)
    return _times(row) + ("" if met else " **missed**")


def _learner(row: dict[str, Any], own: list[float | None]) -> str:
    """How many times as many trainings the controller takes."""
    if own[0] is None:
        return "neither solved" if row["trainings"][0] is None else _times(row, 2)
    ratio = row["times_reference"][0]
    met = ratio is not None and ratio <= LEARNER_BAR
    return _times(row, 2) + ("" if met else " **missed**")


def _times(row: dict[str, Any], digits: int = 1) -> str:
    """A ratio of trainings with its interval."""
    median, low, _ = row["times_reference"]
    if median is not None:
        return words(row["times_reference"], 1, digits)
    return "it never" if low is None else f"it never ({low:.{digits}f} to never)"


def _better(result: dict[str, Any]) -> str:
    """Who is significantly better than the default after 60, 100 or 300 trainings."""
    own = next(row for row in result["standings"] if row["name"] == DEFAULT)
    found = [
        f"`{row['name']}` at {budget}"
        for row in result["standings"]
        for budget, p, value, ours in zip(
            result["budgets"], row["p_regrets"] or (), row["regrets"], own["regrets"], strict=False
        )
        if budget >= LOOKED_AT[0] and p < 0.05 and value[0] < ours[0]
    ]
    looked = [budget for budget in result["budgets"] if budget >= LOOKED_AT[0]]
    part = "" if looked == LOOKED_AT else f" at {', '.join(map(str, looked))}"
    return ", ".join(found) + " **missed**" if found else f"nobody{part}"


def main() -> None:
    """Play, or write the page of what was played."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--budgets", default=BUDGETS)
    parser.add_argument("--output", type=Path, help="Of the page, without an ending.")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    if asked.output:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
    found = {}
    for cell in cells(asked.tables.split(",")):
        kept = asked.results / f"{cell.name}.json"
        if asked.what == "run":
            cell.compare(asked.results, asked.seeds, asked.budgets.split(","))
        elif kept.exists() and (result := json.loads(kept.read_text("utf-8")))["standings"]:
            found[cell] = {key: value for key, value in result.items() if key != "replays"}
            if asked.output and cell.is_drawn:
                plot_regrets(result, asked.output.with_name(f"{asked.output.name}-{cell.name}.png"))
    if asked.what == "report":
        told = [
            {"cell": cell.name, **{k: v for k, v in result.items() if k != "curves"}}
            for cell, result in found.items()
        ]
        publish(page(found, asked.output or asked.results), {"cells": told}, asked.output)


if __name__ == "__main__":
    main()
