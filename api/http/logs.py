"""A line of log for each request.

Lines written while a request is served carry its number, and the job that it is
about. Query strings, bodies and headers are never logged, so that no secret is.
"""

from __future__ import annotations

import re
import secrets
import time
from functools import cache
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.errors import problem
from api.http.metrics import Metrics
from api.jobs.registry import kinds

PREFIX = "/api/v1"
REQUEST_ID = "X-Request-ID"
_SUBJECT = re.compile(r"/(?:api/v1/)?([a-z-]+)/([^/]{1,80})")
_QUIET = ("/healthz", "/readyz", "/metrics", "/static/")
"""What is asked all the time; logged only if it fails."""

log = structlog.get_logger("kdnas.service")


class RequestLog:
    """Middleware that numbers, times and logs each request, and catches what nobody foresaw."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        number = _number(Headers(scope=scope).get(REQUEST_ID))
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = number
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=number, **_subject(scope["path"])):
            try:
                await self._app(scope, receive, sending)
            except Exception:
                log.exception("request failed", method=scope["method"], path=scope["path"])
                if status == 0:
                    answer = problem(500, "the service failed at this request; its log says why")
                    await answer(scope, receive, sending)
            finally:
                seconds = time.perf_counter() - began
                user = scope.get("state", {}).get("user")
                self._metrics.observe(scope["method"], _template(scope), status, seconds)
                if status >= 500 or not scope["path"].startswith(_QUIET):
                    log.info(
                        "request",
                        method=scope["method"],
                        path=scope["path"],
                        status=status,
                        ms=round(seconds * 1000, 1),
                        role=user and user.role,
                        user=user and user.name,
                        client=scope["client"][0] if scope.get("client") else None,
                    )


def _number(given: str | None) -> str:
    """The number that a proxy gave, or a new one."""
    return given if given and re.fullmatch(r"[\w-]{8,64}", given) else secrets.token_hex(8)


def _subject(path: str) -> dict[str, str]:
    found = _SUBJECT.match(path)
    return {_nouns()[found[1]]: found[2]} if found and found[1] in _nouns() else {}


@cache
def _nouns() -> dict[str, str]:
    """First part of a path → what the second one names."""
    return {**{k.path: k.name for k in kinds().values()}, "jobs": "job", "candidates": "candidate"}


def _template(scope: Scope) -> str:
    """The route's path with its placeholders, of which there are few.

    A route knows its path without the prefix under which it was put into the application.
    """
    route: Any = scope.get("route")
    path = str(getattr(route, "path", "none"))
    is_prefixed = scope["path"].startswith(f"{PREFIX}/") and not path.startswith(PREFIX)
    return PREFIX + path if is_prefixed and path != "none" else path
