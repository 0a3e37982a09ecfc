"""Sentence similarity along a training: does it rise while the loss falls?

    python benchmarks/sts_along.py train --corpus TEXTS --data-dir GLUE --results RUNS
    python benchmarks/sts_along.py report --results RUNS --output docs/results/sts_along

``train`` distils students in one schedule each and reads them on the way: the held-out loss, and
STS-B by the cosine of embeddings, through no map, through the map W that is exported, and through W
with the mean embedding taken off. Nothing is chosen by these readings. A student whose rows are in
the file is not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from named_corpus import source_name
from scipy.stats import spearmanr
from study_files import JsonLines, publish
from torch import Tensor, nn
from transformers import AutoTokenizer

from kdnas import ENGINE_VERSION
from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.held_out import HeldOut
from kdnas.distill.numerics import choose_dtype, num_threads
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.tasks.examples import TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.pooling import Pooling
from kdnas.models.teacher import prepare_teacher
from kdnas.objectives.hidden_state import HiddenState
from kdnas.settings import Settings
from kdnas.specs.parts import CorpusSpec, StudentSpec, TrainingSpec
from kdnas.store import Store

STUDENTS = ("3,12,288,768,gelu", "3,12,192,768,gelu", "2,2,192,1024,relu")
STEPS, BATCH, RATE = 2000, 32, 2e-3
READ_AT = (0, 60, 120, 240, 480, 960, 1400, 2000)
MAX_LENGTH = 64
COLUMNS = {
    "relative": "relative loss",
    "output": "of the last layer",
    "raw": "STS-B by the last layer",
    "mapped": "through W",
    "centred": "through W, mean taken off",
    "missed": "missed of the teacher's embeddings",
    "common": "share of the mean in their length",
}


class Similarity:
    """Pairs of sentences, and what a teacher makes of them.

    Args:
        pairs: with the similarity that people gave them.
        setup: of the teacher.
    """

    def __init__(self, pairs: Sequence[TextExample], setup: Setup) -> None:
        self._truth = [float(pair.label or 0) for pair in pairs]
        texts = [pair.text for pair in pairs] + [pair.pair or "" for pair in pairs]
        tokenizer = AutoTokenizer.from_pretrained(setup.teacher.folder)
        self._batches = [
            tokenizer(
                texts[i : i + 64],
                padding=True,
                truncation=True,
                max_length=MAX_LENGTH,
                return_tensors="pt",
            )
            for i in range(0, len(texts), 64)
        ]
        self._theirs = self.embeddings(setup.model)

    @torch.no_grad()
    def embeddings(self, model: nn.Module) -> Tensor:
        """Means over tokens, first sentences first: (2 · pairs, D)."""
        pooling, found = Pooling(), []
        for batch in self._batches:
            ids, mask = batch["input_ids"], batch["attention_mask"]
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
            found.append(pooling(states, mask))
        return torch.cat(found)

    def read(self, student: nn.Module, projection: Tensor) -> dict[str, float]:
        """Spearman's correlations of a student in eval mode, and how far it is from its teacher."""
        own = self.embeddings(student)
        mapped, theirs = own @ projection, self._theirs
        apart = (mapped - theirs).square().sum() / (theirs - theirs.mean(0)).square().sum()
        return {
            "raw": self._correlation(own),
            "mapped": self._correlation(mapped),
            "centred": self._correlation(mapped - mapped.mean(0)),
            "missed": float(apart),
            "common": float(mapped.mean(0).norm() / mapped.norm(dim=1).mean()),
        }

    def _correlation(self, embedded: Tensor) -> float:
        first, second = embedded.chunk(2)
        cosines = torch.cosine_similarity(first, second)
        return float(spearmanr(cosines.numpy(), self._truth).statistic)

    def teacher(self) -> dict[str, float]:
        """The teacher's own correlations."""
        theirs = self._theirs
        return {
            "mapped": self._correlation(theirs),
            "centred": self._correlation(theirs - theirs.mean(0)),
            "common": float(theirs.mean(0).norm() / theirs.norm(dim=1).mean()),
        }


def train(source: str, data_dir: Path, results: JsonLines) -> None:
    """Train and read the students that are missing."""
    store = Store.from_settings(Settings.from_environment())
    teacher = prepare_teacher("minilm", store)
    text = CorpusSpec(source=(source,), max_length=MAX_LENGTH)
    corpus = build_corpus(text, teacher.folder, store)
    dtype = choose_dtype("auto", "cpu")
    setup = Setup(teacher, CalibrationText(corpus, store), "cpu", dtype, StudentSpec())
    task = load_task(find_task("STS-B"), data_dir)
    dev = next(iter(task.evaluations.values()))
    similarity = Similarity([pair for pair in dev if isinstance(pair, TextExample)], setup)
    facts: dict[str, Any] = {
        "corpus": source_name(source),
        "corpus_fingerprint": corpus.fingerprint,
        "engine_version": ENGINE_VERSION,
        "dtype": dtype,
        "teacher": similarity.teacher(),
    }
    results.refuse_others(facts["corpus"], corpus.fingerprint)
    for name in STUDENTS:
        if results.having(corpus=facts["corpus"], architecture=name):
            continue
        rows = [
            {"architecture": name, **facts, **row} for row in along(name, setup, corpus, similarity)
        ]
        for row in rows:
            results.add(row)


