"""mini-KD: the naive loops beside the shared-teacher engine, factor by factor.

The geometry is the paper's: a 12 x 768 teacher (random weights: speed does not depend on them) and
candidates drawn from its space. Naive is what distillation code usually does: for each candidate
its own teacher forward, hidden states of all layers, one linear map a pair, losses over the
padded batch with a mask, batches in random order.

    python benchmarks/minikd_throughput.py --corpus pydocs --output docs/results/minikd_throughput

Every variant sees the same sequences; times are medians over interleaved rounds, given per 1000
real tokens and candidate.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from named_corpus import corpus_facts, corpus_words
from study_files import publish
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, PaddedBatch, pad_batch
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.numerics import autocast, choose_device, choose_dtype, derived_seed
from kdnas.distill.stages import StagePlan
from kdnas.distill.student_trainer import StudentTrainer
from kdnas.distill.teacher_pass import TeacherPass
from kdnas.models.batch import Batch
from kdnas.models.families import family_of
from kdnas.models.student import build_student
from kdnas.models.taps import TapPoints
from kdnas.models.teacher import prepare_teacher
from kdnas.objectives.hidden_state import HiddenState
from kdnas.objectives.layer_mapping import layer_mapping
from kdnas.records import TeacherShape
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.parts import CorpusSpec
from kdnas.specs.search import ProxySpec
from kdnas.store import Store

TEACHER_LAYERS, TEACHER_HIDDEN = 12, 768
BATCH_SIZE, MAX_LENGTH = 32, 128
SPEC = ProxySpec(steps=10_000, batch_size=BATCH_SIZE, learning_rate=8e-4)


def make_teacher(device: str) -> BertModel:
    """Build BERT base with random weights."""
    torch.manual_seed(0)
    return BertModel(BertConfig(), add_pooling_layer=False).to(device).eval().requires_grad_(False)


def draw_candidates(count: int, seed: int = 0) -> list[Architecture]:
    """Draw candidates evenly from the paper's space, ordered as drawn."""
    space = SearchSpace.paper()
    picks = np.random.default_rng(seed).choice(len(space), size=count, replace=False)
    return [space[int(i)] for i in picks]


class Naive:
    """One candidate trained the usual way."""

    def __init__(self, architecture: Architecture, teacher: BertModel, device: str) -> None:
        self.teacher, self.device = teacher, device
        self.student = build_student(teacher.config, architecture).to(device).train()
        self.mapping = layer_mapping(HiddenState().mapping, architecture.layers, TEACHER_LAYERS)
        self.maps = nn.ModuleDict(
            {
                f"{i}-{j}": nn.Linear(architecture.hidden, TEACHER_HIDDEN, bias=False)
                for i, layers in self.mapping.items()
                for j in layers
            }
        ).to(device)
        parameters = [*self.student.parameters(), *self.maps.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, lr=8e-4, betas=(0.9, 0.98))

    def step(self, padded: PaddedBatch, dtype: str) -> None:
        """One step: teacher, student, masked losses of all pairs, backward, AdamW."""
        ids = torch.from_numpy(padded.input_ids).to(self.device)
        mask = torch.from_numpy(padded.attention_mask).to(self.device)
        with autocast(self.device, dtype):
            with torch.no_grad():
                taught = self.teacher(ids, attention_mask=mask, output_hidden_states=True)
            learned = self.student(ids, attention_mask=mask, output_hidden_states=True)
            weight = mask.unsqueeze(-1).float()
            loss = torch.zeros((), device=self.device)
            for i, layers in self.mapping.items():
                for j in layers:
                    guess = self.maps[f"{i}-{j}"](learned.hidden_states[i]).float()
                    error = F.mse_loss(guess, taught.hidden_states[j].float(), reduction="none")
                    loss = loss + (error * weight).sum() / (weight.sum() * TEACHER_HIDDEN)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def to_length(padded: PaddedBatch, length: int) -> PaddedBatch:
    """Pad a batch to a fixed length, as loops without dynamic padding do."""
    extra = ((0, 0), (0, length - padded.input_ids.shape[1]))
    return PaddedBatch(np.pad(padded.input_ids, extra), np.pad(padded.attention_mask, extra))


