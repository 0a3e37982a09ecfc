"""Who is asking."""

from __future__ import annotations

from fastapi import APIRouter

import kdnas
from api.http.dependencies import RoleDep, SettingsDep
from api.http.schemas import SessionState

router = APIRouter(tags=["session"])


@router.get("/session")
def read_session(role: RoleDep, settings: SettingsDep) -> SessionState:
    """Say who is asking, and whether the service asks for a token at all."""
    return SessionState(
        role=role, login_required=bool(settings.operator_token), version=kdnas.__version__
    )
