"""``kdnas space``: the axes of a search space, and how many states they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli.options import common


def space(
    kind: Annotated[
        str | None, typer.Option("--space", help="paper, or scaled to the teacher.")
    ] = None,
    teacher: common.Teacher = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with a spec whose `space` is shown.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Show the axes of a search space.

    And how many states they make; the paper's space unless something else is asked for.
    """
    from kdnas.cli.options.inputs import gather, nested
    from kdnas.cli.screens.console import say
    from kdnas.models.teacher import prepare_teacher
    from kdnas.search_space import AXES, SearchSpace
    from kdnas.settings import Settings
    from kdnas.specs.search import SearchSpec

    values = nested({"space.kind": kind, "teacher.ref": teacher})
    inputs = gather("search", values, Settings.from_environment(), config=config)
    asked = {"space", "teacher"} & inputs.origins.keys()
    spec = SearchSpec.read(inputs.data if asked else {**inputs.data, "space": "paper"}, "space")
    for line in inputs.lines(("teacher",)) if spec.space.kind == "scaled" else ():
        say(line)
    if spec.space.kind == "scaled":
        found = SearchSpace.scaled_to(prepare_teacher(spec.teacher).shape)
    elif spec.space.kind == "paper":
        found = SearchSpace.paper()
    else:
        found = SearchSpace.from_axes(spec.space.axes)
    if as_json:
        axes = {axis: list(values) for axis, values in found.axes.items()}
        typer.echo(json.dumps({"kind": spec.space.kind, "num_states": len(found), "axes": axes}))
        return
    for axis in AXES:
        typer.echo(f"{axis:<13} {' '.join(map(str, found.axes[axis]))}")
    typer.echo(f"{len(found)} architectures ({spec.space.kind})")