def along(
    name: str, setup: Setup, corpus: TokenizedCorpus, similarity: Similarity
) -> Iterator[dict[str, Any]]:
    """Train a student, and yield what is read of it on the way."""
    architecture, plan = Architecture.parse(name), StagePlan(HiddenState(), 0, STEPS, STEPS)
    spec = TrainingSpec(steps=STEPS, batch_size=BATCH, learning_rate=RATE, warmup_fraction=0.1)
    batches = BatchPlan(corpus.lengths, corpus.train_indices, BATCH, spec.seed)
    student = setup.student(architecture, plan, spec)
    with (
        closing(setup.trainer(student, architecture, plan, spec)) as trainer,
        setup.teacher_pass([trainer]) as teacher,
    ):
        setup.fit(trainer)
        held_out = HeldOut(setup, corpus, spec)
        for step in range(STEPS + 1):
            if step in READ_AT:
                losses = held_out.losses(teacher, [trainer])[0]
                projection = setup.sentence_projection(trainer)
                assert projection is not None  # this teacher embeds sentences
                with trainer.evaluating() as evaluated:
                    found = similarity.read(evaluated, projection)
                row = {"step": step, "relative": losses.relative, "output": losses.output, **found}
                print(name, row, flush=True)
                yield row
            if step < STEPS:
                batch = setup.batch(pad_batch(corpus, batches.batch_indices(step)))
                trainer.step(batch, teacher(batch))


def report(results: JsonLines) -> tuple[str, dict[str, Any]]:
    """The page and its numbers."""
    first = results.rows[0]
    theirs = first["teacher"]
    lines = [
        "# Sentence similarity along a training",
        "",
        f"Students of MiniLM, cut from it, then {STEPS} steps of {BATCH} sequences in one schedule "
        f"with a peak rate of {RATE:g}, in {first['dtype']}; `{first['corpus']}`, corpus "
        f"`{first['corpus_fingerprint']}`; one seed. STS-B's dev set by the cosine of embeddings, "
        f"Spearman × 100; the teacher has {100 * theirs['mapped']:.1f}, with its mean taken off "
        f"{100 * theirs['centred']:.1f}, and its mean embedding is {theirs['common']:.2f} of their "
        "length. What is missed of the teacher's embeddings of these sentences is a share of their "
        "variance.",
        "",
    ]
    for name in dict.fromkeys(row["architecture"] for row in results.rows):
        rows = [row for row in results.rows if row["architecture"] == name]
        lines += [
            f"## `{name}`",
            "",
            "| step | " + " | ".join(COLUMNS.values()) + " |",
            "|---|" + "---|" * len(COLUMNS),
        ]
        for row in rows:
            cells = [
                f"{100 * row[key]:.1f}"
                if key in ("raw", "mapped", "centred")
                else f"{row[key]:.3f}"
                for key in COLUMNS
            ]
            lines.append(f"| {row['step']} | {' | '.join(cells)} |")
        falls = [
            f"{before['step']} to {after['step']}"
            for before, after in pairwise(rows)
            if after["mapped"] < before["mapped"] and after["relative"] < before["relative"]
        ]
        told = f"falls while the loss falls from step {', '.join(falls)}" if falls else "never does"
        what = "Through W it" if falls else "That it falls through W while the loss falls it"
        lines += ["", f"{what} {told}.", ""]
    return "\n".join([*lines, "Made with `python benchmarks/sts_along.py`.", ""]), {
        "rows": results.rows
    }


def main() -> None:
    """Train, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("train", "report"))
    parser.add_argument("--corpus", default="pydocs", help="file, folder or pydocs")
    parser.add_argument("--data-dir", type=Path, help="GLUE as it is published")
    parser.add_argument("--results", type=Path, required=True, help="JSON lines")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    results = JsonLines(arguments.results)
    if arguments.part == "report":
        publish(*report(results), arguments.output)
        return
    if arguments.data_dir is None:
        parser.error("--data-dir says where GLUE is")
    with num_threads(1):
        train(arguments.corpus, arguments.data_dir, results)


if __name__ == "__main__":
    main()
