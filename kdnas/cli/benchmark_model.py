"""``kdnas benchmark-model``: how fast and how large models are, beside their teacher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kdnas.cli.options import common

if TYPE_CHECKING:
    from kdnas.evaluation.benchmarking.run import Benchmark


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
    import tempfile

    from kdnas.cli.screens.console import say, show_results
    from kdnas.cli.tables.formats import as_text
    from kdnas.evaluation.benchmarking.run import RUNTIMES, BenchmarkPlan, Candidate, run_benchmark
    from kdnas.evaluation.benchmarking.table import (
        benchmark_json,
        benchmark_table,
        conditions,
        right_columns,
    )
    from kdnas.specs.search import LatencySpec

    named = [part.strip() for text in runtime or [] for part in text.split(",") if part.strip()]
    values = {"length": length, "threads": threads, "device": device, "dtype": dtype}
    plan = BenchmarkPlan(
        tuple(dict.fromkeys(named)) or RUNTIMES, LatencySpec.read(values, "latency"), batch_size
    )
    _check_ending(output)
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
    show = show_results(as_json)
    show("")
    show(as_text(header, rows, right=right_columns(header)))
    for line in (*conditions(benchmark, base), *map("left out: {}".format, benchmark.left_out)):
        show(line)
    if output is not None:
        _write(benchmark, base, output)
        say(f"written    {output}")
    if as_json:
        typer.echo(json.dumps(benchmark_json(benchmark, base)))


ENDINGS = (".md", ".csv", ".json")


def _check_ending(output: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    from kdnas.errors import RequestError, unknown_name

    if output is not None and output.suffix not in ENDINGS:
        raise RequestError(unknown_name("file ending", output.suffix, ENDINGS))
    if output is not None and not output.absolute().parent.is_dir():
        raise RequestError(f"the folder of {output} does not exist; make it, or name another file")


def _write(benchmark: Benchmark, base: str, output: Path) -> None:
    from kdnas.cli.tables.formats import as_csv, as_markdown
    from kdnas.evaluation.benchmarking.table import (
        benchmark_json,
        benchmark_table,
        conditions,
        right_columns,
    )

    header: Sequence[str]
    header, rows = benchmark_table(benchmark, base)
    if output.suffix == ".md":
        notes = "\n".join(f"- {line}" for line in (*conditions(benchmark, base),))
        text = f"{as_markdown(header, rows, right=right_columns(header))}\n\n{notes}\n"
    elif output.suffix == ".csv":
        text = as_csv(header, rows) + "\n"
    else:
        text = json.dumps(benchmark_json(benchmark, base), indent=2) + "\n"
    output.write_text(text, "utf-8")
