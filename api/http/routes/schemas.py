"""What a request may look like."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.http.openapi import speak_json
from api.http.schemas import Shape
from kdnas.specs.base import Spec
from kdnas.specs.load import Section, load_preset, preset_names
from kdnas.specs.objective_registry import ObjectiveName
from kdnas.specs.objectives import DEFAULT_OBJECTIVE
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.requests import RequestName, request_spec
from kdnas.specs.search import SearchSpec

router = APIRouter(tags=["reference"])


class PresetShape(Shape):
    """A preset: what it says of a search and of a pipeline; the rest is as the schema has it."""

    name: str
    search: dict[str, Any]
    pipeline: dict[str, Any]


class Presets(Shape):
    """All presets, by name."""

    items: list[PresetShape]


@router.get("/schemas/{name}")
def read_schema(name: RequestName) -> dict[str, Any]:
    """Return the JSON Schema of a request, with defaults."""
    schema = request_spec(name).model_json_schema()
    speak_json(schema)
    return schema


@router.get("/presets")
def list_presets(objective: ObjectiveName = DEFAULT_OBJECTIVE) -> Presets:
    """List the presets that the command line knows, as beginnings of requests.

    Rates and options are those for students that learn this objective.
    """
    return Presets(
        items=[
            PresetShape(
                name=name,
                search=_preset(SearchSpec, name, "search", objective),
                pipeline=_preset(PipelineSpec, name, "pipeline", objective),
            )
            for name in preset_names()
        ]
    )


def _preset(spec: type[Spec], name: str, section: Section, objective: str) -> dict[str, Any]:
    """Return a preset's part with nothing in short, and nothing that it does not say."""
    read = spec.read(load_preset(name, section, objective), f"preset {name}")
    return read.model_dump(mode="json", exclude_unset=True)
