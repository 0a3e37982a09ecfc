"""``kdnas benchmark-model``: how fast and how large models are, beside their teacher."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli.options import common
from kdnas.cli.options.outputs import check_file
from kdnas.cli.screens.console import say, show_results
from kdnas.cli.tables.answers import print_json
from kdnas.cli.tables.formats import as_csv, as_markdown, as_text

ENDINGS = (".md", ".csv", ".json")


def benchmark_model(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Model folders, exported ones too, aliases or hub ids."
        ),
    ],
    teacher: Annotated[
        str | None,
        typer.Option(help="A model to compare with, such as the teacher.  [default: first MODEL]"),
    ] = None,
    length: Annotated[int, typer.Option(min=4, help="Tokens of a sequence.")] = 32,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Sequences of a batch, for throughput.")
    ] = 32,
    threads: Annotated[int, typer.Option(min=1, help="Threads on a CPU.")] = 1,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help="pytorch, onnx or onnx-int8; with commas or repeated.  [default: all three]"
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu or cuda (PyTorch only); auto is the CPU.")
    ] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16, of PyTorch's weights.")] = (
        "float32"
    ),
    output: Annotated[
        Path | None, typer.Option(help="File for the table: .md, .csv or .json.", dir_okay=False)
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Measure latency, throughput, memory and size of models, in PyTorch and in ONNX.

    Each model and runtime has a process of its own, and they take turns. Graphs that a model's
    folder lacks are made for the time of the measurement.
    """
    from kdnas.evaluation.benchmarking.run import RUNTIMES, BenchmarkPlan, Candidate, run_benchmark
    from kdnas.evaluation.benchmarking.table import (
        benchmark_json,
        benchmark_table,
        conditions,
        right_columns,
    )
    from kdnas.specs.search import LatencySpec

    named = common.names_in(runtime)
    values = {"length": length, "threads": threads, "device": device, "dtype": dtype}
    plan = BenchmarkPlan(
        tuple(dict.fromkeys(named)) or RUNTIMES, LatencySpec.read(values, "latency"), batch_size
    )
    check_file(output, ENDINGS)
    base = teacher or models[0]
    references = dict.fromkeys([*([teacher] if teacher else []), *models])
    with tempfile.TemporaryDirectory(prefix="kdnas-benchmark-") as scratch:
        benchmark = run_benchmark(
            [Candidate(ref, ref) for ref in references],
            plan,
            Path(scratch),
            on_step=lambda step: say(f"{step} ..."),
        )
    header, rows = benchmark_table(benchmark, base)
    right, notes = right_columns(header), conditions(benchmark, base)
    left_out = [f"left out: {reason}" for reason in benchmark.left_out]
    lines = ["", as_text(header, rows, right=right), *notes, *left_out]
    show_results(as_json)("\n".join(lines))
    plain = benchmark_json(benchmark, base)
    if output is not None:
        listed = "\n".join(f"- {line}" for line in notes)
        texts = {
            ".md": f"{as_markdown(header, rows, right=right)}\n\n{listed}\n",
            ".csv": as_csv(header, rows) + "\n",
            ".json": json.dumps(plain, indent=2) + "\n",
        }
        output.write_text(texts[output.suffix], "utf-8")
        say(f"written    {output}")
    if as_json:
        print_json(plain)
