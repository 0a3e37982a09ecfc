"""Options of ``kdnas evaluate`` about models: the teacher beside, variants, size and speed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kdnas.errors import RequestError

PANEL = "What a decider asks"

Teacher = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=PANEL,
        help="Evaluate this model too, in the same way, and say what share of its scores is "
        "retained; alone, without MODEL, evaluate it only.",
    ),
]
Int8 = Annotated[
    bool,
    typer.Option(
        "--int8",
        rich_help_panel=PANEL,
        help="Quantise MODEL's weights to 8 bits after the fine-tuning, and score that.",
    ),
]
KeepLayers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=PANEL,
        help="Cut off MODEL's layers above the first N before the fine-tuning.",
    ),
]
Latency = Annotated[
    bool,
    typer.Option(
        "--latency/--no-latency",
        rich_help_panel=PANEL,
        help="Measure on the CPU how long models take for one sequence.",
    ),
]
LatencyLength = Annotated[
    int | None,
    typer.Option(rich_help_panel=PANEL, help="Tokens of that sequence.  [default: 32]"),
]
LatencyThreads = Annotated[
    int | None, typer.Option(rich_help_panel=PANEL, help="Threads for it.  [default: 1]")
]
Card = Annotated[
    bool,
    typer.Option(
        "--card/--no-card",
        rich_help_panel=PANEL,
        help="Put the scores into the model card of a student that kdnas has made.",
    ),
]
SaveModels = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=PANEL,
        help="Keep MODEL's fine-tuned model of each task: a Hugging Face folder in DIR.",
    ),
]
SaveSeeds = Annotated[
    str,
    typer.Option(rich_help_panel=PANEL, help="Which seeds' models: best or each."),
]


def model_and_teacher(model: str | None, teacher: str | None) -> tuple[str, str | None]:
    """Return what is evaluated, and what is evaluated beside it.

    Raises:
        RequestError: neither was given.
    """
    if model is None and teacher is None:
        raise RequestError("name a MODEL to evaluate, a --teacher, or both")
    return (teacher or "", None) if model is None else (model, teacher)


def latency_values(measured: bool, length: int | None, threads: int | None) -> dict[str, Any]:
    """Return the entry of the spec that the options of latency set."""
    values = {key: n for key, n in (("length", length), ("threads", threads)) if n is not None}
    return {"latency": values if measured else None}
