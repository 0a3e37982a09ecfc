"""Options of ``kdnas evaluate`` that go together: the grid, and a task of the user's own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kdnas.errors import SpecError

Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Fine-tunings beside each other; 1 works in this process, without a cluster.  "
        "[default: what the machine, or the cluster of KDNAS_RAY_ADDRESS, has room for]",
    ),
]
Grid = Annotated[
    bool,
    typer.Option(
        "--grid",
        help="Choose learning rate and epochs of each task by trials, on examples that are not "
        "scored; the published grid unless the next options say otherwise.",
    ),
]
GridLearningRates = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Learning rates of the grid.  [default: 1e-5,2e-5,3e-5,5e-5]",
    ),
]
GridEpochs = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Epochs of the grid.  [default: 3,5,10]"),
]
Kind = Annotated[
    str | None,
    typer.Option(
        help="own: classification, regression or tagging.  [default: classification]",
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="own: column of the text; of tagging, of the list of words.  [default: text]",
    ),
]
Pair = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="own: column of a second text."),
]
Label = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="own: column of the class, the number, or the list of tags.  [default: label]",
    ),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="own: accuracy, f1, matthews, precision, recall; pearson, spearman: the first counts."
        "  [default: accuracy,f1; pearson,spearman; f1,precision,recall]",
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        help="own: what the report calls the task.  [default: the name of the file or folder]",
    ),
]


def grid_values(grid: bool, learning_rates: str | None, epochs: str | None) -> dict[str, Any]:
    """Return the entry of the spec that the options of the grid set.

    Raises:
        SpecError: a list holds something else than numbers.
    """
    if not (grid or learning_rates or epochs):
        return {}
    lists = {
        "learning_rates": _numbers("--grid-learning-rates", learning_rates),
        "epochs": _numbers("--grid-epochs", epochs),
    }
    return {"grid": {name: values for name, values in lists.items() if values is not None}}


def _numbers(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(f"{option} {text!r} is no list of numbers; write such as 1,2.5") from None


def own_values(
    kind: str | None,
    text: str | None,
    pair: str | None,
    label: str | None,
    metrics: str | None,
    name: str | None,
) -> dict[str, Any]:
    """Return the entries of the spec that the options of a user's task set."""
    return {
        "own.kind": kind,
        "own.text": text,
        "own.pair": pair,
        "own.label": label,
        "own.metrics": [part.strip() for part in metrics.split(",")] if metrics else None,
        "own.name": name,
    }
