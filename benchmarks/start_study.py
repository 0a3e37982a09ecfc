"""How many steps a start from the teacher is worth, each start at its own best learning rate.

    python benchmarks/start_study.py sweep --corpus TEXTS
    python benchmarks/start_study.py steps --corpus TEXTS
    python benchmarks/start_study.py report --output docs/results/start

``sweep`` trains architectures that are chosen on, with several rates, starts and lengths; ``steps``
trains those that are reported, each start and length at the rate that the sweep found best. Every
length is a run of its own, with its own schedule. Each result is appended to the file as it comes,
and what is there is not trained again, so both can be stopped and gone on with at any time.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from laboratory import Laboratory, Setting, run
from study_files import JsonLines, publish

from kdnas.distill.numerics import num_threads

CHOOSING = ("1,4,288,1024,gelu", "2,6,288,768,relu", "3,3,192,1024,gelu", "5,12,288,576,silu")
CHOOSING_LONG = ("3,3,192,1024,gelu",)
REPORTED = (
    "1,12,384,768,gelu",
    "2,12,288,768,gelu",
    "3,12,288,768,gelu",
    "3,12,384,1536,gelu",
    "6,12,288,1024,gelu",
    "6,12,384,1536,gelu",
    "2,2,192,1024,relu",
    "3,4,288,512,silu",
)
OWN = "6,12,384,1536,gelu"
LONG = ("2,12,288,768,gelu", "3,12,288,768,gelu")
STARTS = ("teacher", "warm")
SWEPT = (60, 240, 960)
RATES = (5e-4, 1e-3, 2e-3, 4e-3)
LENGTHS = (60, 120, 240, 480, 960)
LONGEST = 3840
YARDSTICK = 960
SEEDS = (0, 1)
BAR_RATIO = 4.0


def best_rates(results: JsonLines) -> dict[tuple[str, int], tuple[float, float]]:
    """For each start and length the rate and warm-up of the smallest mean loss in the sweep."""
    sums: dict[tuple[str, int], dict[tuple[float, float], list[float]]] = {}
    for row in results.rows:
        if row["architecture"] in CHOOSING:
            place = sums.setdefault((row["start"], row["steps"]), {})
            loss = row["relative"] if row["relative"] is not None else 1.0
            place.setdefault((row["rate"], row["warmup"]), []).append(loss)
    return {
        key: min(tried, key=lambda pair, tried=tried: statistics.mean(tried[pair]))  # type: ignore[misc]
        for key, tried in sums.items()
    }


def nearest(rates: dict[tuple[str, int], tuple[float, float]], start: str, steps: int) -> Any:
    """The rate and warm-up of the swept length that is nearest, as a ratio, to this one."""
    lengths = sorted(length for s, length in rates if s == start)
    if not lengths:
        raise SystemExit(f"no rate was swept for the start {start}; run the sweep first")
    return rates[start, nearest_length(lengths, steps)]


def nearest_length(lengths: Iterable[int], steps: int) -> int:
    """The nearest of some lengths, as a ratio; of two that are as near the shorter one."""
    return min(sorted(lengths), key=lambda n: max(n, steps) / min(n, steps))


def sweep_plan(
    corpus: str, lengths: Iterable[int], starts: Iterable[str], rates: Iterable[float]
) -> Iterator[tuple[Setting, Any]]:
    """All settings of the sweep."""
    for steps, rate, start in product(lengths, rates, starts):
        chosen_on = CHOOSING if steps < LONGEST else CHOOSING_LONG
        yield Setting(corpus, start, rate, 0.1, steps, 0), chosen_on


def steps_plan(
    corpus: str,
    rates: dict[tuple[str, int], tuple[float, float]],
    lengths: Iterable[int],
    starts: Iterable[str],
    seeds: Iterable[int],
) -> Iterator[tuple[Setting, Any]]:
    """All settings that are reported, the short ones first."""
    for steps in lengths:
        for seed in seeds:
            for start in starts:
                rate, warmup = nearest(rates, start, steps)
                setting = Setting(corpus, start, rate, warmup, steps, seed)
                yield setting, REPORTED if steps < LONGEST else LONG


def fewest_steps(results: JsonLines, corpus: str, architecture: str, seed: int) -> dict[str, Any]:
    """The fewest steps at which the teacher start reaches the warm start's loss of 960 steps."""

    def losses(start: str) -> dict[int, float]:
        rows = results.having(corpus=corpus, architecture=architecture, seed=seed, start=start)
        return {row["steps"]: row["relative"] for row in rows if row["relative"] is not None}

    teacher, warm = losses("teacher"), losses("warm")
    yardstick = warm.get(YARDSTICK)
    reached = sorted(n for n, loss in teacher.items() if yardstick and loss <= yardstick)
    rows = results.having(corpus=corpus, architecture=architecture, seed=seed, start="teacher")
    start = next((row["loss_start"] for row in rows), None)
    if yardstick and start is not None and start <= yardstick:
        reached.insert(0, 0)
    return {
        "corpus": corpus,
        "architecture": architecture,
        "seed": seed,
        "warm": warm,
        "teacher": teacher,
        "loss_start": start,
        "fewest_steps": reached[0] if reached else None,
        "ratio": YARDSTICK / max(reached[0], 1) if reached else None,
    }


