"""``kdnas export``: a model as ONNX, and model folders to the hub."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kdnas.cli.options import common
from kdnas.cli.options.pushing import check_push_options, push
from kdnas.cli.screens.console import say, say_each
from kdnas.cli.tables.answers import fact_lines, print_json
from kdnas.errors import RequestError, unknown_name
from kdnas.paths import expanded


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Student or teacher folder, alias or hub id.")
    ],
    format_: Annotated[
        str | None, typer.Option("--format", help="onnx; leave it out to push the folder as it is.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Write an int8 model too (dynamic quantisation).")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Empty or new folder.  [default: NAME-onnx in the working folder]"),
    ] = None,
    sequence_length: Annotated[
        int, typer.Option(min=4, help="Tokens of the sequence that is timed.")
    ] = 32,
    threads: Annotated[int, typer.Option(min=1, help="Threads while timing.")] = 1,
    latency: Annotated[
        bool, typer.Option("--latency/--no-latency", help="Time PyTorch and ONNX side by side.")
    ] = True,
    push_to_hub: common.PushToHub = None,
    private: common.Private = False,
    as_json: common.Json = False,
) -> None:
    """Write a model as ONNX, push it to the hub, or both.

    The ONNX model is compared with PyTorch before it is kept, and timed beside it.
    """
    if format_ is None and push_to_hub is None:
        raise RequestError("there is nothing to do; add --format onnx, --push-to-hub, or both")
    if format_ is not None and format_ != "onnx":
        raise RequestError(unknown_name("format", format_, ["onnx"]))
    if format_ is None and (int8 or output is not None):
        raise RequestError("--int8 and --output are for --format onnx; add it, or leave them out")
    check_push_options(push_to_hub, private)
    result: dict[str, Any] = {"model": model, "folder": model}
    folder = expanded(model)
    if format_ == "onnx":
        folder, figures = _to_onnx(model, output, int8, sequence_length, threads, latency)
        result |= {**figures, "folder": str(folder)}
    elif not folder.is_dir():
        raise RequestError(
            f"{model!r} is no folder, so there is nothing of yours to push; give a model folder, "
            "or add --format onnx to push it as ONNX"
        )
    if push_to_hub is not None:
        result["hub"] = push(folder, push_to_hub, private)
    if as_json:
        print_json(result)
    elif push_to_hub is not None:
        typer.echo(f"{'hub':<10} {result['hub']}")


def _to_onnx(
    model: str, output: Path | None, int8: bool, length: int, threads: int, latency: bool
) -> tuple[Path, Mapping[str, Any]]:
    from kdnas.distill.onnx_export import export_onnx
    from kdnas.latency.side_by_side import time_side_by_side

    target = output or Path(f"{expanded(model).absolute().name}-onnx")

    done = export_onnx(
        model,
        target.absolute(),
        partial(time_side_by_side, on_wait=say) if latency else None,
        int8=int8,
        length=length,
        threads=threads,
        on_step=lambda step: say(f"{step} ..."),
    )
    say_each(_lines(done.folder, done.figures))
    return done.folder, done.figures


def _lines(folder: Path, figures: Mapping[str, Any]) -> list[str]:
    from kdnas.distill.onnx_card import (
        agreement_text,
        conditions_text,
        doubt_text,
        int8_text,
        latency_rows,
        slow_text,
    )

    int8, timed = figures.get("int8"), figures.get("latency")
    facts = {
        "model": f"{figures['model']}: {figures['family']}, {figures['layers']} layers of "
        f"{figures['hidden']}, up to {figures['longest_sequence']} tokens",
        "gives": f"{', '.join(figures['outputs'])} ({figures['kind']}), of "
        f"{', '.join(figures['inputs'])}",
        "verified": agreement_text(figures["agreement"]),
        "int8": int8 and int8_text(int8),
    }
    doubts = [doubt_text(int8), slow_text(timed)] if int8 else []
    lines = [*fact_lines(facts, 10), *(f"warning: {doubt}" for doubt in doubts if doubt)]
    if timed:
        lines.append(f"{'latency':<10} median, {conditions_text(timed)}")
        for title, ms, share in latency_rows(timed):
            compared = "" if title == "PyTorch" else f"  {share:.2f} of PyTorch's"
            lines.append(f"{'':<10} {title:<10} {ms:8.2f} ms{compared}")
    files = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in figures["bytes"].items())
    return [*lines, f"{'written':<10} {folder}  ({files})"]
