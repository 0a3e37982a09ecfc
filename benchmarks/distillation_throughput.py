"""Full distillation beside TextBrewer 0.2.1: the same teacher, student, pairs, loss and text.

The teacher is MiniLM (6 x 384), the student 3,12,288,768,gelu, the objective hidden states with the
pairs of our default mapping, the text `pydocs` in batches of 32 sequences, padded to the batch's
longest for both. TextBrewer runs as its documentation says: `GeneralDistiller`, adaptors,
`intermediate_matches` with `hidden_mse` and a linear projection for each pair, its own `train`.
Variants in between change one thing at a time, so that the factors multiply to the ratio.

    python benchmarks/distillation_throughput.py --output docs/results/distillation_throughput

Needs the extra `bench`. Each variant trains in a process of its own (memory settings belong to a
process), one at a time: rounds are interleaved, and every round gives all variants the same
sequences. The clock is in the batches: it runs from a round's first batch to the request for the
batch after its last, reading and padding included; nobody reads held-out losses or writes
checkpoints in between. `--steps 4 --rounds 1` tries the program.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from named_corpus import corpus_facts, corpus_words
from study_files import publish
from torch import Tensor

from kdnas.allocator import keep_freed_memory
from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, PaddedBatch, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.numerics import (
    Device,
    autocast,
    choose_device,
    choose_dtype,
    derived_seed,
)
from kdnas.distill.setup import Setup
from kdnas.distill.stages import StagePlan
from kdnas.errors import TrainingError
from kdnas.models.teacher import prepare_teacher
from kdnas.objectives.hidden_state import HiddenState, HiddenStateHead
from kdnas.settings import Settings
from kdnas.specs.distillation import FullTrainingSpec
from kdnas.specs.parts import CorpusSpec, StudentSpec
from kdnas.store import Store

TEACHER = "minilm"
ARCHITECTURE = Architecture.parse("3,12,288,768,gelu")
BATCH_SIZE = 32
SPEC = FullTrainingSpec(steps=10_000, batch_size=BATCH_SIZE)
PLAN = StagePlan(HiddenState(), 0, 10_000, 10_000)


@dataclass(frozen=True)
class Variant:
    """One way to train.

    Attributes:
        title: what the table calls it.
        change: what is different from the variant before.
        textbrewer: whether TextBrewer trains, or our trainer.
        buckets: whether a batch holds sequences of like length, or random ones.
        fast: whether forward passes run in the hardware's fast format, or in float32.
        fused: whether AdamW runs fused (ours only).
        keeps_memory: whether the allocator keeps what a step frees (ours only).
    """

    title: str
    change: str = ""
    textbrewer: bool = False
    buckets: bool = True
    fast: bool = True
    fused: bool = True
    keeps_memory: bool = True


def variants(fast: str) -> tuple[Variant, ...]:
    """Return the chain from TextBrewer to ours; no autocast where float32 is the fast format."""
    chain = [
        Variant("TextBrewer", textbrewer=True, buckets=False, fast=False),
        Variant(
            "TextBrewer, length buckets",
            "random batches → length buckets",
            textbrewer=True,
            fast=False,
        ),
        Variant(
            f"TextBrewer, length buckets, {fast}", f"float32 → {fast} autocast", textbrewer=True
        ),
        Variant(
            "ours, AdamW unfused, default allocator",
            "all hidden states, a linear layer a pair → tapped layers, one product a layer",
            fused=False,
            keeps_memory=False,
        ),
        Variant("ours, default allocator", "unfused AdamW → fused", keeps_memory=False),
        Variant("ours", "default allocator → freed memory kept"),
    ]
    return tuple(v for v in chain if fast != "float32" or "float32 →" not in v.change)


def tensors(padded: PaddedBatch) -> dict[str, Tensor]:
    """Return a batch as the models' keyword arguments."""
    return {
        "input_ids": torch.from_numpy(padded.input_ids),
        "attention_mask": torch.from_numpy(padded.attention_mask),
    }


