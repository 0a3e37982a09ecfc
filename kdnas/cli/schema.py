"""``kdnas schema``: the JSON Schema of a request."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kdnas.errors import SpecError, unknown_name
from kdnas.specs.requests import REQUEST_NAMES, request_spec

*_OTHERS, _LAST = REQUEST_NAMES


def schema(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(_OTHERS)} or {_LAST}.")] = "search",
) -> None:
    """Print the JSON Schema of a request."""
    if kind not in REQUEST_NAMES:
        raise SpecError(unknown_name("kind of request", kind, REQUEST_NAMES))
    typer.echo(json.dumps(request_spec(kind).model_json_schema(), indent=2))
