"""Which learning rate each objective wants, from the start that is the default.

    python benchmarks/objective_rates.py sweep --corpus TEXTS
    python benchmarks/objective_rates.py report --output docs/results/objective_rates

``sweep`` trains, with each objective and several rates, students that no other page reports on;
what is in the file of results is not trained again. Losses of different objectives cannot be
compared, so a page has a table for each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laboratory import HEAD_STEPS, Laboratory
from start_study import CHOOSING
from study_files import JsonLines, publish

from kdnas.distill.numerics import num_threads
from kdnas.specs.search import ProxySpec

STEPS, BATCH_SIZE = 240, 16
SHALLOW = ("2,12,384,1536,gelu", "4,12,384,1536,gelu")
"""For an objective that copies layers."""


@dataclass(frozen=True)
class Sweep:
    """An objective, and what is tried with it.

    Attributes:
        objective: as JSON.
        rates: peak learning rates.
        architectures: of the students.
    """

    objective: dict[str, Any]
    rates: tuple[float, ...]
    architectures: tuple[str, ...] = CHOOSING

    @property
    def name(self) -> str:
        """What a table is called."""
        extra = [f"{key} {value:g}" for key, value in self.objective.items() if key != "name"]
        return ", ".join([self.objective["name"], *extra])


FAST = (1e-3, 2e-3, 4e-3)
SLOW = (1e-4, 2e-4, 4e-4, 1e-3)
SWEEPS = (
    Sweep({"name": "minilmv2"}, FAST),
    Sweep({"name": "direct-minilm"}, FAST),
    Sweep({"name": "od"}, SLOW),
    Sweep({"name": "distilbert"}, SLOW, SHALLOW),
    *(Sweep({"name": "hs+od", "od_rate": share}, (2e-3,)) for share in (0.05, 0.1, 0.2, 0.6)),
)


def everything() -> Iterator[tuple[Sweep, float]]:
    """All that is tried."""
    for plan in SWEEPS:
        for rate in plan.rates:
            yield plan, rate


def sweep(source: str, results: JsonLines) -> None:
    """Train what is missing."""
    laboratory = Laboratory(source)
    results.refuse_others(laboratory.name, laboratory.corpus.fingerprint)
    for plan, rate in everything():
        alike = results.having(objective=plan.objective, rate=rate, corpus=laboratory.name)
        known = {row["architecture"] for row in alike}
        missing = [a for a in plan.architectures if a not in known]
        if not missing:
            continue
        began = time.monotonic()
        proxy = ProxySpec(
            steps=STEPS,
            batch_size=BATCH_SIZE,
            learning_rate=rate,
            warmup_fraction=0.1,
            fraction=1.0,
        )
        told = {"objective": plan.objective, "rate": rate, "corpus": laboratory.name}
        for row in laboratory.train(proxy, missing, objective=plan.objective):
            results.add({**told, **row})
        print(f"{plan.name} at {rate:g}: {time.monotonic() - began:.0f} s", flush=True)


def tables(results: JsonLines) -> Iterator[str]:
    """Make a table an objective, students as rows and rates of one or two stages as columns."""
    by_name: dict[str, list[Sweep]] = {}
    for plan in SWEEPS:
        by_name.setdefault(plan.objective["name"], []).append(plan)
    for name, plans in by_name.items():
        tried = [(plan.objective, rate) for plan in plans for rate in plan.rates]
        heads = [
            f"{rate:g}" if len(plans) == 1 else f"{rate:g}, then {objective['od_rate'] * rate:g}"
            for objective, rate in tried
        ]
        yield from (
            f"## `{name}`",
            "",
            f"| student | 0 steps | {' | '.join(heads)} |",
            "|---|---|" + "---|" * len(heads),
        )
        columns: list[list[float]] = [[] for _ in tried]
        for architecture in plans[0].architectures:
            cells, start = [], "–"
            for column, (objective, rate) in zip(columns, tried, strict=True):
                alike = results.having(objective=objective, rate=rate, architecture=architecture)
                row = next(iter(alike), None)
                if row is None or row["relative"] is None:
                    cells.append("–")
                    continue
                start = f"{row['loss_start']:.4f}"
                column.append(row["relative"])
                cells.append(f"{row['relative']:.4f}")
            yield f"| `{architecture}` | {start} | {' | '.join(cells)} |"
        whole = len(plans[0].architectures)
        means = [f"{statistics.mean(c):.4f}" if len(c) == whole else "–" for c in columns]
        yield from (f"| mean | | {' | '.join(means)} |", "")


def report(results: JsonLines) -> tuple[str, dict[str, Any]]:
    """The page and its numbers."""
    corpora = {row["corpus"]: row["corpus_fingerprint"] for row in results.rows}
    lines = [
        "# Learning rates of the objectives",
        "",
        f"Held-out relative loss of students of MiniLM (6 × 384) after {STEPS} steps of "
        f"{BATCH_SIZE} sequences of at most 64 tokens, from the start `teacher`, one seed; – ended "
        "without a loss, or was not tried. Losses of different objectives cannot be compared. Of "
        "`hs+od` they are those of its second stage, and at 0 steps that of its first. Corpora: "
        + ", ".join(f"{name} (`{mark}`)" for name, mark in corpora.items())
        + f". The teacher's masked-LM head was fitted in {HEAD_STEPS} steps.",
        "",
        *tables(results),
    ]
    return "\n".join(lines), {"runs": results.rows}


def main() -> None:
    """Run the sweep, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("sweep", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("docs/results/objective_rates_runs.jsonl"),
        help="JSON lines",
    )
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    results = JsonLines(arguments.results)
    if arguments.part == "sweep":
        with num_threads(1):
            sweep(arguments.corpus, results)
        return
    publish(*report(results), arguments.output)


if __name__ == "__main__":
    main()