class Peer:
    """TextBrewer, started with our student's weights and our projections.

    ``hidden_mse`` with ``inputs_mask`` is Σ (H^S W + b − H^T)² over real tokens, divided by real
    tokens times teacher dimensions: with weight 1 a pair our loss, but for the bias, which starts
    at 0.
    """

    def __init__(self, setup: Setup, dtype: str, scratch: Path) -> None:
        from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig

        class Distiller(GeneralDistiller):  # type: ignore[misc]
            """Autocast around the forward passes and the loss; in float32 as it came."""

            def train_on_batch(self, batch: Any, args: Any) -> Any:
                with autocast(setup.device, dtype):
                    return super().train_on_batch(batch, args)

        self.student = setup.student(ARCHITECTURE, PLAN, SPEC)
        head = make_head(setup)
        pairs = [(i, j) for i, layers in head.mapping.items() for j in layers]
        widths = [ARCHITECTURE.hidden, setup.teacher.shape.hidden]
        matches = [
            {
                "layer_T": j,
                "layer_S": i,
                "feature": "hidden",
                "loss": "hidden_mse",
                "weight": 1,
                "proj": ["linear", *widths],
            }
            for i, j in pairs
        ]
        self.student.to(setup.device)
        self.distiller = Distiller(
            TrainingConfig(
                ckpt_steps=PLAN.steps,
                log_dir=None,
                output_dir=str(scratch / "textbrewer"),
                device=setup.device,
            ),
            DistillationConfig(intermediate_matches=matches),
            setup.model,
            self.student,
            self._adapt,
            self._adapt,
        )
        with torch.no_grad():
            for (i, j), linear in zip(pairs, self.distiller.projs, strict=True):
                parts = head.projections[str(i)].chunk(len(head.mapping[i]), dim=1)
                linear.weight.copy_(parts[head.mapping[i].index(j)].T)

    @staticmethod
    def _adapt(batch: dict[str, Tensor], outputs: Any) -> dict[str, Any]:
        return {"hidden": outputs.hidden_states, "inputs_mask": batch["attention_mask"]}

    def train(self, batches: Iterator[PaddedBatch]) -> None:
        """Train on batches until they end the training by an exception."""
        from transformers import get_linear_schedule_with_warmup

        optimizer = torch.optim.AdamW(
            self.student.parameters(), SPEC.learning_rate, SPEC.betas, weight_decay=0.0
        )
        with self.distiller:
            self.distiller.train(
                optimizer,
                (tensors(padded) for padded in batches),
                num_steps=PLAN.steps,
                scheduler_class=get_linear_schedule_with_warmup,
                scheduler_args={
                    "num_warmup_steps": round(SPEC.warmup_fraction * PLAN.steps),
                    "num_training_steps": PLAN.steps,
                },
                max_grad_norm=SPEC.max_grad_norm,
                output_hidden_states=True,
            )

    def loss(self, padded: PaddedBatch) -> Tensor:
        """Return the training loss of a batch."""
        total, _ = self.distiller.train_on_batch(tensors(padded), {"output_hidden_states": True})
        return total


