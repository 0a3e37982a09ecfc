"""Options that several commands share, with one wording each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from kdnas.cli.options.places import At, nested
from kdnas.errors import SpecError

MOST_DIGITS = 18


def listed(text: str) -> list[str]:
    """Take apart an option that is a list with commas; the spec checks its parts."""
    return [part.strip() for part in text.split(",")]


def numbers(option: str, text: str) -> list[float]:
    """Read an option that is a list of numbers.

    Raises:
        SpecError: names the option.
    """
    try:
        return [float(part) for part in listed(text)]
    except ValueError:
        raise SpecError(f"{option} {text!r} is no list of numbers; write such as 0.2,5") from None


def counts(option: str, text: str) -> list[int]:
    """Read an option that is a list of whole numbers.

    Raises:
        SpecError: names the option.
    """
    parts = listed(text)
    if not all(is_count(part) for part in parts):
        raise SpecError(f"{option} {text!r} is no list of whole numbers; write such as 1,3,5")
    return [int(part) for part in parts]


def is_count(text: str) -> bool:
    """Whether it is a whole number that somebody may mean; Python reads no endless ones."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def empty(_: bool) -> dict[str, Any]:
    """The part of a request that a flag asks for as it is published."""
    return {}


def names_in(texts: Iterable[str] | None) -> list[str]:
    """Take apart an option that takes several names, with commas or repeated."""
    return [part.strip() for text in texts or () for part in text.split(",") if part.strip()]


def _relations(text: str) -> dict[str, str] | list[str]:
    """Read ``qq,kk,vv`` or ``qq=1,vv=2``; the spec checks names and weights."""
    parts = listed(text)
    if not any("=" in part for part in parts):
        return parts
    weights = (part.partition("=") for part in parts)
    return {name.strip(): weight.strip() or "1" for name, _, weight in weights}


def strategy_options(texts: Iterable[str]) -> dict[str, Any]:
    """Read options of a strategy, each as ``confidence=2``; the spec checks names and values.

    Raises:
        SpecError: one has no name or no value, or is the strategy's name.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not name or not sign:
            raise SpecError(
                f"--strategy-option {text!r} is no NAME=VALUE; write one, as acquisition=thompson"
            )
        if name == "name":
            raise SpecError(
                f"--strategy-option {text!r} names a strategy; say by --strategy which one"
            )
        options[name] = _number_or_text(value)
    return nested(options)


def _number_or_text(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else number


def _layer(text: str) -> int | str:
    """Read the number of a layer; the spec knows the words that may stand in its place."""
    return int(text) if is_count(text) else text


Reference = Annotated[str, typer.Argument(metavar="ID|NAME")]
Teacher = Annotated[
    str | None,
    typer.Option(help="Alias, model folder or hub id.  [default: KDNAS_TEACHER, else minilm]"),
    At("teacher.ref"),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        help="File, folder, glob, pydocs or hub:owner/name; may be repeated.  "
        "[default: KDNAS_CORPUS, else pydocs]"
    ),
    At("corpus.source"),
]
TextColumn = Annotated[
    str | None,
    typer.Option(help="Column of the text (JSONL, Parquet, hub)."),
    At("corpus.text_column"),
]
LanguageColumn = Annotated[
    str | None, typer.Option(help="Column of the language."), At("corpus.language_column")
]
MaxLength = Annotated[
    int | None,
    typer.Option(help="Tokens of a sample; longer ones are cut."),
    At("corpus.max_length"),
]
Preset = Annotated[str | None, typer.Option(help="laptop, cluster or paper.  [default: laptop]")]
Config = Annotated[
    Path | None, typer.Option(help="YAML file with a spec; see `kdnas schema`.", dir_okay=False)
]
Objective = Annotated[
    str | None,
    typer.Option(help="What students learn: {objectives}.  [default: {default}]"),
    At("objective.name"),
]
Relations = Annotated[
    str | None,
    typer.Option(help="{relations} With or without weights: qq,kk,vv or qq=1,vv=2."),
    At("objective.relations", _relations),
]
RelationHeads = Annotated[
    int | None, typer.Option(help="{relation_heads}"), At("objective.relation_heads")
]
TeacherLayer = Annotated[
    str | None, typer.Option(help="{teacher_layer}"), At("objective.teacher_layer", _layer)
]
Orthogonal = Annotated[
    bool, typer.Option("--orthogonal", help="{orthogonal}"), At("objective.orthogonal")
]
Temperature = Annotated[
    float | None, typer.Option(help="{temperature}"), At("objective.temperature")
]
FitLMHead = Annotated[
    int | None,
    typer.Option("--fit-lm-head", metavar="STEPS", help="{fit_lm_head}"),
    At("objective.fit_lm_head"),
]
Mapping = Annotated[
    str | None,
    typer.Option(
        help="{mapping} One of single, last, uniform, uniform_consecutive, uniform_last, kdnas."
    ),
    At("objective.mapping"),
]
LastWeight = Annotated[
    float | None, typer.Option(help="{last_weight}"), At("objective.last_weight")
]
Init = Annotated[
    str | None,
    typer.Option(
        help="How a student starts: teacher (its layers, heads and neurons, cut to any size), warm "
        "(its embeddings alone), random (nothing of it) or copy (its embeddings and whole layers; "
        "it may have fewer of them, and is otherwise like its teacher)."
    ),
    At("student.init"),
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
Space = Annotated[
    str | None,
    typer.Option(help="paper, or scaled to the teacher; own axes by --config."),
    At("space.kind"),
]
ProxyFraction = Annotated[
    float | None,
    typer.Option(help="Share of the corpus in the proxy set."),
    At("proxy.fraction"),
]
Goal = Annotated[
    str | None,
    typer.Option(
        help="What is wanted: reward, limit (the lowest loss within the limits) or front (low "
        "losses at every latency).  [default: the preset's]"
    ),
    At("goal"),
]
MaxLatencyMs = Annotated[
    float | None,
    typer.Option(help="Slower students are never proposed (milliseconds)."),
    At("limits.max_latency_ms"),
]
MaxLatencyRatio = Annotated[
    float | None,
    typer.Option(help="Slower students are never proposed (share of the teacher's latency)."),
    At("limits.max_latency_ratio"),
]
MaxParams = Annotated[
    float | None,
    typer.Option(help="Larger students are never proposed (millions)."),
    At("limits.max_params_millions"),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        help="Who proposes: controller, gp (Gaussian process), tpe, nsga2, evolution, random, "
        "fastest-first, largest-first, size-only, reading-only, reading-fit, or "
        "package.module:Class."
    ),
    At("controller.strategy.name"),
]
StrategyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Of the strategy, such as acquisition=thompson; may be repeated. Those of a class "
        "are named options.NAME.",
    ),
    At("controller.strategy", strategy_options),
]
NumWorkers = Annotated[
    int | None, typer.Option(help="Workers at the same time."), At("backend.num_workers")
]
GroupSize = Annotated[
    int | None,
    typer.Option(help="Students on one teacher pass.  [default: fits memory]"),
    At("backend.group_size"),
]
Backend = Annotated[
    str | None, typer.Option(help="ray, or local (this process)."), At("backend.name")
]
RayAddress = Annotated[
    str | None, typer.Option(help="Of a running Ray cluster."), At("backend.address")
]
Dtype = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="Threads of a worker on a CPU.")]
Name = Annotated[
    str | None, typer.Option(help="A name to call it by.  [default: made up]"), At("name")
]
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
