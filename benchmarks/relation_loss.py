"""The relation loss in chunks beside the plain one: time and peak memory on a CPU.

Plain is what one writes first: scores, masked soft-max, KL, and autograd for the rest (see
``kdnas.testing.relation_reference``). Both compute one pair's loss (queries with keys) and its
gradient, on the same made-up tensors of uneven lengths::

    python benchmarks/relation_loss.py

Times are medians of interleaved rounds, in seconds of CPU time: the process has one thread, and
time in which it has to wait for other jobs is not counted. Memory is measured in a process of its
own for each variant: the highest resident set during one forward and backward pass, less the
resident set just before it, as Linux counts them (``VmHWM`` and ``VmRSS``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kdnas.allocator import keep_freed_memory
from kdnas.objectives.relation_loss import relation_loss
from kdnas.testing.relation_reference import eager_relation_loss

RESULTS = Path(__file__).parent.parent / "docs" / "results"
HEADS, TEACHER_HIDDEN, STUDENT_HIDDEN = 48, 384, 288
SIZES = ((32, 32), (32, 64), (32, 128), (8, 512))  # (B, T)
VARIANTS: dict[str, Callable[..., Tensor]] = {"eager": eager_relation_loss, "ours": relation_loss}
MEMORY_BAR, TIME_BAR = 1 / 8, 1.0
STATUS = Path("/proc/self/status")


class Case:
    """Made-up queries and keys of both models; the shortest sequence is half the longest."""

    def __init__(self, batch: int, tokens: int) -> None:
        generator = torch.Generator().manual_seed(0)

        def pair(width: int) -> tuple[Tensor, Tensor]:
            one, other = torch.randn(2, batch, tokens, width, generator=generator)
            return one, other

        self.student, self.teacher = pair(STUDENT_HIDDEN), pair(TEACHER_HIDDEN)
        for values in self.student:
            values.requires_grad_()
        lengths = torch.linspace(tokens / 2, tokens, batch).long()
        self.real = torch.arange(tokens)[None] < lengths[:, None]

    def run(self, variant: str) -> list[Tensor]:
        """Forward and backward; return the loss and the gradients."""
        loss = VARIANTS[variant](self.student, self.teacher, self.real, HEADS)
        return [loss.detach(), *torch.autograd.grad(loss, self.student)]


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Largest relative error of the loss or of a gradient (as vectors)."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))


def times(batch: int, tokens: int, rounds: int) -> dict[str, Any]:
    """CPU seconds of each variant, and how far their results differ."""
    case = Case(batch, tokens)
    results = {variant: case.run(variant) for variant in VARIANTS}  # warms up, too
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant, found in seconds.items():
            start = time.process_time()
            case.run(variant)
            found.append(time.process_time() - start)
    return {
        "seconds": {variant: statistics.median(found) for variant, found in seconds.items()},
        "difference": difference(results["ours"], results["eager"]),
    }


def resident(field: str) -> int:
    """Read a field of this process's status, in bytes."""
    line = next(x for x in STATUS.read_text("ascii").splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024


def peak_memory(variant: str, batch: int, tokens: int) -> int:
    """Bytes that one forward and backward pass takes on top; run it in a fresh process."""
    Case(1, 16).run(variant)  # what libraries set up at their first call belongs to neither
    case = Case(batch, tokens)
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # forget the peak so far
    before = resident("VmRSS")
    kept = case.run(variant)
    peak = resident("VmHWM") - before
    del kept
    return peak


def peak_memory_apart(variant: str, batch: int, tokens: int) -> int:
    """Measure the memory in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", variant, str(batch), str(tokens)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(found.stdout)


def processor() -> str:
    """Name the CPU."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def as_markdown(content: dict[str, Any]) -> str:
    """Write the report."""
    rows = []
    for size in content["sizes"]:
        seconds, memory = size["seconds"], size["bytes"]
        rows.append(
            f"| {size['batch']} × {size['tokens']} | {seconds['eager'] * 1e3:.0f} | "
            f"{seconds['ours'] * 1e3:.0f} | {seconds['eager'] / seconds['ours']:.1f} × | "
            f"{memory['eager'] / 2**20:.0f} | {memory['ours'] / 2**20:.0f} | "
            f"1/{memory['eager'] / memory['ours']:.0f} | {size['difference']:.0e} |"
        )
    low, high = content["load_average"]
    columns = ("sequences × tokens", "plain, ms", "ours, ms", "faster")
    columns += ("plain, MiB", "ours, MiB", "memory", "difference")
    return "\n".join(
        [
            "# Relation loss",
            "",
            f"One pair (α, β), {HEADS} relation heads, a teacher {TEACHER_HIDDEN} and a student "
            f"{STUDENT_HIDDEN} wide, float32, forward and",
            f"backward, on one thread of {content['cpu']} ({content['cores']} cores). Times are "
            f"medians of {content['rounds']} interleaved rounds, in CPU",
            "time; memory is the peak of one pass on top of its inputs, in a process of its own.",
            "",
            f"| {' | '.join(columns)} |",
            f"|{'---|' * len(columns)}",
            *rows,
            "",
            "Bars: at 512 tokens at most 1/8 of the plain loss's memory; never slower than it. "
            "The last column is",
            "the largest relative difference of the loss and of the gradients. At 512 tokens the "
            "batch is 8, not",
            "32: the plain loss would need four times the memory.",
            "",
            f"The machine's load average was {low:.1f} before and {high:.1f} after: above 1, other "
            "jobs ran beside it. Waiting",
            "for them is not counted, but they take their share of the caches.",
            "Made with `python benchmarks/relation_loss.py`.",
            "",
        ]
    )


def main() -> None:
    """Run, print and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--memory-of", nargs=3, metavar=("VARIANT", "B", "T"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.memory_of:
        variant, batch, tokens = args.memory_of
        print(peak_memory(variant, int(batch), int(tokens)))
        return

    keep_freed_memory()
    load = os.getloadavg()[0]
    sizes: list[dict[str, Any]] = []
    for batch, tokens in SIZES:
        memory = {variant: peak_memory_apart(variant, batch, tokens) for variant in VARIANTS}
        found = times(batch, tokens, args.rounds)
        sizes.append({"batch": batch, "tokens": tokens, "bytes": memory, **found})
        print(sizes[-1], flush=True)
    content = {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        "torch": torch.__version__,
        "rounds": args.rounds,
        "load_average": [load, os.getloadavg()[0]],
        "bars": {"memory": MEMORY_BAR, "time": TIME_BAR},
        "sizes": sizes,
    }
    report = as_markdown(content)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "relation_loss.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    (args.out / "relation_loss.md").write_text(report, "utf-8")
    print(report)


if __name__ == "__main__":
    main()