class Ours:
    """The trainer and the teacher pass of a full distillation, put together as it does."""

    def __init__(self, setup: Setup, variant: Variant) -> None:
        if variant.keeps_memory:
            keep_freed_memory()
        self.setup = setup
        self.student = setup.student(ARCHITECTURE, PLAN, SPEC)
        self.trainer = setup.trainer(self.student, ARCHITECTURE, PLAN, SPEC)
        self.teacher = setup.teacher_pass([self.trainer])
        if not variant.fused:
            for group in self.trainer._optimizer.param_groups:
                group["fused"] = False

    def train(self, batches: Iterator[PaddedBatch]) -> None:
        """Train on batches until they end the training by an exception."""
        for padded in batches:
            for number, batch in enumerate(self.setup.parts(padded)):
                self.trainer.learn(batch, self.teacher(batch), number)
            self.trainer.update()
            if self.trainer.error:
                raise TrainingError(self.trainer.error)

    def loss(self, padded: PaddedBatch) -> Tensor:
        """Return the training loss of a batch."""
        (batch,) = self.setup.parts(padded)
        with autocast(self.setup.device, self.setup.dtype):
            self.student(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            return self.trainer.head(self.trainer._tap.take(batch), self.teacher(batch))


def make_head(setup: Setup) -> HiddenStateHead:
    """Make the projections that our trainer begins with."""
    seed = derived_seed("head", SPEC.seed, ARCHITECTURE)
    return PLAN.objective.head(ARCHITECTURE, setup.teacher.shape, seed)  # type: ignore[return-value]


def make_trainer(
    variant: Variant, device: Device, scratch: Path, dtype: str | None = None
) -> Peer | Ours:
    """Load the teacher and make a variant's trainer."""
    dtype = dtype or (choose_dtype("auto", device) if variant.fast else "float32")
    setup = Setup(prepare_teacher(TEACHER), None, device, dtype, StudentSpec(init="warm"))
    return Peer(setup, dtype, scratch) if variant.textbrewer else Ours(setup, variant)


def compare_losses(padded: PaddedBatch, device: Device, scratch: Path) -> dict[str, float]:
    """Compute loss and gradients of one batch with the same weights in both, in float32."""
    chain = variants("bfloat16")
    found = {}
    for name, variant in (("textbrewer", chain[0]), ("ours", chain[-1])):
        trainer = make_trainer(variant, device, scratch, "float32")
        loss = trainer.loss(padded)
        loss.backward()
        gradients = [p.grad.flatten() for p in trainer.student.parameters() if p.grad is not None]
        found[name] = (float(loss.detach()), torch.cat(gradients))
    theirs, ours = found["textbrewer"], found["ours"]
    return {
        "textbrewer": theirs[0],
        "ours": ours[0],
        "gradient_difference": float((theirs[1] - ours[1]).norm() / ours[1].norm()),
    }


class Finished(Exception):  # noqa: N818 - no error, but the end of the last round
    """There are no more rounds."""


@dataclass(frozen=True)
class Round:
    """What a round took.

    Attributes:
        seconds: for all of its steps.
        tokens: real tokens.
        places: tokens and padding.
    """

    seconds: float
    tokens: int
    places: int


class Rounds:
    """Batches of the rounds that the other end of a pipe asks for, and the clock."""

    def __init__(self, corpus: TokenizedCorpus, buckets: bool, device: str) -> None:
        self._corpus, self._buckets, self._device = corpus, buckets, device

    @cached_property
    def _plan(self) -> BatchPlan:
        return BatchPlan(self._corpus.lengths, self._corpus.train_indices, BATCH_SIZE, SPEC.seed)

    def batches(self, pipe: Connection) -> Iterator[PaddedBatch]:
        """Yield a round's batches for each request, then answer with what they took.

        Raises:
            Finished: when asked for no more rounds.
        """
        while (steps := pipe.recv()) is not None:
            began, tokens, places = time.perf_counter(), 0, 0
            for indices in self.groups(steps):
                padded = pad_batch(self._corpus, indices)
                tokens += int(padded.attention_mask.sum())
                places += padded.attention_mask.size
                yield padded
            if self._device == "cuda":
                torch.cuda.synchronize()
            pipe.send(Round(time.perf_counter() - began, tokens, places))
        raise Finished

    def groups(self, steps: range) -> list[Any]:
        """Return the sequences of each step: as bucketed, or the same ones in random order."""
        groups = [self._plan.batch_indices(step) for step in steps]
        if self._buckets:
            return groups
        order = np.random.default_rng(steps.start).permutation(np.concatenate(groups))
        return np.array_split(order, range(BATCH_SIZE, len(order), BATCH_SIZE))


def work(
    variant: Variant, corpus_folder: Path, device: Device, threads: int, pipe: Connection
) -> None:
    """Train one variant in its own process, round by round."""
    torch.set_num_threads(threads)
    corpus = TokenizedCorpus.open(corpus_folder)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(variant, device, Path(scratch))
        rounds = Rounds(corpus, variant.buckets, device)
        check = pad_batch(corpus, corpus.held_out_indices[:BATCH_SIZE])
        with torch.no_grad():
            pipe.send(float(trainer.loss(check)))
        try:
            trainer.train(rounds.batches(pipe))
        except Finished:
            with torch.no_grad():
                pipe.send(float(trainer.loss(check)))


def measure(
    corpus: TokenizedCorpus, device: Device, threads: int, steps: int, rounds: int
) -> dict[str, Any]:
    """Time all variants on one corpus, interleaved; a first round warms up, uncounted."""
    fast = choose_dtype("auto", device)
    chain = variants(fast)
    check = pad_batch(corpus, corpus.held_out_indices[:BATCH_SIZE])
    with tempfile.TemporaryDirectory() as scratch:
        same_loss = compare_losses(check, device, Path(scratch))
    context = multiprocessing.get_context("spawn")
    pipes, samples, losses = [], [[] for _ in chain], []
    for variant in chain:
        pipe, other = context.Pipe()
        arguments = (variant, corpus.folder, device, threads, other)
        context.Process(target=work, args=arguments, daemon=True).start()
        other.close()  # so that a process that dies ends the wait for it
        losses.append([pipe.recv()])
        pipes.append(pipe)
    for turn in range(rounds + 1):
        for variant, pipe, taken in zip(chain, pipes, samples, strict=True):
            pipe.send(range(turn * steps, (turn + 1) * steps))
            found = pipe.recv()
            speed = found.tokens / found.seconds
            print(f"round {turn} of {rounds}: {speed:7.0f} tokens/s  {variant.title}", flush=True)
            if turn:
                taken.append(found)
    for pipe, loss in zip(pipes, losses, strict=True):
        pipe.send(None)
        loss.append(pipe.recv())
    return {
        **corpus_facts(corpus),
        "max_length": corpus.meta["max_length"],
        "dtype": fast,
        "same_batch": same_loss,
        "variants": [
            {
                "title": variant.title,
                "change": variant.change,
                "tokens_per_second": statistics.median(r.tokens / r.seconds for r in taken),
                "padding_efficiency": sum(r.tokens for r in taken) / sum(r.places for r in taken),
                "loss_before_and_after": loss,
                "rounds": [asdict(r) for r in taken],
            }
            for variant, taken, loss in zip(chain, samples, losses, strict=True)
        ],
    }


def factors(speeds: list[float]) -> list[float]:
    """Return how much faster each variant is than the one before; their product is the ratio."""
    return [after / before for before, after in pairwise(speeds)]


def report(result: dict[str, Any]) -> str:
    """Write the Markdown page."""
    sections = []
    for part in result["lengths"]:
        rows = part["variants"]
        speeds = [row["tokens_per_second"] for row in rows]
        table = "\n".join(
            f"| {row['title']} | {speed:.0f} | {speed / speeds[0]:.2f} | "
            f"{100 * row['padding_efficiency']:.0f} % | {row['loss_before_and_after'][0]:.3f} → "
            f"{row['loss_before_and_after'][1]:.3f} |"
            for row, speed in zip(rows, speeds, strict=True)
        )
        gains = factors(speeds)
        steps = "\n".join(
            f"| {row['change']} | {gain:.2f} × |" for row, gain in zip(rows[1:], gains, strict=True)
        )
        same = part["same_batch"]
        sections.append(f"""## At most {part["max_length"]} tokens: {math.prod(gains):.1f} ×

Text: {corpus_words(part)}.

| variant | real tokens per second | × TextBrewer | real tokens of all places | loss |
|---|---|---|---|---|
{table}

| changed, one after the other | |
|---|---|
{steps}
| **all together** | **{math.prod(gains):.2f} ×** |

Loss of one batch with the same weights, float32: TextBrewer {same["textbrewer"]:.6f}, ours
{same["ours"]:.6f}; the student's gradients differ by {same["gradient_difference"]:.1e} of their
norm.
""")
    return f"""# Throughput of full distillation

TextBrewer 0.2.1 and ours: MiniLM (6 × 384) as teacher, student `{ARCHITECTURE}`, hidden states of
the pairs {result["pairs"]}, batches of {BATCH_SIZE} padded to their longest, on
{result["machine"]}. Medians of {result["rounds"]} interleaved rounds of {result["steps"]} steps;
all variants see the same sequences in each round. The bar is 4 × on a CPU, 3 × on a GPU.

TextBrewer is used as documented: `GeneralDistiller` with `hidden_mse` and a linear projection for
each pair, gradients clipped to a norm of 1 in both, AdamW with our rates, no log, no checkpoint, no
evaluation. It runs unchanged under torch {torch.__version__.split("+")[0]}; its adaptors hand over
`hidden_states` and the mask. Its autocast variant overrides `train_on_batch` to enter autocast,
since it knows mixed precision by Apex alone. Its loss is ours: squared errors over real tokens,
divided by real tokens times dimensions, weight 1 a pair; its projections have a bias, which starts
at 0. The last column is the loss of one held-out batch before and after the run, in the variant's
own format.

{chr(10).join(sections)}
Made with `python benchmarks/distillation_throughput.py --output
docs/results/distillation_throughput`.
"""


def machine(device: Device, threads: int) -> str:
    """Name the processor or the GPU."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = next(iter(names), platform.processor())
    return f"{name}, {threads} threads of {os.cpu_count()} cores"


def main() -> None:
    """Run the benchmark and write its table and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="pydocs")
    parser.add_argument("--max-length", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    device, handle = choose_device(arguments.device), prepare_teacher(TEACHER)
    torch.set_num_threads(arguments.threads)
    mapping = PLAN.objective.head(ARCHITECTURE, handle.shape, 0).mapping  # type: ignore[attr-defined]
    result: dict[str, Any] = {
        "machine": machine(device, arguments.threads),
        "pairs": ", ".join(f"{i}–{j}" for i, layers in mapping.items() for j in layers),
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "lengths": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        home = Settings.from_environment().home
        store = Store(str(home / "store") if home.is_dir() else scratch, Path(scratch))
        for max_length in arguments.max_length:
            spec = CorpusSpec(source=(arguments.corpus,), max_length=max_length)
            corpus = build_corpus(spec, handle.folder, store)
            found = measure(corpus, device, arguments.threads, arguments.steps, arguments.rounds)
            result["lengths"].append(found)
    publish(report(result), result, arguments.output)


if __name__ == "__main__":
    main()
