"""Real searches, not a table: what each strategy finds, and what that is worth when trained longer.

    python benchmarks/real_searches.py run --corpus TEXTS --results FOLDER
    KDNAS_HOME=FOLDER/home python benchmarks/table_pool.py run --plan FOLDER/finals-plan.json \
        --results FOLDER/finals.jsonl
    python benchmarks/real_searches.py report --results FOLDER --output docs/results/real_searches

``run`` does as a user does, by the command line and in a home of its own: searches of 60 trainings
with each of some strategies and seeds, and with the rule that goes by size, every state trained
anew, and within a latency with and without rungs; then a sweep reads how all states start, and the
rule that goes by that searches, too. Of each search for the front the student of the lowest loss
under each of some latencies is to be trained longer, with seeds that nothing saw: that is the plan
for the pool, on a CPU or a GPU. What is done is not done again; Ctrl-C ends in good order.
``report`` writes the page of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from named_corpus import corpus_facts, corpus_words
from study_files import JsonLines, publish
from table_pool import Group

from kdnas import ENGINE_VERSION
from kdnas.artefact import write_atomically
from kdnas.corpus.tokenized import TokenizedCorpus
from kdnas.records import MiniKDContext
from kdnas.search.hypervolume import hypervolume
from kdnas.settings import Settings
from kdnas.specs.load import load_preset
from kdnas.specs.search import ProxySpec
from kdnas.store import Store

BLIND: Final = ("gp", "controller", "random", "tpe")
"""Strategies that search before anything was read."""
RULES: Final = ("size-only", "reading-only")
"""That draw nothing, so that each is one search; the second goes by how all states start."""
LIMIT: Final = 0.4
LONG: Final = ("--steps", "240", "--episodes", "3", "--proxy-seed", "8")
"""Fewer and longer trainings, of which a sweep has read no start either."""
LIMITED: Final[Mapping[str, tuple[str, ...]]] = {
    "limit": (),
    "limit-rungs": ("--rungs", "0", "--keep", "5"),
    "limit-long": LONG,
    "limit-long-rungs": (*LONG, "--rungs", "0,30,120", "--keep", "5"),
}
"""The default under a latency, each time without and with trainings that end early."""
SEEDS: Final = (0, 1, 2)
TRAININGS, CANDIDATES = 60, 10
PROXY_SEED: Final = 7
"""Tables are of 0, 1 and 2."""
RATIOS: Final = (0.1, 0.2, 0.4)
"""Of the teacher's latency: under each the best student of a search is trained longer."""
FINAL_SEEDS: Final = (100, 101)
FINAL_STEPS: Final = 480
RATE, WARMUP = 2e-3, 0.1
GROUP: Final = 4
"""Students of a longer training on one teacher pass."""
SWEEP: Final = "starts"
PROXY: Final[Mapping[str, Any]] = load_preset("laptop", "search")["proxy"]


@dataclass(frozen=True)
class Job:
    """A job of the command line, by its name.

    Attributes:
        name: of the job.
        command: that makes it, but for its name and the text.
    """

    name: str
    command: tuple[str, ...]


def plan() -> list[Job]:
    """All jobs, in the order in which they are done: what reads starts comes after the blind."""
    front = ("--goal", "front")
    blind = [_search(name, name, seed, *front) for seed in SEEDS for name in BLIND]
    limit = ("--goal", "limit", "--max-latency-ratio", str(LIMIT))
    limited = [_search(name, BLIND[0], SEEDS[0], *limit, *more) for name, more in LIMITED.items()]
    sweep = Job(SWEEP, ("sweep", "--steps", "0", "--seeds", str(PROXY_SEED)))
    by_size, by_reading = (_search(name, name, SEEDS[0], *front) for name in RULES)
    return [*blind, by_size, *limited, sweep, by_reading]


