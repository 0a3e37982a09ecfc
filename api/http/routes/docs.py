"""The REST API to be read in a browser: the OpenAPI document as one page, without scripts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.dashboard.pages import render

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def read_docs(request: Request) -> Response:
    """Show every operation with its parameters, body and answers."""
    document = request.app.openapi()
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            tag = operation.get("tags", ["others"])[0]
            groups.setdefault(tag, []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "summary": operation.get("description") or operation.get("summary", ""),
                    "parameters": [
                        {**parameter, "type": _type(parameter["schema"])}
                        for parameter in operation.get("parameters", [])
                    ],
                    "body": _body(operation),
                    "answers": {
                        status: answer.get("description", "")
                        for status, answer in operation["responses"].items()
                    },
                }
            )
    return render(request, "docs.html", groups=groups, api_version=document["info"]["version"])


def _body(operation: dict[str, Any]) -> str | None:
    content = operation.get("requestBody", {}).get("content", {})
    return next((_type(media["schema"]) for media in content.values()), None)


def _type(schema: dict[str, Any]) -> str:
    """Say in a few words what a value may be."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            parts = [_type(part) for part in schema[key] if part.get("type") != "null"]
            return " | ".join(dict.fromkeys(parts))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [
        f"{sign} {schema[key]}"
        for key, sign in (("minimum", "≥"), ("maximum", "≤"), ("exclusiveMinimum", ">"))
        if key in schema
    ]
    return " ".join([str(schema.get("type", "anything")), *bounds])
