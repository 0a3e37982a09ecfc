"""What can be asked for, by name, and the spec that reads it, which is loaded when it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from kdnas.specs.base import Spec

RequestName = Literal[
    "search", "sweep", "distillation", "task-distillation", "evaluation", "pipeline"
]
REQUEST_NAMES: Final[tuple[RequestName, ...]] = get_args(RequestName)


def request_spec(name: RequestName) -> type[Spec]:
    """Return the spec that reads a request of this name."""
    from kdnas.specs.distillation import DistillationSpec
    from kdnas.specs.evaluation import EvaluationSpec
    from kdnas.specs.pipeline import PipelineSpec
    from kdnas.specs.search import SearchSpec
    from kdnas.specs.sweep import SweepSpec
    from kdnas.specs.task_distillation import TaskDistillationSpec

    specs: dict[RequestName, type[Spec]] = {
        "search": SearchSpec,
        "sweep": SweepSpec,
        "distillation": DistillationSpec,
        "task-distillation": TaskDistillationSpec,
        "evaluation": EvaluationSpec,
        "pipeline": PipelineSpec,
    }
    return specs[name]
