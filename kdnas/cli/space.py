"""``kdnas space``: the axes of a search space, and how many states they make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli import options


def space(
    kind: Annotated[
        str | None, typer.Option("--space", help="paper, or scaled to the teacher.")
    ] = None,
    teacher: options.Teacher = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with a spec whose `space` is shown.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the axes and the count; the paper's space unless something else is asked for."""
    from api.preparation import build_space
    from kdnas.cli.inputs import gather, nested
    from kdnas.models.teacher import prepare_teacher
    from kdnas.search_space import AXES, SearchSpace
    from kdnas.settings import Settings
    from kdnas.specs.search import SearchSpec

    settings = Settings.from_environment()
    if kind is None and config is None:
        kind = "paper" if teacher is None else "scaled"
    values = nested({"space.kind": kind, "teacher.ref": teacher})
    inputs = gather("search", values, settings, config=config)
    spec = SearchSpec.read(inputs.data, "space")
    if spec.space.kind == "scaled":
        found = build_space(spec.space, prepare_teacher(spec.teacher), False)
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
