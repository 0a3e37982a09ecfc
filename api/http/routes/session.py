"""Who is asking."""

from __future__ import annotations

from fastapi import APIRouter

import kdnas
from api.http.dependencies import AccessDep, UserDep
from api.http.schemas import SessionState

router = APIRouter(tags=["session"])


@router.get("/session")
def read_session(user: UserDep, access: AccessDep) -> SessionState:
    """Say who is asking, and whether the service asks for a token at all."""
    return SessionState(
        role=user.role,
        name=user.name,
        login_required=access.login_required,
        version=kdnas.__version__,
    )
