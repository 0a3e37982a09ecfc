"""Data-parallel distillation: one worker against two, one thread each.

The teacher is MiniLM (6 x 384), the student 3,12,288,768,gelu, the objective hidden states, the
text `pydocs` in sequences of at most 64 tokens, in batches of 32. The workers are the real ones
(`FullDistillation` over gloo), in processes of their own:

- one worker, the whole batch;
- two workers, a batch together (16 sequences each): the same steps in less time;
- two workers, two batches together (32 sequences each): twice the work in the same time;
- two trainings side by side, which never talk to each other: what the machine gives two processes
  of one thread, and so the most that two workers could reach.

    python benchmarks/data_parallel.py --output docs/results/data_parallel

Rounds are interleaved; a configuration that is not measured sleeps. The clock runs from a round's
first step to the end of its last, batches included; held-out losses and checkpoints come before and
after. The share of the exchange is the time inside of it, waiting for the other worker included.
`--steps 4 --rounds 1` tries the program. It wants two free cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from named_corpus import corpus_facts, corpus_words
from study_files import publish
from torch import Tensor, distributed, nn

from kdnas.corpus.batches import BatchPlan
from kdnas.corpus.tokenized import TokenizedCorpus, build_corpus
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.full import FullDistillation
from kdnas.distill.numerics import choose_dtype, num_threads
from kdnas.distill.parallel import Parallel
from kdnas.models.teacher import prepare_teacher
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.parts import CorpusSpec
from kdnas.store import Store

TEACHER, ARCHITECTURE = "minilm", "3,12,288,768,gelu"
BATCH_SIZE, MAX_LENGTH = 32, 64
ENDLESS = 10**6


@dataclass(frozen=True)
class Configuration:
    """Processes that are measured at the same time.

    Attributes:
        title: what the table calls it.
        processes: how many.
        together: whether they share each batch, or train by themselves.
        batch_size: of a step, over all that share it.
    """

    title: str
    processes: int = 2
    together: bool = True
    batch_size: int = BATCH_SIZE

    @property
    def batches(self) -> int:
        """Different batches that are trained on in a step's time."""
        return 1 if self.together else self.processes


ONE = Configuration("one worker", processes=1)
SIDE_BY_SIDE = Configuration("two trainings side by side", together=False)
CONFIGURATIONS = (
    ONE,
    Configuration("two workers, a batch together"),
    Configuration("two workers, two batches together", batch_size=2 * BATCH_SIZE),
    SIDE_BY_SIDE,
)
BUSY = 0.5
"""Load from which on the figures say little about the program."""


class Timed(Parallel):
    """Knows how long its exchanges took."""

    __slots__ = ()
    seconds = 0.0

    def sum_gradients(
        self,
        parameters: Sequence[nn.Parameter],
        table: nn.Parameter | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """Sum the gradients, and look at the clock."""
        started = time.perf_counter()
        Parallel.sum_gradients(self, parameters, table, rows)
        Timed.seconds += time.perf_counter() - started


class Rounds:
    """Lets a distillation run a round of steps, tells how long it took, and sleeps."""

    def __init__(self, connection: Connection, steps: int) -> None:
        self._connection, self._steps = connection, steps
        self._made = 0
        self._started = time.perf_counter()

    def wait(self) -> bool:
        """Sleep until there is a round to run; False when there are no more."""
        goes_on: bool = self._connection.recv()
        self._made, self._started = 0, time.perf_counter()
        Timed.seconds = 0.0
        return goes_on

    def __call__(self) -> bool:
        """Count a step; the distillation asks after each whether it should stop."""
        self._made += 1
        if self._made < self._steps:
            return False
        self._connection.send((time.perf_counter() - self._started, Timed.seconds))
        return not self.wait()


def spec_of(batch_size: int) -> DistillationSpec:
    """Return the distillation that is measured; nothing is read or written in between."""
    return DistillationSpec.model_validate(
        {
            "architecture": ARCHITECTURE,
            "training": {
                "steps": ENDLESS,
                "checkpoint_every": ENDLESS,
                "batch_size": batch_size,
                "threads": 1,
            },
        }
    )


def work(
    configuration: Configuration, rank: int, folder: Path, dtype: str, steps: int, end: Connection
) -> None:
    """One process of a configuration."""
    parallel = Timed(rank, configuration.processes) if configuration.together else Timed()
    if parallel.world_size > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting-{configuration.batch_size}",
            rank=rank,
            world_size=parallel.world_size,
        )
    handle = prepare_teacher(TEACHER)
    with num_threads(1):
        run = FullDistillation(
            spec_of(configuration.batch_size),
            handle,
            TokenizedCorpus.open(Path((folder / "corpus").read_text())),
            Store.from_settings(Settings.from_environment()),
            Checkpoints(f"memory://{configuration.title}"),
            "cpu",
            dtype,
            parallel=parallel,
        )
        rounds = Rounds(end, steps)
        end.send("ready")
        rounds.wait()
        run.run(should_stop=rounds)


@contextmanager
def processes(
    configuration: Configuration, folder: Path, dtype: str, steps: int
) -> Iterator[list[Connection]]:
    """Start a configuration's processes; they end with the block."""
    context = multiprocessing.get_context("spawn")
    ends, started = [], []
    for rank in range(configuration.processes):
        here, there = context.Pipe()
        process = context.Process(
            target=work, args=(configuration, rank, folder, dtype, steps, there), daemon=True
        )
        process.start()
        there.close()
        ends.append(here)
        started.append(process)
    try:
        for end in ends:
            end.recv()
        yield ends
    finally:
        for end in ends:
            end.send(False)
        for process in started:
            process.join(60)


