"""Options that several commands share, with one wording each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
Objective = Annotated[
    str | None,
    typer.Option(help="What students learn: {objectives}.  [default: {default}]"),
]
Relations = Annotated[
    str | None,
    typer.Option(help="{relations} With or without weights: qq,kk,vv or qq=1,vv=2."),
]
RelationHeads = Annotated[int | None, typer.Option(help="{relation_heads}")]
TeacherLayer = Annotated[str | None, typer.Option(help="{teacher_layer}")]
Orthogonal = Annotated[bool, typer.Option("--orthogonal", help="{orthogonal}")]
Temperature = Annotated[float | None, typer.Option(help="{temperature}")]
FitLMHead = Annotated[
    int | None, typer.Option("--fit-lm-head", metavar="STEPS", help="{fit_lm_head}")
]
Mapping = Annotated[
    str | None,
    typer.Option(
        help="{mapping} One of single, last, uniform, uniform_consecutive, uniform_last, kdnas."
    ),
]
LastWeight = Annotated[float | None, typer.Option(help="{last_weight}")]
Init = Annotated[
    str | None,
    typer.Option(
        help="How a student starts: teacher (its layers, heads and neurons, cut to any size), warm "
        "(its embeddings alone), random (nothing of it) or copy (its embeddings and whole layers; "
        "it may have fewer of them, and is otherwise like its teacher)."
    ),
]
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
JsonOfService = Annotated[
    bool, typer.Option("--json", help="Print what the service answers, as JSON.")
]
Limit = Annotated[int, typer.Option(min=1, max=500, help="The newest so many.")]
PushToHub = Annotated[
    str | None,
    typer.Option(metavar="OWNER/NAME", help="Push the folder to this repository of the hub."),
]
Private = Annotated[bool, typer.Option("--private", help="Make a new repository private.")]


def objective_values(
    objective: str | None,
    mapping: str | None,
    last_weight: float | None,
    relations: str | None,
    relation_heads: int | None,
    teacher_layer: str | None,
    orthogonal: bool,
    temperature: float | None,
    fit_lm_head: int | None,
) -> dict[str, Any]:
    """Return the entries of the spec that the options of the objective set."""
    layer = int(teacher_layer) if teacher_layer and teacher_layer.isdecimal() else teacher_layer
    return {
        "objective.name": objective,
        "objective.mapping": mapping,
        "objective.last_weight": last_weight,
        "objective.relations": _relations(relations),
        "objective.relation_heads": relation_heads,
        "objective.teacher_layer": layer,
        "objective.orthogonal": orthogonal or None,
        "objective.temperature": temperature,
        "objective.fit_lm_head": fit_lm_head,
    }


def _relations(text: str | None) -> dict[str, str] | list[str] | None:
    """Read ``qq,kk,vv`` or ``qq=1,vv=2``; the spec checks names and weights."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        return parts
    weights = (part.partition("=") for part in parts)
    return {name.strip(): weight.strip() or "1" for name, _, weight in weights}