def complete(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The comparisons that are finished, of sets that have one for every student.

    A median over some of them would say which came first.
    """
    whole = [f for f in found if YARDSTICK in f["warm"] and YARDSTICK in f["teacher"]]
    sizes = Counter((f["corpus"], f["seed"]) for f in whole)
    return [f for f in whole if sizes[f["corpus"], f["seed"]] == len(REPORTED)]


def best_run(results: JsonLines, architecture: str, start: str, steps: int) -> str:
    """The smallest loss of an architecture among the rates, in words."""
    tried = results.having(architecture=architecture, start=start, steps=steps)
    good = [row for row in tried if row["relative"] is not None]
    if not good:
        return "–"
    best = min(good, key=lambda row: row["relative"])
    return f"{best['relative']:.4f} / {best['output']:.4f} ({best['rate']:g})"


def report(results: JsonLines) -> tuple[str, dict[str, Any]]:
    """The page and its numbers."""
    corpora = sorted({row["corpus"] for row in results.rows})
    found = [
        fewest_steps(results, corpus, architecture, seed)
        for corpus in corpora
        for architecture in REPORTED
        for seed in SEEDS
    ]
    whole = complete(found)
    names = {row["corpus"]: row["corpus_fingerprint"] for row in results.rows}
    formats = Counter(row["dtype"] for row in results.rows)
    rates = best_rates(results)
    swept = [row for row in results.rows if row["architecture"] in CHOOSING]
    tried = sorted({row["rate"] for row in swept})
    lines = [
        "# What a start from the teacher is worth in steps",
        "",
        "Held-out relative loss (0 is the teacher, 1 useless) of students of MiniLM (6 × 384), "
        "objective `hs` with layers of the same weight, 16 sequences of at most 64 tokens a step, "
        "each length a run with its own schedule. `warm` has its projections fitted by least "
        "squares as well.",
        "",
        "Corpora: " + ", ".join(f"{name} (`{mark}`)" for name, mark in names.items()) + ". Runs "
        "in " + ", ".join(f"{dtype}: {count}" for dtype, count in sorted(formats.items())) + ", as "
        "the machine was fast at (the two differed by at most 0.00012 over 41 steps of four)."
        + older(results),
        "",
        "## Rates, chosen on other architectures",
        "",
        "Mean relative loss of "
        + ", ".join(f"`{a}`" for a in CHOOSING)
        + " on "
        + ", ".join(sorted({row["corpus"] for row in swept}))
        + f" (at {LONGEST} steps of {', '.join(f'`{a}`' for a in CHOOSING_LONG)} alone); – was not "
        "tried.",
        "",
        "| start | steps | " + " | ".join(f"{rate:g}" for rate in tried) + " | taken |",
        "|---|---|" + "---|" * (len(tried) + 1),
    ]
    for start, steps in sorted(rates):
        cells = []
        for rate in tried:
            rows = [
                r["relative"]
                for r in results.having(start=start, steps=steps, rate=rate)
                if r["architecture"] in CHOOSING
            ]
            good = [value for value in rows if value is not None]
            cells.append(f"{statistics.mean(good):.4f}" if rows and len(good) == len(rows) else "–")
        lines.append(f"| {start} | {steps} | {' | '.join(cells)} | {rates[start, steps][0]:g} |")
    known = {steps for _, steps in rates}
    borrowed = [
        f"{n} that of {nearest_length(known, n)}"
        for n in (*LENGTHS, LONGEST)
        if known and n not in known
    ]
    if borrowed:
        lines += ["", f"Lengths that were not swept take a neighbour's: {', '.join(borrowed)}."]
    lines += [
        "",
        "Each of them at its own best rate (in brackets), relative loss / that of the last layer:",
        "",
        "| student | steps | teacher | warm |",
        "|---|---|---|---|",
    ]
    for architecture in CHOOSING:
        for steps in sorted({steps for _, steps in rates}):
            cells = [best_run(results, architecture, start, steps) for start in STARTS]
            if cells == ["–"] * len(STARTS):
                continue
            lines.append(f"| `{architecture}` | {steps} | {' | '.join(cells)} |")
    lengths = (*LENGTHS, LONGEST)
    if not whole:
        lines += [
            "",
            "**Unfinished**: no corpus and seed has all students trained for "
            f"{YARDSTICK} steps from both starts yet. What stands here is no result on them.",
        ]
    lines += [
        "",
        "## Steps",
        "",
        "| corpus | student | seed | start | 0 | "
        + " | ".join(map(str, lengths))
        + " | fewest steps | ratio |",
        "|---|---|---|---|---|" + "---|" * (len(lengths) + 2),
    ]
    for f in found:
        if not f["teacher"] and not f["warm"]:
            continue
        for start in STARTS:
            first = f["loss_start"] if start == "teacher" else None
            cells = [f"{f[start][n]:.4f}" if n in f[start] else "" for n in lengths]
            tail = ["", ""]
            if start == "teacher" and f in whole:
                few = f["fewest_steps"]
                tail = ["not reached", "–"] if few is None else [str(few), f"{f['ratio']:.1f}"]
            lines.append(
                f"| {f['corpus']} | `{f['architecture']}` | {f['seed']} | {start} | "
                f"{'' if first is None else f'{first:.4f}'} | {' | '.join([*cells, *tail])} |"
            )
    longest = [f[start] for f in found if f["architecture"] in LONG for start in STARTS]
    if trained := sum(LONGEST in losses for losses in longest):
        lines += [
            "",
            f"Of {LONGEST} steps {trained} of {len(longest)} runs are made. {lead(found)}",
        ]
    words, summary = verdict(whole, len(corpora) * len(REPORTED) * len(SEEDS))
    lines += ["", *words]
    lines += [f"Made with `python benchmarks/start_study.py`; {len(results.rows)} runs.", ""]
    summary |= {"runs": len(results.rows)}
    return "\n".join(lines), {"summary": summary, "comparisons": found}


def lead(found: list[dict[str, Any]]) -> str:
    """What is left of the lead after the longest trainings, for a sentence."""
    pairs = [f for f in found if LONGEST in f["teacher"] and LONGEST in f["warm"]]
    if not pairs:
        return ""
    leads = [f["warm"][LONGEST] - f["teacher"][LONGEST] for f in pairs]
    ahead = sum(gap > 0 for gap in leads)
    return (
        f"The teacher start is ahead in {ahead} of {len(pairs)} comparisons, its loss less by "
        f"{min(leads):.4f} to {max(leads):.4f}."
    )


def older(results: JsonLines) -> str:
    """How many runs an earlier engine trained for which nothing changed since."""
    engines = Counter(r["engine_version"] for r in results.rows if "holds_for_engine" in r)
    if not engines:
        return ""
    said = " and ".join(f"{count} of engine {engine}" for engine, count in sorted(engines.items()))
    return (
        f" Among them are {said}, for which nothing changed: since engine 5 the norms of a start "
        "from the teacher have the size 1, which changes neither `warm` nor the teacher's own "
        "architecture; since engine 6 heads are chosen on text said twice as well, which changes "
        "nothing where a student has all of its teacher's heads, or is `warm`; since engine 7 "
        "students that are deeper than their teacher, or learn its queries, keys and values, are "
        "cut otherwise."
    )


def verdict(whole: list[dict[str, Any]], wanted: int) -> tuple[list[str], dict[str, Any]]:
    """What the finished comparisons say of the two bars, in words and numbers."""
    summary: dict[str, Any] = {"compared": len(whole), "wanted": wanted}
    if not whole:
        return [], summary
    ratios = {(f["corpus"], f["architecture"], f["seed"]): f["ratio"] or 0.0 for f in whole}
    median = statistics.median(ratios.values())
    rest = [ratio for (_, architecture, _), ratio in ratios.items() if architecture != OWN]
    others = [f for f in whole if f["architecture"] != OWN]
    behind = [f["teacher"][YARDSTICK] - f["warm"][YARDSTICK] for f in others] or [0.0]
    spread = seed_spread(whole)
    summary |= {
        "median_ratio": median,
        "median_ratio_without_own": statistics.median(rest) if rest else None,
        "largest_disadvantage_at_960": max(behind),
        "seed_deviation_at_960": spread,
    }
    soon = "" if len(whole) == wanted else " so far"
    ahead = sum(gap < 0 for gap in behind)
    nearest = "falls behind most" if max(behind) > 0 else "is nearest"
    lines = [
        f"**Ratio of steps**: the median of {len(whole)} of {wanted} comparisons is {median:.1f}, "
        f"the bar is {BAR_RATIO:g}: **{'met' if median >= BAR_RATIO else 'missed'}{soon}**. "
        f"`{OWN}` is the teacher's own architecture: it begins at 0, so that its ratio says "
        "little, the more as the rate that is best for the other warm students is too high for "
        f"it. Without it the median is {statistics.median(rest) if rest else math.nan:.1f}.",
        "",
        f"**After {YARDSTICK} steps** the teacher start is ahead in {ahead} of {len(others)} "
        f"comparisons of the others; where it {nearest}, its loss less that of `warm` is "
        f"{max(behind):+.4f}.",
    ]
    if spread is None:
        lines[-1] += " No student was trained with two seeds yet that would show their spread."
    else:
        good = max(behind) <= spread
        lines[-1] += (
            f" Two seeds of a student and start differ by {spread:.4f} (standard deviation, pooled "
            f"over all that have two), and none of {len(others)} is to be further behind than "
            f"that: **{'met' if good else 'missed'}{soon}**."
        )
    lines += [
        "",
        "What was tried to reach further, and what is not understood: "
        "[science.md](../science.md#how-a-student-starts).",
    ]
    return [*lines, ""], summary


def seed_spread(whole: list[dict[str, Any]]) -> float | None:
    """Standard deviation between seeds after 960 steps, pooled over students and starts."""
    by_student: dict[tuple[str, str, str], list[float]] = {}
    for f in whole:
        for start in STARTS:
            if f["architecture"] != OWN:
                key = (f["corpus"], f["architecture"], start)
                by_student.setdefault(key, []).append(f[start][YARDSTICK])
    variances = [statistics.variance(losses) for losses in by_student.values() if len(losses) > 1]
    return math.sqrt(statistics.mean(variances)) if variances else None


def main() -> None:
    """Run a part of the study, or write its page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("sweep", "steps", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("docs/results/start_runs.jsonl"),
        help="JSON lines, appended to",
    )
    parser.add_argument("--lengths", type=int, nargs="+", help="default: all of the part")
    parser.add_argument("--starts", nargs="+", default=list(STARTS), choices=STARTS)
    parser.add_argument("--seeds", type=int, nargs="+", choices=SEEDS, default=SEEDS)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="swept")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    results = JsonLines(arguments.results)
    if arguments.part == "report":
        text, numbers = report(results)
        publish(text, numbers, arguments.output)
        return
    with num_threads(1):
        laboratory = Laboratory(arguments.corpus)
        plan = (
            sweep_plan(
                laboratory.name, arguments.lengths or SWEPT, arguments.starts, arguments.rates
            )
            if arguments.part == "sweep"
            else steps_plan(
                laboratory.name,
                best_rates(results),
                arguments.lengths or (*LENGTHS, LONGEST),
                arguments.starts,
                arguments.seeds,
            )
        )
        run(laboratory, results, plan)


if __name__ == "__main__":
    main()
