"""What every request has to pass before a route sees it, and the headers of every answer.

In this order: the name under which the service was called, a token or a session, the role, where
a change comes from, and the length and type of a body. Nothing is open that is not named in
:data:`OPEN`.
"""

from __future__ import annotations

from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.errors import problem
from api.http.security import (
    ANYBODY,
    SESSION_COOKIE,
    Access,
    Entrance,
    TooManyGuessesError,
    User,
    bearer_of,
    client_of,
    is_loopback,
)
from kdnas.errors import DatabaseError

OPEN = ("/healthz", "/readyz", "/login")
"""What answers without a token; beside it the files under ``/static/``, which are everybody's."""

ANSWERS_ALL = "/healthz"
"""Tells everybody the same, and waits for nothing; so do files."""

RELAYED = ("X-Forwarded-For", "Forwarded")
"""What proxies say of who asks; they may call the service by this machine's own name."""

READING = {"GET", "HEAD", "OPTIONS"}

MAX_BODY_BYTES = 1024 * 1024

HEADERS = {
    # Styles are files of ours only, too: what the charts would write into a page is in charts.css.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """Middleware that lets a request pass, or answers it with a problem."""

    def __init__(self, app: ASGIApp, access: Access, entrance: Entrance) -> None:
        self._app = app
        self._access = access
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = await self._refusal(HTTPConnection(scope))
        caching = "no-cache" if scope["path"].startswith("/static/") else "no-store"
        await (answer or self._app)(scope, receive, _with_headers(send, caching))

    async def _refusal(self, request: HTTPConnection) -> Response | None:
        path, method = str(request.scope["path"]), str(request.scope["method"])
        is_file = path.startswith("/static/")
        is_open = path in OPEN or is_file
        user, unknown = None, None
        if path != ANSWERS_ALL and not is_file:
            user, unknown = await self._user(request)
        state = request.scope.setdefault("state", {})
        state["user"], state["role"] = user, user and user.role
        host = request.headers.get("host", "")
        if not self._access.login_required and not is_loopback(_name_of(host)):
            return problem(
                403,
                f"the service was called as {host!r}, and without a token it answers to this "
                "machine's own names only; call it as 127.0.0.1, set KDNAS_OPERATOR_TOKEN, or make "
                "a token with `kdnas tokens create`",
            )
        relayed = next((name for name in RELAYED if name in request.headers), None)
        if not self._access.login_required and relayed is not None:
            return problem(
                403,
                f"a proxy passed this on, as its header {relayed} says, and without a token the "
                "service answers to this machine alone; set KDNAS_OPERATOR_TOKEN, or make a token "
                "with `kdnas tokens create`",
            )
        if user is None and not is_open:
            return unknown or _login(request, path, method)
        if method in READING:
            return None
        if user is not None and user.role == "viewer" and not is_open and path != "/logout":
            return problem(
                403,
                f"viewers may read, and {method} {path} changes something; use the operator's "
                "token",
            )
        by_header = user is not ANYBODY and bearer_of(request) is not None
        if not by_header and not _is_from_here(request, host):
            return problem(
                403,
                "a change was asked for by a page of another site, or by a browser that does not "
                "say whose page it shows; use the dashboard, or a token in the header "
                "Authorization",
            )
        if _length(request.headers) > MAX_BODY_BYTES:  # one of no told length: see api.http.app
            return problem(413, "the body is above 1 MiB; send less")
        return _wrong_type(request.headers) if path.startswith("/api/") else None

    async def _user(self, request: HTTPConnection) -> tuple[User | None, Response | None]:
        """Who asks; or None and, unless the token is wrong or missing, why that is not known."""
        token = bearer_of(request)
        await self._access.issued.refresh()
        if not (token and self._access.login_required):
            user = self._access.user_of_request(request)
            if user is not None:
                self._entrance.note_use(user)
            lost = self._access.issued.lost if SESSION_COOKIE in request.cookies else None
            return user, problem(503, str(lost)) if lost and user is None else None
        try:
            return await self._entrance.admit(token, client_of(request)), None
        except TooManyGuessesError as error:
            return None, problem(429, str(error), headers={"Retry-After": str(error.seconds)})
        except DatabaseError as error:
            return None, problem(503, str(error))


def _login(request: HTTPConnection, path: str, method: str) -> Response:
    """Send people to the login page, and tell programs what is missing."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if wants_page and method in READING and not path.startswith("/api/"):
        query = request.scope["query_string"].decode("latin-1")
        asked = f"{path}?{query}" if query else path
        return RedirectResponse(f"/login?next={quote(asked)}", status_code=303)
    return problem(
        401,
        "no or a wrong token; send the header Authorization: Bearer TOKEN, or log in at /login",
        headers={"WWW-Authenticate": 'Bearer realm="kdnas"'},
    )


def _is_from_here(request: HTTPConnection, host: str) -> bool:
    """Whether a change comes from a page of ours, or from no page at all.

    Browsers say where a request comes from. A program does not, and brings no cookie.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in {"same-origin", "none"}
    if origin is not None:
        return _host_of(origin) == host.lower() != ""
    return SESSION_COOKIE not in request.cookies


def _host_of(origin: str) -> str:
    return origin.partition("://")[2].lower()


def _length(headers: Headers) -> int:
    given = headers.get("content-length", "")
    return int(given) if given.isdecimal() else 0


def _wrong_type(headers: Headers) -> Response | None:
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    given = headers.get("content-type", "")
    if not has_body or given.partition(";")[0].strip().lower() == "application/json":
        return None
    return problem(415, f"the body is {given or 'of no type'}; send application/json")


def _name_of(host: str) -> str:
    """``[::1]:8000`` → ``::1``, ``localhost:8000`` → ``localhost``."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _with_headers(send: Send, caching: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", caching)
        await send(message)

    return sending
