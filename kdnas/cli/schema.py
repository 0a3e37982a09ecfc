"""``kdnas schema``: the JSON Schema of a request."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kdnas.errors import SpecError, unknown_name


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            help="search, sweep, distillation, task-distillation, evaluation or pipeline."
        ),
    ] = "search",
) -> None:
    """Print the JSON Schema of a request."""
    from kdnas.specs.base import Spec
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.evaluation import EvaluationSpec
    from kdnas.specs.pipeline import PipelineSpec
    from kdnas.specs.search import SearchSpec
    from kdnas.specs.sweep import SweepSpec
    from kdnas.specs.task_distillation import TaskDistillationSpec

    kinds: dict[str, type[Spec]] = {
        "search": SearchSpec,
        "sweep": SweepSpec,
        "distillation": DistillationSpec,
        "task-distillation": TaskDistillationSpec,
        "evaluation": EvaluationSpec,
        "pipeline": PipelineSpec,
    }
    if kind not in kinds:
        raise SpecError(unknown_name("kind of request", kind, kinds))
    typer.echo(json.dumps(kinds[kind].model_json_schema(), indent=2))
