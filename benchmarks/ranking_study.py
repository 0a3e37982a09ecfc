"""Whether a few steps rank architectures as many steps do, and what ranks them for less.

    python benchmarks/ranking_study.py train --corpus TEXTS
    python benchmarks/ranking_study.py report --output docs/results/ranking

``train`` trains 24 architectures, spread over the space of ``minilm``, for 30, 60 and 960 steps
from the teacher start, and for 60 from the warm one. None of them is among those that the start and
its rates were chosen on. Each result is appended to the file as it comes, and what is there is not
trained again. ``report`` sets what can be had for less beside it: the loss before any training, and
the rule of thumb that more parameters are better.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laboratory import Laboratory, Setting, run
from scipy.stats import spearmanr
from start_study import CHOOSING, REPORTED
from study_files import JsonLines, learned, publish

from kdnas.architecture import Architecture
from kdnas.distill.numerics import num_threads
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.models.teacher import prepare_teacher
from kdnas.search_space import SearchSpace
from kdnas.specs.load import load_preset

COUNT, DEMO, SHORT, LONG, SEED = 24, 30, 60, 960, 0
RATES = {
    ("teacher", DEMO): 1e-3,
    ("teacher", SHORT): 1e-3,
    ("warm", SHORT): 2e-3,
    ("teacher", LONG): 2e-3,
}
OBJECTIVE = {"name": "hs", **load_preset("laptop", "search", "hs")["objective"]}
WARMUP = 0.1
GROUP = 6
BAR = 0.8
NORMAL_95 = 1.96


def spread(space: SearchSpace, count: int, seed: int) -> list[Architecture]:
    """Draw states that use every value of every axis about equally often.

    One at a time, each the state whose values were drawn least often so far; the seed breaks ties.
    What the start was chosen on or is reported on elsewhere is left out.
    """
    known = {*CHOOSING, *REPORTED}
    states = [state for state in space.states if str(state) not in known]
    random.Random(seed).shuffle(states)
    used: Counter[tuple[str, Any]] = Counter()
    drawn: list[Architecture] = []
    for _ in range(count):
        state = min(states, key=lambda s: sum(used[axis, getattr(s, axis)] for axis in space.axes))
        states.remove(state)
        drawn.append(state)
        used.update((axis, getattr(state, axis)) for axis in space.axes)
    return drawn


def settings(corpus: str) -> list[Setting]:
    """What each architecture is trained with."""
    return [
        Setting(corpus, start, rate, WARMUP, steps, SEED) for (start, steps), rate in RATES.items()
    ]


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> dict[str, float]:
    """Spearman's ρ and its 95 % interval.

    The interval is Fisher's, with the variance (1 + ρ²/2) / (n − 3) of ρ in place of r
    (Bonett and Wright 2000).
    """
    rho = float(spearmanr(left, right).statistic)
    half = NORMAL_95 * math.sqrt((1 + rho**2 / 2) / (len(left) - 3))
    z = math.atanh(max(-1 + 1e-9, min(1 - 1e-9, rho)))
    return {"rho": rho, "low": math.tanh(z - half), "high": math.tanh(z + half)}


def readings(
    results: JsonLines, corpus: str, architecture: Architecture, embedding: EmbeddingShape
) -> dict[str, float] | None:
    """All that is known of an architecture, smaller is better; None where a run is missing."""
    rows = {
        (s.start, s.steps): row
        for s in settings(corpus)
        for row in results.having(corpus=corpus, architecture=str(architecture), start=s.start)
        if row["steps"] == s.steps and row["rate"] == s.rate and row["relative"] is not None
    }
    if set(rows) != set(RATES):
        return None
    return {
        "long": rows["teacher", LONG]["relative"],
        "short": rows["teacher", SHORT]["relative"],
        "demo": rows["teacher", DEMO]["relative"],
        "start": rows["teacher", SHORT]["loss_start"],
        "warm": rows["warm", SHORT]["relative"],
        "parameters": -float(count_parameters(architecture, embedding)),
    }


WORDS = {
    "short": f"{SHORT} steps of the teacher start",
    "demo": f"{DEMO} steps of it, as `kdnas demo` takes",
    "start": "teacher start, no step",
    "warm": f"{SHORT} steps of the warm start",
    "parameters": "more parameters are better (rule of thumb)",
}


def report(
    results: JsonLines, architectures: Sequence[Architecture], embedding: EmbeddingShape
) -> tuple[str, dict[str, Any]]:
    """The page and its numbers."""
    if not results.rows:
        raise SystemExit(f"{results.path} has no runs yet; run the part `train` first")
    first = results.rows[0]
    corpus = first["corpus"]
    known = {str(a): readings(results, corpus, a, embedding) for a in architectures}
    whole = {name: found for name, found in known.items() if found is not None}
    lines = [
        "# Do 60 steps rank architectures as 960 do?",
        "",
        f"{len(architectures)} architectures of the space of MiniLM (6 × 384), drawn so that each "
        f"value of each axis comes about equally often (seed {SEED}); objective `hs`, the last "
        f"layers with a weight of {learned(first).get('last_weight', 1):g}; "
        f"held-out relative loss on {corpus} (`{first['corpus_fingerprint']}`), 16 sequences a "
        f"step, {' and '.join(sorted({row['dtype'] for row in results.rows}))}, peak "
        f"rates {RATES['teacher', SHORT]:g} ({DEMO} and {SHORT} steps), {RATES['teacher', LONG]:g} "
        f"({LONG}) and {RATES['warm', SHORT]:g} (warm, {SHORT}).",
        "",
    ]
    numbers: dict[str, Any] = {"readings": whole, "of": len(architectures)}
    if len(whole) < len(architectures):
        lines += [f"**Unfinished**: {len(whole)} of {len(architectures)} are trained.", ""]
    if len(whole) > 4:
        best = min(found["long"] for found in whole.values())
        lines += [
            f"| what ranks them | Spearman with {LONG} steps (95 % interval) | "
            f"loss of its best after {LONG} steps, above the best |",
            "|---|---|---|",
        ]
        for key, words in WORDS.items():
            pair = [[found[name] for found in whole.values()] for name in (key, "long")]
            found = rank_correlation(*pair)
            picked = min(whole.values(), key=lambda r, key=key: r[key])  # type: ignore[misc]
            found["regret"] = picked["long"] - best
            numbers[key] = found
            lines.append(
                f"| {words} | {found['rho']:.3f} ({found['low']:.3f} to {found['high']:.3f}) | "
                f"{found['regret']:+.4f} |"
            )
        low, finished = numbers["short"]["low"], len(whole) == len(architectures)
        verdict = "met." if low >= BAR else "**not met**."
        lines += [
            "",
            f"Bar: the lower end of {WORDS['short']} at least {BAR:g}; it is {low:.3f}, "
            + (verdict if finished else "and is judged when all are trained."),
            "",
        ]
    lines += [
        f"| student | parameters | warm, {SHORT} | teacher, 0 | teacher, {DEMO} | "
        f"teacher, {SHORT} | teacher, {LONG} |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {-r['parameters'] / 1e6:.1f} M | {r['warm']:.4f} | {r['start']:.4f} | "
        f"{r['demo']:.4f} | {r['short']:.4f} | {r['long']:.4f} |"
        for name, r in sorted(whole.items(), key=lambda pair: pair[1]["long"])
    ]
    lines += ["", f"Made with `python benchmarks/ranking_study.py`; {len(results.rows)} runs.", ""]
    return "\n".join(lines), numbers


def main() -> None:
    """Train what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("train", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("docs/results/ranking_runs.jsonl"),
        help="JSON lines, appended to",
    )
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    results = JsonLines(arguments.results)
    shape = prepare_teacher("minilm").shape
    architectures = spread(SearchSpace.scaled_to(shape), COUNT, SEED)
    if arguments.part == "train":
        names = [str(architecture) for architecture in architectures]
        with num_threads(1):
            laboratory = Laboratory(arguments.corpus)
            for setting in settings(laboratory.name):
                groups = [names[n : n + GROUP] for n in range(0, COUNT, GROUP)]
                run(laboratory, results, [(setting, group) for group in groups], OBJECTIVE)
        return
    text, numbers = report(results, architectures, EmbeddingShape.of(shape))
    publish(text, numbers, arguments.output)


if __name__ == "__main__":
    main()