def measure(corpus: TokenizedCorpus, folder: Path, steps: int, rounds: int) -> dict[str, Any]:
    """Run all configurations, round after round."""
    dtype = choose_dtype("auto", "cpu")
    seconds: dict[str, list[float]] = {c.title: [] for c in CONFIGURATIONS}
    exchange: dict[str, list[float]] = {c.title: [] for c in CONFIGURATIONS}
    tokens: dict[str, list[int]] = {c.title: [] for c in CONFIGURATIONS}
    plans = {
        c.title: BatchPlan(corpus.lengths, corpus.train_indices, c.batch_size, 0)
        for c in CONFIGURATIONS
    }
    with ExitStack() as stack:
        ends = {
            c.title: stack.enter_context(processes(c, folder, dtype, steps)) for c in CONFIGURATIONS
        }
        for number in range(rounds + 1):  # the first one warms up
            for configuration in CONFIGURATIONS:
                title = configuration.title
                for end in ends[title]:
                    end.send(True)
                told = [end.recv() for end in ends[title]]
                if not number:
                    continue
                seconds[title].append(statistics.mean(s for s, _ in told))
                exchange[title].append(statistics.mean(e for _, e in told))
                seen = range(number * steps, (number + 1) * steps)
                real = sum(int(corpus.lengths[plans[title].batch_indices(s)].sum()) for s in seen)
                tokens[title].append(real * configuration.batches)
    return {
        "dtype": dtype,
        "configurations": [
            {
                **asdict(c),
                "tokens_per_second": [
                    t / s for t, s in zip(tokens[c.title], seconds[c.title], strict=True)
                ],
                "seconds_per_step": [s / steps for s in seconds[c.title]],
                "exchange_share": [
                    e / s for e, s in zip(exchange[c.title], seconds[c.title], strict=True)
                ],
            }
            for c in CONFIGURATIONS
        ],
    }


def report(result: dict[str, Any]) -> str:
    """Write the table of a result."""
    found = {row["title"]: row for row in result["configurations"]}
    base, ceiling = (found[c.title]["tokens_per_second"] for c in (ONE, SIDE_BY_SIDE))

    def ratio(speeds: list[float], others: list[float]) -> float:
        return statistics.median(s / o for s, o in zip(speeds, others, strict=True))

    rows = []
    for configuration in CONFIGURATIONS:
        row = found[configuration.title]
        gain = ratio(row["tokens_per_second"], base)
        row["speed_up"], row["efficiency"] = gain, gain / configuration.processes
        row["of_side_by_side"] = ratio(row["tokens_per_second"], ceiling)
        of_ceiling = "" if configuration is ONE else f"{100 * row['of_side_by_side']:.0f} %"
        rows.append(
            f"| {configuration.title} | {statistics.median(row['tokens_per_second']):.0f} | "
            f"{statistics.median(row['seconds_per_step']) * 1000:.0f} | {gain:.2f} × | "
            f"{100 * row['efficiency']:.0f} % | {of_ceiling} | "
            f"{100 * statistics.median(row['exchange_share']):.1f} % |"
        )
    table = "\n".join(rows)
    busy = (
        "\nOther work was running on the machine: compare with the last row, and measure again.\n"
        if result["load"] > BUSY
        else ""
    )
    return f"""# Data-parallel distillation

One worker and two of one thread each: MiniLM (6 × 384) as teacher, student `{ARCHITECTURE}`,
hidden states, {corpus_words(result)} of at most {MAX_LENGTH} tokens, {result["dtype"]}, on
{result["machine"]}. Medians of {result["rounds"]} interleaved rounds of {result["steps"]} steps.
Load of the machine (1 minute) before the start: {result["load"]:.2f}.
{busy}
| | real tokens per second | ms a step | × one worker | efficiency | of the last row | exchange |
|---|---|---|---|---|---|---|
{table}

Efficiency is the speed-up divided by the number of processes. The last row exchanges nothing: it is
what the machine gives two processes at once, and the most that two workers could reach. The
exchange is the share of a worker's time in which gradients are summed, waiting for the other worker
included; the bar is an efficiency of 90 % where cores allow.

Every worker makes the whole optimiser step, which two that share one small batch cannot halve.

Made with `python benchmarks/data_parallel.py --output docs/results/data_parallel`.
"""


def machine() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{next(iter(names), platform.processor())}, {os.cpu_count()} cores"


def main() -> None:
    """Run the benchmark and write its table and numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="pydocs")
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "steps": arguments.steps,
        "rounds": arguments.rounds,
    }
    handle = prepare_teacher(TEACHER)
    with tempfile.TemporaryDirectory() as scratch:
        home, folder = Settings.from_environment().home, Path(scratch)
        store = Store(str(home / "store") if home.is_dir() else scratch, folder)
        spec = CorpusSpec(source=(arguments.corpus,), max_length=MAX_LENGTH)
        corpus = build_corpus(spec, handle.folder, store)
        (folder / "corpus").write_text(str(store.fetch("corpus", corpus.fingerprint)))
        result |= corpus_facts(corpus)
        result |= measure(corpus, folder, arguments.steps, arguments.rounds)
    publish(report(result), result, arguments.output)


if __name__ == "__main__":
    main()
