"""What a route asks for, as JSON Schema: its body, and each group of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter


def schema_of(request: Request, part: str) -> Mapping[str, Any]:
    """Say what the route of a request takes.

    Args:
        request: that a route was found for.
        part: ``body``, ``query``, ``path``, ``header`` or ``cookie``.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    if part == "body":
        return {} if route.body_field is None else _schema(route.body_field.field_info)
    whole: dict[str, Any] = {"type": "object", "properties": {}, "$defs": {}}
    for field in _fields(route.dependant, f"{part}_params"):
        own = _schema(field.field_info)
        whole["$defs"].update(own.get("$defs", {}))
        annotation = field.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            whole["properties"].update(own["properties"])
        else:
            whole["properties"][field.alias] = own
    return whole


def _schema(info: Any) -> dict[str, Any]:
    annotation = info.annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return dict(_of_model(annotation))
    whole: Any = Annotated[annotation, *info.metadata] if info.metadata else annotation
    return TypeAdapter(whole).json_schema()


@cache
def _of_model(model: type[BaseModel]) -> Mapping[str, Any]:
    """Packages are not installed while the service runs: its requests stay as they are."""
    return model.model_json_schema()


def _fields(dependant: Any, group: str) -> Iterator[Any]:
    """Parameters of a route and of what it depends on."""
    yield from getattr(dependant, group)
    for other in dependant.dependencies:
        yield from _fields(other, group)
