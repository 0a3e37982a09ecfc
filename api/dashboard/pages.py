"""The pages of the dashboard: frames without data, and the files that fill them.

A page carries the number of an event, ``data-since``: its script reads the state once and then
follows the events after that number, so that nothing falls between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates

import kdnas
from api.http.dependencies import AccessDep, DatabaseDep, UserDep
from api.http.errors import http_problem
from api.jobs.registry import kinds
from kdnas.db.engine import Session
from kdnas.db.models import Job
from kdnas.db.repository import events, jobs
from kdnas.errors import RequestError

HERE = Path(__file__).parent
NUM_LOGGED = 100
"""How many events of the time before it was opened a page shows in its log."""

PAGES: tuple[tuple[str, str, str | None], ...] = (
    ("/jobs", "jobs", None),
    ("/jobs/{reference}", "job", None),
    ("/searches", "searches", None),
    ("/searches/new", "search_new", None),
    ("/searches/{reference}", "search", "search"),
    ("/sweeps/{reference}", "sweep", "sweep"),
    ("/pipelines", "pipelines", None),
    ("/pipelines/new", "pipeline_new", None),
    ("/pipelines/{reference}", "pipeline", "pipeline"),
    ("/compare", "compare", None),
    ("/distillations", "distillations", None),
    ("/distillations/new", "distillation_new", None),
    ("/distillations/{reference}", "distillation", "distillation"),
    ("/task-distillations", "task_distillations", None),
    ("/task-distillations/new", "task_distillation_new", None),
    ("/task-distillations/{reference}", "task_distillation", "task_distillation"),
    ("/evaluations", "evaluations", None),
    ("/evaluations/new", "evaluation_new", None),
    ("/latency/new", "latency_new", None),
    ("/latency", "latency", None),
    ("/webhook-deliveries", "webhook_deliveries", None),
)
"""Path of a page, its template and script, and the kind of job that it shows."""

router = APIRouter(include_in_schema=False)
templates = Jinja2Templates(directory=HERE / "templates")


def add_dashboard(app: FastAPI) -> None:
    """Give an application the pages and their files."""
    app.include_router(router)
    app.add_exception_handler(404, _missing)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")


def render(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """Fill a template; a browser keeps the files of a page, never the page."""
    return templates.TemplateResponse(
        request,
        template,
        {"version": kdnas.__version__, "kinds": _kinds(), **context},
        status_code=status,
        headers={"Cache-Control": "no-store"},
    )


def _id_of(session: Session, reference: str, kind: str | None) -> str:
    """The id of a job; what there is not is left as it is, and the page says so."""
    table = Job if kind is None else kinds()[kind].table
    try:
        return jobs.id_of(session, reference, table)
    except RequestError:
        return reference


def _kinds() -> dict[str, str | None]:
    """Every kind of job with the path of its pages, None where it has none of its own."""
    return {k.name: f"/{k.path}" if k.has_page else None for k in kinds().values()}


def _missing(request: Request, error: Exception) -> Response:
    """Tell people of a page that is not there, and programs as of anything else."""
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page or request.url.path.startswith("/api/"):
        return http_problem(request, error)
    return render(
        request,
        "missing.html",
        404,
        since=0,
        log_since=0,
        login_required=request.app.state.access.login_required,
        user=request.state.user,
    )


def _shown(page: str, kind: str | None) -> Callable[..., Response]:
    """Make the route of a page.

    A path's ``reference`` is id or name of the job that the page shows. The page goes by the job's
    id from then on, so that a new name does not lose it.
    """

    def show(request: Request, database: DatabaseDep, access: AccessDep, user: UserDep) -> Response:
        reference = request.path_params.get("reference")
        with database.read() as session:
            subject = reference and _id_of(session, reference, kind)
            since = events.last_event_id(session)
            tail = events.start_of_tail(session, subject, NUM_LOGGED) if subject else since
        return render(
            request,
            f"{page}.html",
            page=page,
            role=user.role,
            user=user,
            login_required=access.login_required,
            subject=subject,
            since=since,
            log_since=tail,
        )

    return show


for _path, _page, _kind in PAGES:
    router.add_api_route(_path, _shown(_page, _kind))


@router.get("/")
def home() -> Response:
    """Begin with the list of searches."""
    return RedirectResponse("/searches", status_code=303)


@router.get("/static/plotly.min.js")
def plotly() -> Response:
    """Serve the library of the charts from the installed package."""
    path = Path(str(files("plotly"))) / "package_data" / "plotly.min.js"
    return FileResponse(
        path, media_type="text/javascript", headers={"Cache-Control": "max-age=604800"}
    )