def _search(name: str, strategy: str, seed: int, *wanted: str) -> Job:
    size = ("--episodes", str(TRAININGS // CANDIDATES), "--candidates", str(CANDIDATES))
    proxy = ("--proxy-seed", str(PROXY_SEED), "--no-reuse")
    asked = ("--strategy", strategy, "--seed", str(seed), *size, *proxy)
    return Job(f"{name}-{seed}", ("search", *asked, *wanted))  # of an option the last one holds


class Home:
    """A home of the program, and the program in it.

    Args:
        folder: where it is.
        corpus: of all jobs.
    """

    def __init__(self, folder: Path, corpus: str) -> None:
        self._environment = {**os.environ, "KDNAS_HOME": str(folder.resolve())}
        self._corpus = corpus

    def do(self, job: Job) -> None:
        """Do a job, or what is left of it.

        Raises:
            SystemExit: it failed, or was stopped.
        """
        stored = self._kdnas("jobs", "show", job.name, "--json", shown=False)
        if stored.returncode == 0 and json.loads(stored.stdout)["status"] == "succeeded":
            return
        go_on = stored.returncode == 0
        own = ("--resume", job.name) if go_on else ("--corpus", self._corpus, "--name", job.name)
        command = job.command[:1] if go_on else job.command
        print(job.name, "goes on" if go_on else "begins", flush=True)
        if code := self._kdnas(*command, *own).returncode:
            raise SystemExit(code)

    def candidates(self, job: Job, folder: Path) -> list[dict[str, Any]]:
        """What a search has trained, to its end or to where it was ended, in its order."""
        file = folder / f"{job.name}.json"
        done = self._kdnas("searches", "export", job.name, "--output", str(file), shown=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
        return [row for row in rows if row["status"] in ("succeeded", "stopped")]

    def spec(self, job: Job) -> dict[str, Any]:
        """What a job was asked for, with nothing left open."""
        shown = self._kdnas("searches", "show", job.name, "--json", shown=False)
        spec: dict[str, Any] = json.loads(shown.stdout)["spec"]
        return spec

    def corpus(self, fingerprint: str) -> TokenizedCorpus:
        """The text of its jobs."""
        store = Store.from_settings(Settings.from_environment(self._environment))
        return TokenizedCorpus.open(store.fetch("corpus", fingerprint))

    def _kdnas(self, *asked: str, shown: bool = True) -> subprocess.CompletedProcess[str]:
        program = (str(Path(sys.executable).with_name("kdnas")), *asked)
        return subprocess.run(
            program, env=self._environment, text=True, capture_output=not shown, check=False
        )


def chosen(candidates: Sequence[Mapping[str, Any]], ratio: float) -> str | None:
    """The student of the lowest loss that takes at most this share of the teacher's latency."""
    within = [row for row in candidates if row["latency_ratio"] <= ratio]
    best = min(within, key=lambda row: (row["relative_loss"], row["architecture"]), default=None)
    return None if best is None else str(best["architecture"])


def covered(candidates: Sequence[Mapping[str, Any]]) -> float:
    """Hypervolume of what a search has trained, by the losses that it saw."""
    return hypervolume([(row["relative_loss"], row["latency_ratio"]) for row in candidates])


def finals(searches: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Every student that some search would take, once."""
    taken = {chosen(rows, ratio) for rows in searches.values() for ratio in RATIOS}
    return sorted(name for name in taken if name is not None)


def final_plan(spec: Mapping[str, Any], architectures: Sequence[str]) -> Iterator[Group]:
    """Longer trainings on what a search learned from, in groups of one teacher pass.

    Args:
        spec: of a search, with nothing left open.
        architectures: to train.
    """
    for seed in FINAL_SEEDS:
        proxy = ProxySpec(
            steps=FINAL_STEPS,
            batch_size=spec["proxy"]["batch_size"],
            learning_rate=RATE,
            warmup_fraction=WARMUP,
            seed=seed,
            fraction=1.0,
        )
        context = MiniKDContext(
            teacher=spec["teacher"]["fingerprint"],
            corpus=spec["corpus"]["fingerprint"],
            objective=spec["objective"],
            student=spec["student"],
            proxy=proxy.to_json(),
            dtype=spec["proxy"]["dtype"],
            engine_version=ENGINE_VERSION,
        )
        for first in range(0, len(architectures), GROUP):
            some = tuple(architectures[first : first + GROUP])
            yield Group(asdict(context), (0, FINAL_STEPS), some)


def fronts(
    searches: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Those searches whose goal is the front."""
    return {name: rows for name, rows in searches.items() if _kind(name) not in LIMITED}


def _kind(search: str) -> str:
    """Its name without its seed."""
    return search.rpartition("-")[0]


def limited(
    searches: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, dict[str, Any]]:
    """What the searches within a latency found, and how many steps that took."""
    return {
        name: {
            "trainings": len(rows),
            "stopped": sum(row["status"] == "stopped" for row in rows),
            "steps": sum(row["num_steps"] for row in rows),
            **min(
                (
                    {"loss": row["relative_loss"], "student": row["architecture"]}
                    for row in rows
                    if row["status"] == "succeeded"
                ),
                key=lambda best: float(best["loss"]),
            ),
        }
        for name, rows in searches.items()
        if _kind(name) in LIMITED
    }


def summary(
    searches: Mapping[str, Sequence[Mapping[str, Any]]], losses: Mapping[str, float] | None
) -> dict[str, dict[str, list[float | None]]]:
    """What each strategy found, a value for each of its searches; None where it has no student.

    Args:
        searches: name of a search for the front → its candidates.
        losses: architecture → loss of its longer trainings, their mean; None if not all are there.
    """
    found: dict[str, dict[str, list[float | None]]] = {}
    for name, rows in searches.items():
        own = found.setdefault(_kind(name), {})
        for count in (20, 40, TRAININGS):
            own.setdefault(f"hypervolume after {count}", []).append(covered(rows[:count]))
        for ratio in RATIOS if losses is not None else ():
            student = chosen(rows, ratio)
            own.setdefault(f"final loss ≤ {ratio:g}", []).append(
                losses[student] if student else None
            )
    return found


def final_losses(trained: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Losses of longer trainings that came to their end: architecture → seed → loss."""
    losses: dict[str, dict[int, float]] = {}
    for row in trained:
        step, relative, *_ = row["readings"][-1] if row["readings"] else (None, None)
        if step == FINAL_STEPS:
            losses.setdefault(row["architecture"], {})[row["context"]["proxy"]["seed"]] = relative
    return losses


def of_all_seeds(
    architectures: Sequence[str], losses: Mapping[str, Mapping[int, float]]
) -> dict[str, float] | None:
    """The mean of each student's longer trainings; None if one is still to be trained."""
    if any(losses.get(name, {}).keys() < set(FINAL_SEEDS) for name in architectures):
        return None
    return {name: fmean(losses[name].values()) for name in architectures}


def page(result: Mapping[str, Any]) -> str:
    """Word what was found."""
    columns = _columns(result)
    return "\n".join(
        [
            "# Real searches",
            "",
            f"Searches of {TRAININGS} trainings of {PROXY['steps']} steps, goal `front`, seeds "
            f"{', '.join(map(str, SEEDS))}, every state trained anew, on "
            f"{corpus_words(result)}, proxy seed {PROXY_SEED}: neither is that of a table. "
            "Hypervolume is by the losses that a search saw. "
            f"{_finals_words(columns, result.get('torch', ()))} Means over searches with the "
            "lowest and the highest.",
            "",
            *rows(result),
            "",
            "`size-only` goes by size alone, and `reading-only` by how all states start, which a "
            "sweep reads before; they draw nothing, and each is one search. No other strategy "
            "knows a start. `reading-only` covers a little more than the models (it is paid for by "
            "the reading of all states), `size-only` as much at first and less after 60 trainings; "
            f"both take a worse student within {RATIOS[0]:g} than `gp` in any of its searches, "
            "as one of `controller` does: students there stand in another order after "
            f"{FINAL_STEPS} steps than after {PROXY['steps']}.",
            *_limited_words(result["limited"]),
            *_missing_words(result),
            "",
            *_picture_words(result.get("picture")),
            "Made with `python benchmarks/real_searches.py`.",
            "",
        ]
    )


def rows(result: Mapping[str, Any]) -> Iterator[str]:
    """A row a strategy, below the heads."""
    columns = _columns(result)
    yield f"| strategy | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for name, values in result["strategies"].items():
        yield f"| `{name}` | " + " | ".join(_cell(values[what]) for what in columns) + " |"


def _columns(result: Mapping[str, Any]) -> list[str]:
    return list(next(iter(result["strategies"].values())))


def _picture_words(name: str | None) -> list[str]:
    return [f"![What searches cover, and what they find]({name})", ""] if name else []


def draw(
    searches: Mapping[str, Sequence[Mapping[str, Any]]],
    losses: Mapping[str, float] | None,
    path: Path,
) -> None:
    """Draw what searches for the front cover after each training, and the students they found.

    Args:
        searches: name → its candidates.
        losses: architecture → loss of its longer trainings; None if not all are there, and then
            those that the searches saw are drawn.
        path: of the PNG.
    """
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    by_training, by_latency = figure.subplots(1, 2)
    kinds = list(dict.fromkeys(map(_kind, searches)))
    counts = range(1, TRAININGS + 1)
    for number, kind in enumerate(kinds):
        own = [rows for name, rows in searches.items() if _kind(name) == kind]
        colour = f"C{number}"
        curves = np.array([[covered(rows[:count]) for count in counts] for rows in own])
        by_training.plot(counts, curves.mean(axis=0), color=colour, label=kind)
        ends = curves.min(axis=0), curves.max(axis=0)
        by_training.fill_between(counts, *ends, color=colour, alpha=0.15, linewidth=0)
        for rows in own:
            found = {name: row for row in rows for name in [row["architecture"]]}
            best = [found[name] for r in RATIOS if (name := chosen(rows, r)) is not None]
            by_latency.plot(
                [row["latency_ratio"] for row in best],
                [losses[r["architecture"]] if losses else r["relative_loss"] for r in best],
                "o-",
                color=colour,
                alpha=0.7,
                markersize=4,
                linewidth=1,
            )
    covered_axis = "hypervolume: mean, lowest and highest"
    by_training.set(xlabel="trainings", ylabel=covered_axis, ylim=(2, None))
    loss = f"loss after {FINAL_STEPS} steps" if losses else "loss that the search saw"
    by_latency.set(xlabel="share of the teacher's latency", ylabel=f"{loss}, a line a search")
    by_training.legend(frameon=False, fontsize="small")
    for axes in (by_training, by_latency):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def _finals_words(columns: Sequence[str], versions: Sequence[str]) -> str:
    if not any(name.startswith("final") for name in columns):
        return "The longer trainings of what was found are still to come."
    return (
        "Of each search the student of the lowest loss under a share of the teacher's latency was "
        f"trained for {FINAL_STEPS} steps with seeds {' and '.join(map(str, FINAL_SEEDS))} "
        f"(torch {', '.join(versions)}); its loss is the mean."
    )


def _limited_words(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is found within a latency, with and without trainings that end early."""
    if not found:
        return
    yield from (
        "",
        f"Within {LIMIT:g} of the teacher's latency (goal `limit`), `{BLIND[0]}` without and with "
        "rungs at which trainings end that promise too little, one search each:",
        "",
        "| search | rungs | trainings | ended early | steps trained | lowest loss | student |",
        "|---|---|---|---|---|---|---|",
    )
    for name, row in found.items():
        options = LIMITED[_kind(name)]
        rungs = options[options.index("--rungs") + 1] if "--rungs" in options else "none"
        numbers = f"{row['trainings']} | {row['stopped']} | {row['steps']} | {row['loss']:.4f}"
        yield f"| `{name}` | {rungs} | {numbers} | `{row['student']}` |"


def _missing_words(result: Mapping[str, Any]) -> list[str]:
    """Which searches are still to come."""
    asked = [_kind(job.name) for job in plan() if job.command[0] == "search"]
    done = [_kind(name) for name in result["limited"]]
    for name, found in result["strategies"].items():
        done += [name] * len(next(iter(found.values())))
    missing = {name: asked.count(name) - done.count(name) for name in dict.fromkeys(asked)}
    told = [f"{count} of `{name}`" for name, count in missing.items() if count]
    return ["", f"Searches that are still to come: {', '.join(told)}."] if told else []


def _cell(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "none"
    ends = f" ({min(known):.4f} to {max(known):.4f})" if len(known) > 1 else ""
    lacking = f", {len(values) - len(known)} without" if len(known) < len(values) else ""
    return f"{fmean(known):.4f}{ends}{lacking}"


def keep(home: Home, searches: Mapping[str, Sequence[Mapping[str, Any]]], results: Path) -> None:
    """Write what was found so far, and the plan of the longer trainings of it."""
    spec = home.spec(next(job for job in plan() if job.name in searches))
    facts = corpus_facts(home.corpus(spec["corpus"]["fingerprint"]))
    wanted = [asdict(group) for group in final_plan(spec, finals(fronts(searches)))]
    for name, told in (
        ("searches.json", {**facts, "searches": searches}),
        ("finals-plan.json", wanted),
    ):
        write_atomically(results / name, json.dumps(told).encode())


def main() -> None:
    """Search, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--corpus", help="File or folder of text.")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--output", type=Path, help="Of the page, without an ending.")
    asked = parser.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    kept, rows = asked.results / "searches.json", JsonLines(asked.results / "finals.jsonl")
    if asked.what == "run":
        if not asked.corpus:
            parser.error("run needs --corpus")
        home, searches = Home(asked.results / "home", asked.corpus), {}
        for job in plan():
            home.do(job)
            if job.command[0] == "search":
                searches[job.name] = home.candidates(job, asked.results)
                keep(home, searches, asked.results)
        return
    stored = json.loads(kept.read_text("utf-8"))
    every = stored.pop("searches")
    for_front = fronts(every)
    longer = final_losses(rows.rows)
    losses = of_all_seeds(finals(for_front), longer)
    told = ("architecture", "latency_ratio", "relative_loss", "source")
    short = {name: [[row[key] for key in told] for row in found] for name, found in every.items()}
    strategies = summary(for_front, losses)
    result = {
        **stored,
        "strategies": strategies,
        "limited": limited(every),
        "searches": short,
        "finals": longer,
        "torch": sorted({row["torch"] for row in rows.rows}),  # its build says CPU or GPU
    }
    if asked.output:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        picture = asked.output.with_suffix(".png")
        draw(for_front, losses, picture)
        result["picture"] = picture.name
    publish(page(result), result, asked.output)


if __name__ == "__main__":
    main()
