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

from start_study import CHOOSING
from study_files import JsonLines, publish

from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import build_corpus
from kdnas.distill.fit_lm_head import fit_lm_head
from kdnas.distill.group import MiniKD
from kdnas.distill.numerics import choose_dtype, num_threads
from kdnas.models.teacher import prepare_teacher, with_fitted_head
from kdnas.objectives.registry import build_stages
from kdnas.records import MiniKDContext, MiniKDRequest, MiniKDResult
from kdnas.settings import Settings
from kdnas.specs.objectives import objective_spec
from kdnas.specs.parts import CorpusSpec, StudentSpec
from kdnas.specs.search import ProxySpec
from kdnas.store import Store

STEPS, BATCH_SIZE = 240, 16
HEAD_STEPS = 1000
"""Of the masked-LM head that is fitted to a sentence encoder."""
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
    store = Store.from_settings(Settings.from_environment())
    plain = prepare_teacher("minilm", store)
    corpus = build_corpus(CorpusSpec(source=(source,), max_length=64), plain.folder, store)
    dtype = choose_dtype("auto", "cpu")
    for plan, rate in everything():
        known = {
            row["architecture"]
            for row in results.rows
            if (row["objective"], row["rate"]) == (plan.objective, rate)
        }
        missing = [a for a in plan.architectures if a not in known]
        if not missing:
            continue
        began, teacher, objective = time.monotonic(), plain, plan.objective
        if any(s.objective.needs_lm_head for s in build_stages(objective_spec(objective))):
            head = fit_lm_head(plain, corpus, HEAD_STEPS, store, "cpu", dtype).fingerprint
            teacher = with_fitted_head(plain, head, store)
            objective = {**objective, "lm_head": head}
        proxy = ProxySpec(
            steps=STEPS,
            batch_size=BATCH_SIZE,
            learning_rate=rate,
            warmup_fraction=0.1,
            fraction=1.0,
        )
        context = MiniKDContext(
            teacher=teacher.fingerprint,
            corpus=corpus.fingerprint,
            objective=objective_spec(objective).to_json(),
            student=StudentSpec().to_json(),
            proxy=proxy.to_json(),
            dtype=dtype,
            engine_version=ENGINE_VERSION,
        )
        requests = [MiniKDRequest(a, Architecture.parse(a)) for a in missing]
        for item in MiniKD(context, teacher, corpus, store, "cpu").train(requests):
            if isinstance(item, MiniKDResult):
                results.add(
                    {
                        "objective": plan.objective,
                        "rate": rate,
                        "architecture": item.candidate_id,
                        "loss_start": item.loss_start,
                        "relative": item.losses.relative if item.losses else None,
                        "error": item.error,
                        "dtype": dtype,
                        "corpus": Path(source).name,
                        "corpus_fingerprint": corpus.fingerprint,
                        "engine_version": ENGINE_VERSION,
                    }
                )
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
                row = next((r for r in results.rows if _is(r, objective, rate, architecture)), None)
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


def _is(row: dict[str, Any], objective: dict[str, Any], rate: float, architecture: str) -> bool:
    return (row["objective"], row["rate"], row["architecture"]) == (objective, rate, architecture)


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
