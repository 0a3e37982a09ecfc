"""What a start from the teacher costs: seconds of one thread over a whole search space.

    python benchmarks/start_cost.py --corpus TEXTS --output docs/results/start_cost

Students are spread evenly over the space of ``minilm``, and its heaviest are all made; each is
built, cut from its teacher, and has its projections W fitted, as in a search. A 12 × 768 teacher
with random weights follows: its seconds do not depend on what it has learned. Seconds are CPU time,
so run it on an idle machine.
"""

from __future__ import annotations

import argparse
import gc
import platform
import resource
import shutil
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from named_corpus import corpus_facts, corpus_words
from study_files import publish
from transformers import BertConfig, BertModel

from kdnas.architecture import Architecture
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.numerics import num_threads
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan
from kdnas.models.teacher import TeacherHandle, prepare_teacher
from kdnas.objectives.hidden_state import HiddenState
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.parts import CorpusSpec, StudentSpec, TrainingSpec
from kdnas.store import Store

MEDIAN_BAR, WORST_BAR, LARGE_BAR = 1.0, 4.0, 30.0
MEBIBYTE = 2**20


def measure(setup: Setup, architectures: list[Architecture]) -> list[dict[str, Any]]:
    """Start students one after the other; the first one twice, since it warms caches."""
    plan = StagePlan(HiddenState(), 0, 1, 1)
    spec = TrainingSpec(steps=1)
    found = []
    for number, architecture in enumerate([architectures[0], *architectures]):
        began = time.process_time()
        student = setup.student(architecture, plan, spec)
        built = time.process_time()
        with closing(setup.trainer(student, architecture, plan, spec)) as trainer:
            prepared = time.process_time()
            setup.fit(trainer)
            fitted = time.process_time()
        if number:
            found.append(
                {
                    "architecture": str(architecture),
                    "start_seconds": built - began,
                    "fit_seconds": fitted - prepared,
                }
            )
    return found


def collect(handle: TeacherHandle, corpus: TokenizedCorpus, tokens: int, store: Store) -> Any:
    """Make a set-up and its states; return both, with seconds and bytes."""
    start = StudentSpec(init="teacher", calibration_tokens=tokens)
    setup = Setup(handle, CalibrationText(corpus, store), "cpu", "float32", start)
    began = time.process_time()
    states = setup.states
    seconds = time.process_time() - began
    size = sum(file.stat().st_size for file in states.folder.iterdir())
    return setup, {
        "tokens": states.num_tokens,
        "collect_seconds": seconds,
        "states_mebibytes": size / MEBIBYTE,
    }


def large_teacher(folder: Path, tokenizer: Path) -> Path:
    """Save a BERT base with random weights and another teacher's tokenizer."""
    torch.manual_seed(0)
    BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(folder)
    for file in (*tokenizer.glob("*token*"), *tokenizer.glob("vocab*")):
        shutil.copy(file, folder / file.name)
    return folder


def heaviest(space: SearchSpace, own: TeacherShape) -> list[Architecture]:
    """The architectures of a space with the largest products, but for the teacher's own."""

    def weights(architecture: Architecture) -> int:
        width, neurons = architecture.hidden, architecture.intermediate
        return architecture.layers * width * (4 * width + 2 * neurons)

    most = max(map(weights, space.states))
    copied = Architecture(own.layers, own.heads, own.hidden, own.intermediate, own.activation)
    return [state for state in space.states if weights(state) == most and state != copied]


def summary(rows: list[dict[str, Any]], heavy: list[dict[str, Any]]) -> dict[str, float]:
    """Median seconds of students spread over a space, and the largest of all that were made."""

    def both(row: dict[str, Any]) -> float:
        return float(row["start_seconds"] + row["fit_seconds"])

    return {
        "median_start": statistics.median(row["start_seconds"] for row in rows),
        "largest_start": max(row["start_seconds"] for row in (*rows, *heavy)),
        "median": statistics.median(map(both, rows)),
        "largest": max(map(both, (*rows, *heavy))),
    }