def random_batches(corpus: TokenizedCorpus, seed: int) -> Iterator[PaddedBatch]:
    """Batches in random order, padded to their longest: no bucketing."""
    order = np.random.default_rng(seed).permutation(corpus.train_indices)
    for start in range(0, len(order) - BATCH_SIZE, BATCH_SIZE):
        yield pad_batch(corpus, order[start : start + BATCH_SIZE])


def ours(
    architectures: list[Architecture], teacher: BertModel, device: str, dtype: str
) -> tuple[list[StudentTrainer], TeacherPass]:
    """The engine's trainers and their shared teacher pass."""
    family = family_of("bert")
    shape = TeacherShape(
        "bert", TEACHER_LAYERS, 12, TEACHER_HIDDEN, 3072, "gelu", 30522, 512, 2, "random"
    )
    trainers = []
    for architecture in architectures:
        plan = StagePlan(HiddenState(), 0, 10_000, 10_000)
        head = plan.objective.head(architecture, shape, derived_seed("head", architecture))
        student = build_student(teacher.config, architecture)
        trainers.append(
            StudentTrainer(student, family, head, SPEC, plan, choose_device(device), dtype)
        )
    points = TapPoints.union(t.head.teacher_taps for t in trainers)
    return trainers, TeacherPass(teacher, family, points, choose_device(device), dtype)


def timed(work: Callable[[], int], device: str) -> float:
    """Seconds per 1000 real tokens of one piece of work, which returns its real tokens."""
    began = time.perf_counter()
    tokens = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / tokens * 1000


def measure(corpus: TokenizedCorpus, num_candidates: int, rounds: int, device: str) -> dict:
    """Time all variants, interleaved; a first round on one candidate warms up, uncounted."""
    fast = choose_dtype("auto", choose_device(device))
    teacher = make_teacher(device)
    architectures = draw_candidates(num_candidates)
    naive = [Naive(a, teacher, device) for a in architectures]
    trainers, shared = ours(architectures, teacher, device, fast)
    plan = BatchPlan(corpus.lengths, corpus.train_indices, BATCH_SIZE, seed=0)
    batches = random_batches(corpus, seed=0)
    samples: dict[str, list[float]] = {}
    teacher_share: list[float] = []

    def note(name: str, value: float, counts: bool) -> None:
        if counts:
            samples.setdefault(name, []).append(value)

    for turn in range(rounds + 1):
        random_batch = next(batches)
        longest = to_length(random_batch, MAX_LENGTH)
        for name, batch, dtype in (
            ("naive float32, padded to the maximum", longest, "float32"),
            ("naive float32, padded to the longest", random_batch, "float32"),
            (f"naive {fast}, padded to the longest", random_batch, fast),
        ):
            real = int(batch.attention_mask.sum())

            chosen = naive if turn else naive[:1]

            def train_all(
                batch: PaddedBatch = batch,
                dtype: str = dtype,
                real: int = real,
                chosen: list[Naive] = chosen,
            ) -> int:
                for candidate in chosen:
                    candidate.step(batch, dtype)
                return real * len(chosen)

            note(name, timed(train_all, device), turn > 0)
        name, members = f"ours, group of {num_candidates}", trainers if turn else trainers[:1]
        # As many batches as make up for one random one, several lengths among them.
        steps = range(turn * 4, turn * 4 + 4)
        spent = {"teacher": 0.0, "all": 0.0}

        def train_group(
            members: list[StudentTrainer] = members,
            steps: range = steps,
            spent: dict[str, float] = spent,
        ) -> int:
            tokens, began = 0, time.perf_counter()
            for step in steps:
                padded = pad_batch(corpus, plan.batch_indices(step))
                batch = Batch.of(
                    padded.input_ids, padded.attention_mask, device=choose_device(device)
                )
                before = time.perf_counter()
                states = shared(batch)
                if device == "cuda":
                    torch.cuda.synchronize()
                spent["teacher"] += time.perf_counter() - before
                for trainer in members:
                    trainer.step(batch, states)
                tokens += batch.num_tokens * len(members)
            spent["all"] = time.perf_counter() - began
            return tokens

        note(name, timed(train_group, device), turn > 0)
        if turn > 0:
            teacher_share.append(spent["teacher"] / spent["all"])
    with shared:
        for trainer in trainers:
            with closing(trainer):
                pass
    return {
        **corpus_facts(corpus),
        "architectures": [str(a) for a in architectures],
        "seconds_per_1000_tokens": {k: statistics.median(v) for k, v in samples.items()},
        "samples": samples,
        "teacher_share": statistics.median(teacher_share),
        "bucketed_padding_efficiency": plan.padding_efficiency(),
        "dtype": fast,
    }


