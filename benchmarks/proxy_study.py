"""What a short mini-KD can tell: its noise across seeds, and its rank agreement with longer runs.

    python benchmarks/proxy_study.py --output docs/results/proxy

Trains six architectures of different depth and width with the preset's proxy, with two of its
seeds, and four times as long, through the same backend as a search. Prints a Markdown table and
writes the numbers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

from named_corpus import corpus_facts, corpus_words
from scipy.stats import spearmanr
from study_files import publish

from api.searches.run import PreparedSearch, prepare_search
from kdnas.architecture import Architecture
from kdnas.cli.screens.preparing import corpus_bar
from kdnas.latency.measure import hardware_name
from kdnas.records import CandidateFinished, Losses, MiniKDContext, MiniKDRequest
from kdnas.settings import Settings
from kdnas.specs.load import load_preset, merge
from kdnas.specs.search import SearchSpec
from workers.backend import build_backend
from workers.cluster import cluster
from workers.layout import backend_plan

ARCHITECTURES = (
    "1,12,384,768,gelu",
    "2,12,288,768,gelu",
    "3,12,288,768,gelu",
    "3,12,384,1536,gelu",
    "6,12,288,1024,gelu",
    "6,12,384,1536,gelu",
)
OWN = ARCHITECTURES[-1]
"""The teacher's."""
TIMES_LONGER = 4
BAR_BEST, BAR_SPREAD = 0.35, 10.0


def prepare(values: dict[str, object], settings: Settings) -> PreparedSearch:
    """Prepare the preset ``laptop`` with some values of the proxy changed."""
    request = merge(load_preset("laptop", "search"), {"proxy": values})
    spec = SearchSpec.read(request, "proxy study")
    with corpus_bar() as on_corpus:
        return prepare_search(spec, settings, on_corpus)


def train(
    context: MiniKDContext, prepared: PreparedSearch, settings: Settings
) -> dict[str, Losses]:
    """Train the six students in a context."""
    plan = backend_plan(
        prepared.spec.backend.model_copy(update={"group_size": len(ARCHITECTURES) // 2}),
        settings.store_url,
    )
    backend = build_backend("ray", context, plan)
    # Light and heavy students in each group, so that the workers end together.
    mixed = [*ARCHITECTURES[0::2], *ARCHITECTURES[1::2]]
    requests = [MiniKDRequest(a, Architecture.parse(a)) for a in mixed]
    found: dict[str, Losses] = {}
    try:
        for event in backend.run(requests):
            if isinstance(event, CandidateFinished):
                if event.result.losses is None:
                    raise RuntimeError(f"{event.result.architecture}: {event.result.error}")
                found[event.result.candidate_id] = event.result.losses
    finally:
        backend.close()
    return found


def report(result: dict) -> str:
    """Write the Markdown page."""
    rows = "\n".join(
        f"| `{a}` | {r['short']['relative']:.4f} | {r['other_seed']['relative']:.4f} "
        f"| {r['long']['relative']:.4f} | {r['short']['output']:.4f} | {r['long']['output']:.4f} |"
        for a, r in result["students"].items()
    )
    proxy, longer = result["proxy"], f"{TIMES_LONGER} × longer"
    measured = "\n".join(
        f"| {name} | {value} | {bar} |"
        for name, value, bar in (
            ("best student's relative loss", f"{result['best']:.3f}", f"≤ {BAR_BEST}"),
            (
                "spread between students / spread between two seeds of one student",
                f"{result['spread_ratio']:.1f}",
                f"≥ {BAR_SPREAD:g}",
            ),
            (f"Spearman with {longer}, relative", f"{result['spearman_relative']:.2f}", ""),
            (f"Spearman with {longer}, output", f"{result['spearman_output']:.2f}", ""),
        )
    )
    return f"""# What the short proxy can tell

Preset `laptop`: {proxy["steps"]} steps of {proxy["batch_size"]} sequences, peak rate
{proxy["learning_rate"]:g}, start `{result["start"]}`, MiniLM (6 × 384) on {corpus_words(result)},
{result["dtype"]} on {result["machine"]}. Held-out losses; 0 is perfect, 1 useless.

| student | relative | other proxy seed | {longer} | output | output, {longer} |
|---|---|---|---|---|---|
{rows}

| | measured | bar |
|---|---|---|
{measured}

The spread between students is the range of their relative losses, {result["spread"]:.4f}. The
spread between seeds is the median over students of the difference between two proxy seeds (start,
batches and proxy set differ, the held-out text does not), {result["seed_spread"]:.4f}; the largest
difference is {result["max_seed_spread"]:.4f}. All of this is of the students but `{OWN}`: it has
its teacher's own architecture and begins as a copy, so that its loss is what training took from
that. Five students are a hint, not a proof.

The best student is the one of the lowest loss; a reward with a price on latency may prefer a
smaller and faster one, as the demo's does.

Made with `python benchmarks/proxy_study.py` in {result["minutes"]:.0f} minutes.
"""


def figures(students: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """What the page says of all students but that of the teacher's own architecture.

    That one begins as its teacher: its loss is what training took from a copy.
    """
    others = [runs for name, runs in students.items() if name != OWN]
    short, again, long = (
        [runs[name]["relative"] for runs in others] for name in ("short", "other_seed", "long")
    )
    outputs = [[runs[name]["output"] for runs in others] for name in ("short", "long")]
    seeds = [abs(a - b) for a, b in zip(short, again, strict=True)]
    spread = max(short) - min(short)
    return {
        "best": min(short),
        "spread": spread,
        "seed_spread": statistics.median(seeds),
        "max_seed_spread": max(seeds),
        "spread_ratio": spread / statistics.median(seeds),
        "spearman_relative": float(spearmanr(short, long).statistic),
        "spearman_output": float(spearmanr(*outputs).statistic),
    }


def main() -> None:
    """Run the study and write its page and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="instead of the preset's")
    parser.add_argument("--learning-rate", type=float, help="instead of the preset's")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    changed = {
        key: value
        for key, value in (
            ("steps", arguments.steps),
            ("learning_rate", arguments.learning_rate),
        )
        if value is not None
    }
    settings, began = Settings.from_environment(), time.monotonic()
    short = prepare(changed, settings)
    steps = short.spec.proxy.steps
    if steps is None:
        raise SystemExit("the study needs a proxy with steps")
    runs = {
        "short": short,
        "other_seed": prepare({**changed, "seed": short.spec.proxy.seed + 1}, settings),
        "long": prepare({**changed, "steps": TIMES_LONGER * steps}, settings),
    }
    with cluster(None):
        losses = {name: train(run.context, run, settings) for name, run in runs.items()}
    students = {
        a: {
            name: {"relative": found[a].relative, "output": found[a].output, "mean": found[a].mean}
            for name, found in losses.items()
        }
        for a in ARCHITECTURES
    }
    result = {
        **corpus_facts(short.pinned.corpus),
        "students": students,
        **figures(students),
        "proxy": short.spec.proxy.to_json(),
        "start": short.spec.student.init,
        "dtype": short.context.dtype,
        "machine": f"{hardware_name('cpu').partition(':')[2]}, {os.cpu_count()} cores",
        "minutes": (time.monotonic() - began) / 60,
    }
    publish(report(result), result, arguments.output)


if __name__ == "__main__":
    main()
