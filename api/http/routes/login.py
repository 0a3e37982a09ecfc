"""The login page: a token is exchanged for a session."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.dashboard.pages import render
from api.http.dependencies import AccessDep, EntranceDep
from api.http.security import (
    SESSION_COOKIE,
    SESSION_SECONDS,
    Access,
    TooManyGuessesError,
    client_of,
)

MOST_FORM_BYTES, MOST_FIELDS = 16 * 1024, 8

router = APIRouter(include_in_schema=False)


async def read_form(request: Request) -> dict[str, str]:
    """Read a form of a few short fields: whoever sends it is not known yet.

    Raises:
        HTTPException: 400, it is more than that.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(400, f"the form is above {MOST_FORM_BYTES // 1024} KiB; send less")
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS))
    except ValueError:
        raise HTTPException(
            400, f"the form has more than {MOST_FIELDS} fields; send fewer"
        ) from None


FormDep = Annotated[dict[str, str], Depends(read_form)]


@router.get("/login")
async def show_login(request: Request, access: AccessDep, next: str = "/") -> Response:
    """Show the login page, unless there is nothing to log in to."""
    if not await _login_required(access):
        return RedirectResponse("/", status_code=303)
    return render(request, "login.html", next=_local(next))


@router.post("/login")
async def log_in(
    request: Request, access: AccessDep, entrance: EntranceDep, form: FormDep
) -> Response:
    """Begin a session, if the token is right."""
    target = _local(form.get("next", "/"))
    if not await _login_required(access):
        return RedirectResponse("/", status_code=303)
    client = client_of(request)
    try:
        user = await entrance.admit(form.get("token", "").strip(), client)
    except TooManyGuessesError as error:
        said = f"Too many attempts failed. Try again in {error.seconds} seconds."
        answer = render(request, "login.html", 429, next=target, error=said)
        answer.headers["Retry-After"] = str(error.seconds)
        return answer
    if user is None:
        return render(request, "login.html", 401, next=target, error="This is not a valid token.")
    entrance.records.logged_in(str(user.name), user.role, client)
    answer = RedirectResponse(target, status_code=303)
    answer.set_cookie(
        SESSION_COOKIE,
        access.begin_session(user),
        max_age=SESSION_SECONDS,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/logout")
def log_out(request: Request, access: AccessDep) -> Response:
    """End the session."""
    access.end_session(request.cookies.get(SESSION_COOKIE, ""))
    answer = RedirectResponse("/login" if access.login_required else "/", status_code=303)
    answer.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return answer


async def _login_required(access: Access) -> bool:
    """Whether there is something to log in to, at this moment: who comes has just made a token."""
    if not access.login_required:
        await access.issued.refresh_now()
    return access.login_required


def _local(target: str) -> str:
    """A path of this service; anything else becomes the home page."""
    here = target.startswith("/") and not target.startswith("//")  # no scheme and no host
    plain = target.isprintable() and "\\" not in target
    return target if here and plain else "/"
