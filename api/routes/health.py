"""Probes: does the process answer, and can it work."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["operations"])


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Answer as long as the process does."""
    return {"status": "ok"}
