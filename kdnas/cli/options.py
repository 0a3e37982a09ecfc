"""Options that several commands share, with one wording each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Teacher = Annotated[
    str | None,
    typer.Option(help="Alias, model folder or hub id.  [default: KDNAS_TEACHER, else minilm]"),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        help="File, folder, glob, pydocs or hub:owner/name; may be repeated.  "
        "[default: KDNAS_CORPUS, else pydocs]"
    ),
]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text (JSONL, Parquet, hub).")]
LanguageColumn = Annotated[str | None, typer.Option(help="Column of the language.")]
MaxLength = Annotated[int | None, typer.Option(help="Tokens of a sample; longer ones are cut.")]
Preset = Annotated[str | None, typer.Option(help="laptop or paper.  [default: laptop]")]
Config = Annotated[
    Path | None, typer.Option(help="YAML file with a spec; see `kdnas schema`.", dir_okay=False)
]
Objective = Annotated[str | None, typer.Option(help="What students learn: hs.")]
Mapping = Annotated[
    str | None,
    typer.Option(
        help="Layer mapping: single, last, uniform, uniform_consecutive, uniform_last or kdnas."
    ),
]
Init = Annotated[str | None, typer.Option(help="How a student starts: warm or random.")]
Steps = Annotated[int | None, typer.Option(help="Optimiser steps; instead of epochs.")]
Epochs = Annotated[
    float | None, typer.Option(help="Passes over the training sequences; instead of steps.")
]
BatchSize = Annotated[int | None, typer.Option(help="Sequences of a step.")]
LearningRate = Annotated[float | None, typer.Option(help="Peak learning rate.")]
WarmupFraction = Annotated[
    float | None, typer.Option(help="Share of the steps in which the rate rises.")
]
Dtype = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a worker on a CPU.")]
Name = Annotated[str | None, typer.Option(help="A name to call it by.  [default: made up]")]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object last on stdout; progress to stderr.")
]
