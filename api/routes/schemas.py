"""What a request may look like."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter

from kdnas.specs.base import Spec
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import SearchSpec

router = APIRouter(tags=["reference"])

SPECS: dict[str, type[Spec]] = {
    "search": SearchSpec,
    "distillation": DistillationSpec,
    "evaluation": EvaluationSpec,
    "pipeline": PipelineSpec,
}


@router.get("/schemas/{name}")
def read_schema(
    name: Literal["search", "distillation", "evaluation", "pipeline"],
) -> dict[str, Any]:
    """Return the JSON Schema of a request, with defaults."""
    return SPECS[name].model_json_schema()
