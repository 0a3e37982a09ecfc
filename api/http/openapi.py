"""The OpenAPI document, with what no route says of itself: problems, and who may ask.

FastAPI describes what a route answers when all goes well. What the guard, the body limit and the
error handlers answer is the same for every route, and is put in here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from starlette.routing import compile_path

from api.http.schemas import PROBLEM_TYPE, Problem

_SCHEMAS = "#/components/schemas/"
_WORDS = {
    400: "The body is no JSON.",
    401: "No or a wrong token.",
    403: "Not for viewers, or a change that a page of another site asked for.",
    404: "There is no such thing.",
    409: "Its present state forbids it, the name or idempotency key is taken, or several have "
    "the name.",
    413: "The body is above 1 MiB.",
    415: "The body is not application/json.",
    422: "Understood, but wrong.",
    429: "Too many wrong tokens came from this address, or too many streams are open.",
    503: "The database is out of reach.",
}
_SECURITY = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of an operator or a viewer.",
    },
    "session": {"type": "apiKey", "in": "cookie", "name": "kdnas_session"},
}
_OPEN = {"/healthz", "/readyz"}
_OF_PYTHON = {"None": "null", "True": "true", "False": "false", "``": "`"}


def add_openapi(app: FastAPI, login_required: Callable[[], bool]) -> None:
    """Have the application describe itself completely, with a log-in once one is required."""
    plain = app.openapi
    described: dict[bool, dict[str, Any]] = {}

    def describe() -> dict[str, Any]:
        required = login_required()
        if required not in described:
            app.openapi_schema = None  # what it has made before is completed already
            described[required] = _completed(plain(), required)
        return described[required]

    app.openapi = describe  # type: ignore[method-assign]  # FastAPI's own way to do it


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Methods that a path takes, over all of its routes; none if it is not in the document.

    A path that is written out there is not taken for one with a placeholder.
    """
    paths = app.openapi()["paths"]
    fitting = [path] if path in paths else [t for t in paths if compile_path(t)[0].match(path)]
    return sorted(method.upper() for template in fitting for method in paths[template])


def _completed(document: dict[str, Any], login_required: bool) -> dict[str, Any]:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template=_SCHEMAS + "{model}")
    schemas.update(problem.pop("$defs"))
    schemas["Problem"] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _without_defaults_of_objects(schemas)
    speak_json(document)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for status in _statuses(path, method, operation, login_required):
                operation["responses"].setdefault(str(status), {})
                if status != 503 or path != "/readyz":
                    operation["responses"][str(status)] = _answer(status)
            if login_required and path not in _OPEN:
                operation["security"] = [{name: []} for name in _SECURITY]
    if login_required:
        document["components"]["securitySchemes"] = _SECURITY
    return document


def speak_json(part: Any) -> None:
    """Have descriptions, which are docstrings, call values what they are called in JSON."""
    if isinstance(part, dict):
        words = part.get("description")
        if isinstance(words, str):
            spelt = re.sub(r"\b(?:None|True|False)\b|``", lambda found: _OF_PYTHON[found[0]], words)
            part["description"] = spelt
    for entry in part.values() if isinstance(part, dict) else part:
        if isinstance(entry, dict | list):
            speak_json(entry)


def _without_defaults_of_objects(part: Any) -> None:
    """Drop defaults that are objects: what is left out gets them all the same.

    Programs that write clients from the document leave out whole requests that have any. Each
    schema of ``/api/v1/schemas`` has its defaults still.
    """
    entries = part if isinstance(part, list) else []
    if isinstance(part, dict):
        if isinstance(part.get("default"), dict) and not {"properties", "items"} & part.keys():
            del part["default"]
        entries = list(part.values())
    for entry in entries:
        _without_defaults_of_objects(entry)


def _statuses(
    path: str, method: str, operation: dict[str, Any], login_required: bool
) -> Iterator[int]:
    names = {parameter["in"] for parameter in operation.get("parameters", ())}
    changes, has_body = method != "get", "requestBody" in operation
    if path != "/healthz":
        yield 503
    if path not in _OPEN and login_required:
        yield from (401, 429)
    if path == "/api/v1/events":
        yield 429
    yield 403
    if names or has_body:
        yield 422
    names_jobs = "path" in names or "query" in names  # a query may name a search, too
    if names_jobs:
        yield 404
    if changes or names_jobs:  # jobs of two kinds may have one name
        yield 409
    if has_body:
        yield from (400, 404, 413, 415)


def _answer(status: int) -> dict[str, Any]:
    content = {PROBLEM_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}
    return {"description": _WORDS[status], "content": content}