def report(numbers: dict[str, Any]) -> str:
    """The page."""
    lines = [
        "# What a start from the teacher costs",
        "",
        f"CPU seconds of one thread ({numbers['machine']}, PyTorch {numbers['torch']}); corpus "
        f"{corpus_words(numbers)}. *Start* builds a student and cuts it from its teacher, *fit* "
        "sets its projections W by least squares.",
        "",
        f"## {numbers['students']} students spread over the {numbers['space']} of `minilm`, and "
        f"the {numbers['heaviest']} heaviest of them",
        "",
        "Medians are of those that are spread, the largest is of all.",
        "",
        "| calibration tokens | states, MiB | collecting them, s | start, median / largest | "
        "start and fit, median / largest | bar |",
        "|---|---|---|---|---|---|",
    ]
    for row in numbers["by_tokens"]:
        met = row["median"] <= MEDIAN_BAR and row["largest"] <= WORST_BAR
        lines.append(
            f"| {row['tokens']} | {row['states_mebibytes']:.0f} | {row['collect_seconds']:.1f} | "
            f"{row['median_start']:.2f} / {row['largest_start']:.2f} | "
            f"{row['median']:.2f} / {row['largest']:.2f} | "
            f"≤ {MEDIAN_BAR:g} / {WORST_BAR:g}: {'met' if met else '**missed**'} |"
        )
    lines += [
        "",
        f"The default is {StudentSpec().calibration_tokens} tokens. What fewer cost in loss is in "
        "[science.md](../science.md#what-it-is-worth).",
        "",
        "## A 12 × 768 teacher (random weights)",
        "",
    ]
    large = numbers["large"]
    lines += [
        f"{large['tokens']} calibration tokens; its states take "
        f"{large['states_mebibytes']:.0f} MiB on disk, from where they are mapped, and "
        f"{large['collect_seconds']:.1f} s to collect. The process had "
        f"{large['peak_mebibytes']:.0f} MiB in memory at most, teacher and mapped states included.",
        "",
        "| student | start, s | fit, s | bar |",
        "|---|---|---|---|",
    ]
    for row in large["rows"]:
        total = row["start_seconds"] + row["fit_seconds"]
        lines.append(
            f"| `{row['architecture']}` | {row['start_seconds']:.1f} | {row['fit_seconds']:.1f} | "
            f"≤ {LARGE_BAR:g}: {'met' if total <= LARGE_BAR else '**missed**'} |"
        )
    return "\n".join([*lines, "", "Made with `python benchmarks/start_cost.py`.", ""])


def main() -> None:
    """Measure, and write page and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 4096])
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--output", type=Path, required=True, help="path without ending")
    arguments = parser.parse_args()
    store = Store.from_settings(Settings.from_environment())
    minilm = prepare_teacher("minilm", store)
    text = CorpusSpec(source=(arguments.corpus,), max_length=64)
    corpus = build_corpus(text, minilm.folder, store)
    space = SearchSpace.scaled_to(minilm.shape)
    # The small shift keeps an even stride from meeting the same value of the fast axes each time.
    chosen = [
        space[i * len(space) // arguments.students + i % 7] for i in range(arguments.students)
    ]
    heavy = heaviest(space, minilm.shape)
    numbers: dict[str, Any] = {
        **corpus_facts(corpus),
        "machine": f"{platform.machine()}, {platform.system()}",
        "torch": torch.__version__,
        "space": f"{len(space)} architectures",
        "students": len(chosen),
        "heaviest": len(heavy),
        "by_tokens": [],
    }
    with num_threads(1), tempfile.TemporaryDirectory() as scratch:
        for tokens in arguments.tokens:
            # A store of its own, so that collecting is measured as well.
            own = Store(str(Path(scratch) / str(tokens)), Path(scratch) / f"cache-{tokens}")
            setup, facts = collect(minilm, corpus, tokens, own)
            rows, heavy_rows = measure(setup, chosen), measure(setup, heavy)
            found = summary(rows, heavy_rows)
            numbers["by_tokens"].append({**facts, **found, "rows": rows, "heaviest": heavy_rows})
            print(tokens, found, flush=True)
        del setup
        gc.collect()
        base = large_teacher(Path(scratch) / "base", minilm.folder)
        handle = prepare_teacher(str(base), store)
        setup, facts = collect(handle, corpus, StudentSpec().calibration_tokens, store)
        paper = ("4,12,576,768,gelu", "6,12,768,3072,gelu", "12,12,768,3072,relu")
        rows = measure(setup, [Architecture.parse(a) for a in paper])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        numbers["large"] = {**facts, "rows": rows, "peak_mebibytes": peak}
    publish(report(numbers), numbers, arguments.output)


if __name__ == "__main__":
    main()
