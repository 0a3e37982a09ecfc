"""The pages of the dashboard: frames without data, and the files that fill them.

A page carries the number of an event, ``data-since``: its script reads the state once and then
follows the events after that number, so that nothing falls between the two.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates

import kdnas
from api.http.dependencies import DatabaseDep, RoleDep
from api.http.errors import http_problem
from api.http.security import Access, Role
from api.jobs.registry import kinds
from kdnas.db.engine import Database, Session
from kdnas.db.models import Job
from kdnas.db.repository import events, jobs
from kdnas.errors import RequestError

HERE = Path(__file__).parent
NUM_LOGGED = 100
"""How many events of the time before it was opened a page shows in its log."""

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
        return jobs.get_job(session, reference, table).id
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
        request, "missing.html", 404, since=0, log_since=0, login_required=_login_required(request)
    )


def _login_required(request: Request) -> bool:
    return cast(Access, request.app.state.access).login_required


class Frame:
    """What all pages share: who looks at them, and from which event on they follow."""

    def __init__(self, request: Request, database: Database, role: Role) -> None:
        self._request = request
        self._database = database
        self._context: dict[str, Any] = {"role": role, "login_required": _login_required(request)}

    def __call__(
        self, template: str, reference: str | None = None, kind: str | None = None, **context: Any
    ) -> Response:
        """Render a page; ``reference`` is id or name of the job of a kind that it shows.

        The page goes by the job's id from then on, so that a new name does not lose it.
        """
        with self._database.read() as session:
            subject = reference and _id_of(session, reference, kind)
            since = events.last_event_id(session)
            tail = events.start_of_tail(session, subject, NUM_LOGGED) if subject else since
        return render(
            self._request,
            template,
            since=since,
            log_since=tail,
            subject=subject,
            **self._context,
            **context,
        )


async def get_frame(request: Request, database: DatabaseDep, role: RoleDep) -> Frame:
    """Return what a page is rendered with."""
    return Frame(request, database, role)


FrameDep = Annotated[Frame, Depends(get_frame)]


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


@router.get("/jobs")
def show_jobs(frame: FrameDep) -> Response:
    """All jobs of every kind."""
    return frame("jobs.html")


@router.get("/jobs/{reference}")
def show_job(reference: str, frame: FrameDep) -> Response:
    """One job, where its kind has no page of its own."""
    return frame("job.html", reference)


@router.get("/searches")
def show_searches(frame: FrameDep) -> Response:
    """All searches."""
    return frame("searches.html")


@router.get("/searches/new")
def start_search(frame: FrameDep) -> Response:
    """The form that starts a search."""
    return frame("search_new.html")


@router.get("/searches/{reference}")
def show_search(reference: str, frame: FrameDep) -> Response:
    """One search."""
    return frame("search.html", reference, "search")


@router.get("/pipelines")
def show_pipelines(frame: FrameDep) -> Response:
    """All pipelines."""
    return frame("pipelines.html")


@router.get("/pipelines/new")
def start_pipeline(frame: FrameDep) -> Response:
    """The form that launches a pipeline."""
    return frame("pipeline_new.html")


@router.get("/pipelines/{reference}")
def show_pipeline(reference: str, frame: FrameDep) -> Response:
    """One pipeline, and its report."""
    return frame("pipeline.html", reference, "pipeline")


@router.get("/compare")
def compare(frame: FrameDep) -> Response:
    """Up to four searches side by side."""
    return frame("compare.html")


@router.get("/distillations")
def show_distillations(frame: FrameDep) -> Response:
    """All full distillations."""
    return frame("distillations.html")


@router.get("/distillations/new")
def start_distillation(frame: FrameDep) -> Response:
    """The form that starts a full distillation."""
    return frame("distillation_new.html")


@router.get("/distillations/{reference}")
def show_distillation(reference: str, frame: FrameDep) -> Response:
    """One full distillation."""
    return frame("distillation.html", reference, "distillation")


@router.get("/evaluations")
def show_evaluations(frame: FrameDep) -> Response:
    """All evaluations, and the scores of a model."""
    return frame("evaluations.html")


@router.get("/evaluations/new")
def start_evaluation(frame: FrameDep) -> Response:
    """The form that asks for evaluations."""
    return frame("evaluation_new.html")


@router.get("/latency/new")
def measure_latency(frame: FrameDep) -> Response:
    """The form that asks for a latency table."""
    return frame("latency_new.html")


@router.get("/latency")
def latency(frame: FrameDep) -> Response:
    """Latency tables."""
    return frame("latency.html")
