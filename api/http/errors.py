"""Errors as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from api.http.asked import schema_of
from api.http.openapi import allowed_methods
from api.http.schemas import PROBLEM_TYPE, FieldProblem, Problem
from kdnas.errors import (
    ConflictError,
    DatabaseError,
    FieldError,
    KdnasError,
    NotFoundError,
    RequestError,
    too_long_a_name,
)
from kdnas.specs.wording import field_errors

STATUSES: tuple[tuple[type[KdnasError], int], ...] = (
    (NotFoundError, 404),
    (ConflictError, 409),
    (RequestError, 422),
    (DatabaseError, 503),
    (KdnasError, 500),
)
"""The first class that fits an error gives its status."""

PARTS = ("path", "query", "header", "cookie", "body")
"""Of a request, as what is wrong in it is told."""

log = structlog.get_logger()


def problem(
    status: int,
    detail: str,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make the answer that says what is wrong.

    Args:
        status: HTTP status.
        detail: one sentence with the offending value, then what to do about it.
        errors: places of a body or of parameters that do not fit.
        headers: more headers, such as ``Retry-After``.
    """
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_written(detail),
        errors=[FieldProblem(where=_written(e.where), message=_written(e.message)) for e in errors],
    )
    return JSONResponse(
        body.model_dump(exclude=None if errors else {"errors"}),
        status_code=status,
        headers=dict(headers or {}),
        media_type=PROBLEM_TYPE,
    )


def _written(text: str) -> str:
    """A request may hold half a surrogate pair, as a key for example, which no answer takes."""
    return text.encode(errors="backslashreplace").decode()


def add_error_handlers(app: FastAPI) -> None:
    """Have errors answered as problems; what nobody foresaw is caught in :mod:`api.http.logs`."""
    app.add_exception_handler(KdnasError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, http_problem)
    app.add_exception_handler(OSError, _of_a_path)


def _ours(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    if status >= 500:
        log.error("request failed", error=str(error))
    fields = error.fields if isinstance(error, RequestError) else ()
    part = "query" if request.method == "GET" else "body"
    places = [FieldProblem(where=f"{part}.{one.field}", message=one.message) for one in fields]
    listed_in = error.listed_in if isinstance(error, NotFoundError) else None
    lists = f"; GET /api/v1/{listed_in} lists all" if listed_in else ""
    return problem(status, f"{error}{lists}", places)


def _of_a_path(request: Request, error: Exception) -> Response:
    """Answer what the system says of a path that was asked for; all else nobody foresaw."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return problem(422, too_long_a_name(error))
    raise error


def http_problem(request: Request, error: Exception) -> Response:
    """Answer what the framework refuses: an unknown path, a wrong method, a body too long."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    details = {
        404: f"there is no {path}; see /api/v1/docs",
        405: f"{path} does not take {request.method}; see /api/v1/docs",
        413: "the body is above 1 MiB; send less",
    }
    if error.status_code == 400 and error.detail == "There was an error parsing the body":
        details[400] = (
            "the body cannot be read: it is nested too deeply, or a number in it has too many "
            "digits; send JSON as /api/v1/docs shows it"
        )
    detail = details.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the first route of the path speaks for itself only
        methods = allowed_methods(request.app, path)
        headers["Allow"] = ", ".join(methods) or headers.get("Allow", "")
    return problem(error.status_code, detail, headers=headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: Sequence[Mapping[str, Any]] = error.errors()
    broken = next((item for item in found if item["type"] == "json_invalid"), None)
    if broken is not None:
        reason = broken.get("ctx", {}).get("error", broken["msg"])
        return problem(400, f"the body is no JSON: {reason}")
    problems = [one for part in PARTS for one in _of_part(part, found, request, error.body)]
    return _refused(422, problems)


def _of_part(
    part: str, found: Sequence[Mapping[str, Any]], request: Request, body: Any
) -> list[tuple[str, FieldError]]:
    """Word what is wrong in the body, or in one group of parameters."""
    own = [{**item, "loc": item["loc"][1:]} for item in found if item["loc"][0] == part]
    if not own:
        return []
    schema, data = schema_of(request, part), body if part == "body" else None
    return [(part, one) for one in field_errors(schema, data, own, parameters=part != "body")]


def _refused(status: int, problems: Sequence[tuple[str, FieldError]]) -> Response:
    """Answer with places that are wrong; the first one is the answer's sentence."""
    more = f" (and {len(problems) - 1} more, see errors)" if len(problems) > 1 else ""
    shape = [
        FieldProblem(where=".".join(filter(None, (part, one.field))), message=one.message)
        for part, one in problems
    ]
    return problem(status, f"{problems[0][1].sentence}{more}", shape)
