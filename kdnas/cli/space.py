"""``kdnas space``: the axes of a search space, and how many states they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import nested
from kdnas.cli.screens.console import say_each
from kdnas.cli.tables.answers import answer, fact_lines
from kdnas.settings import Settings


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
    from kdnas.models.teacher import prepare_teacher
    from kdnas.search_space import AXES, SearchSpace
    from kdnas.specs.search import SearchSpec

    values = nested({"space.kind": kind, "teacher.ref": teacher})
    inputs = gather("search", values, Settings.from_environment(), config=config)
    asked = {"space", "teacher"} & inputs.origins.keys()
    spec = SearchSpec.read(inputs.data if asked else {**inputs.data, "space": "paper"}, "space")
    if spec.space.kind == "scaled":
        say_each(inputs.lines(("teacher",)))
        found = SearchSpace.scaled_to(prepare_teacher(spec.teacher).shape)
    elif spec.space.kind == "paper":
        found = SearchSpace.paper()
    else:
        found = SearchSpace.from_axes(spec.space.axes)
    axes = {axis: list(found.axes[axis]) for axis in AXES}
    words = {axis: " ".join(map(str, values)) for axis, values in axes.items()}
    size = f"{len(found)} architectures ({spec.space.kind})"
    plain = {"kind": spec.space.kind, "num_states": len(found), "axes": axes}
    answer(plain, as_json, [*fact_lines(words, 13), size])
