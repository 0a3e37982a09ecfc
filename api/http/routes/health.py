"""Probes: does the process answer, can it work, and what does it count."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from api.http.schemas import Alive, Readiness

router = APIRouter(tags=["operations"])


@router.get("/healthz")
async def read_health() -> Alive:  # asynchronous: it never waits for a free thread
    """Answer as long as the process does."""
    return Alive(status="ok")


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def read_readiness(request: Request) -> Response:
    """Say whether the service can work, and what is missing; details are for the logged-in."""
    known = request.state.role is not None
    checks = await request.app.state.probe.look(afresh=known)
    if not known:
        checks = {name: check.model_copy(update={"detail": None}) for name, check in checks.items()}
    ready = Readiness(ready=all(check.ok for check in checks.values()), checks=checks)
    return JSONResponse(ready.model_dump(mode="json"), status_code=200 if ready.ready else 503)


@router.get("/metrics", response_class=PlainTextResponse)
def read_metrics(request: Request) -> Response:
    """Figures in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