def report(result: dict, num_candidates: int) -> str:
    """Write the Markdown table."""
    seconds = result["seconds_per_1000_tokens"]
    group = seconds[f"ours, group of {num_candidates}"]
    # Of the same students: what the group's steps took, with the teacher's part once for each.
    share = result["teacher_share"]
    alone = group * (1 - share + num_candidates * share)
    longest32 = seconds["naive float32, padded to the longest"]
    fast = seconds[f"naive {result['dtype']}, padded to the longest"]
    computed = {**seconds, "ours, a teacher pass for each (computed from its share)": alone}
    rows = "\n".join(
        f"| {name} | {value:.3f} | {longest32 / value:.2f} |" for name, value in computed.items()
    )
    factors = {
        "padding to the maximum → to the batch's longest": seconds[
            "naive float32, padded to the maximum"
        ]
        / longest32,
        f"float32 → {result['dtype']}": longest32 / fast,
        "buckets, fused steps, one product a layer": fast / alone,
        f"own teacher → shared by {num_candidates}": alone / group,
    }
    factor_rows = "\n".join(f"| {name} | {value:.2f} × |" for name, value in factors.items())
    return f"""# mini-KD throughput

{TEACHER_LAYERS} × {TEACHER_HIDDEN} teacher with random weights, {num_candidates} candidates of the
paper's space, batches of {BATCH_SIZE} sequences of at most {MAX_LENGTH} tokens of
{corpus_words(result)}, on {result["machine"]}. Medians of {result["rounds"]} interleaved rounds.

| variant | seconds per 1000 real tokens and candidate | × naive float32 |
|---|---|---|
{rows}

| factor by itself | |
|---|---|
{factor_rows}

Against naive float32 padded to the longest: **{longest32 / group:.1f} ×**; against naive
{result["dtype"]}: **{fast / group:.1f} ×**. The teacher takes
{100 * result["teacher_share"]:.0f} % of a step of the group. Real tokens in bucketed batches:
{100 * result["bucketed_padding_efficiency"]:.0f} %.

Candidates: {", ".join(f"`{a}`" for a in result["architectures"])}.
Made with `python benchmarks/minikd_throughput.py`.
"""


def main() -> None:
    """Run the benchmark and write its table and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="pydocs")
    parser.add_argument("--tokenizer", default="minilm", help="teacher whose tokenizer is used")
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    with tempfile.TemporaryDirectory() as scratch:
        home = Settings.from_environment().home
        store = Store(str(home / "store") if home.is_dir() else scratch, Path(scratch))
        handle = prepare_teacher(arguments.tokenizer)
        spec = CorpusSpec(source=(arguments.corpus,), max_length=MAX_LENGTH)
        corpus = build_corpus(spec, handle.folder, store)
        result = measure(corpus, arguments.candidates, arguments.rounds, device)
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    name = torch.cuda.get_device_name() if device == "cuda" else cpu
    result["machine"] = f"{name}, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
    result["rounds"] = arguments.rounds
    publish(report(result, arguments.candidates), result, arguments.output)


if __name__ == "__main__":
    main()
