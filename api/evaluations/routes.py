"""Evaluations: ask for some, and read the scores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, Response

from api.evaluations.kind import KIND
from api.evaluations.schemas import (
    ClassesQuery,
    ClassTables,
    EvaluatedModels,
    EvaluationsMade,
    PredictionsQuery,
    ReportQuery,
    ReportShape,
    Suites,
)
from api.evaluations.stored_report import stored_predictions, stored_report
from api.http.dependencies import DatabaseDep, SettingsDep
from api.http.idempotency import Answer, OnceDep
from api.http.rendering import rendered
from api.inputs.data_roots import check_folder, check_model
from api.inputs.pairs import evaluation_pairs
from api.inputs.students import distillation_with_student, names_distillation
from api.jobs.files import folder_name
from api.jobs.reading import read_jobs
from kdnas.db.engine import Database, Session
from kdnas.db.lists import evaluation_pages
from kdnas.db.repository import evaluations, jobs
from kdnas.errors import NotFoundError, told_at
from kdnas.evaluation.data.choosing import tasks_with_data
from kdnas.evaluation.reports.classes import class_tables
from kdnas.evaluation.reports.formats import as_csv, as_latex, as_markdown
from kdnas.evaluation.reports.report import Report, report_json
from kdnas.evaluation.tasks.registry import SUITES
from kdnas.paths import expanded
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.specs.parts import ModelSpec

TEXTS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "md": ("text/markdown", as_markdown),
    "csv": ("text/csv", as_csv),
    "tex": ("application/x-tex", as_latex),
}

NDJSON = "application/x-ndjson"

router = APIRouter(tags=["evaluations"])


@router.post("/evaluations", status_code=202, response_model=EvaluationsMade)
def create_evaluations(
    request: EvaluationSpec, database: DatabaseDep, settings: SettingsDep, once: OnceDep
) -> Response:
    """Ask for evaluations, one for each task and seed; coordinators take them up."""
    if (answer := once.earlier(jobs.require_job)) is not None:
        return answer
    spec, distillation_id = _checked(request, database, settings)
    tasks = tasks_with_data(spec, settings.for_service().reach)
    pairs = evaluation_pairs(spec, tasks)

    def create(session: Session) -> Answer:
        ids = evaluations.create_evaluations(
            session,
            pairs,
            model=spec.model_name,
            distillation_id=None if spec.variant else distillation_id,
        )
        body = EvaluationsMade.model_validate({"items": read_jobs(session, ids, KIND)})
        query = urlencode({"model": spec.model_name, "suite": spec.suite})
        return Answer(body, location=f"/api/v1/evaluations?{query}")

    return once.answer(202, create, jobs.require_job)


@router.get("/evaluations/suites", response_model=Suites)
def list_suites() -> Response:
    """List the suites with their tasks."""
    return rendered({"items": [{"suite": suite, "tasks": SUITES[suite]} for suite in SUITES]})


@router.get("/evaluations/models", response_model=EvaluatedModels)
def list_evaluated_models(database: DatabaseDep) -> Response:
    """List models and suites with evaluations, those with the newest first."""
    with database.read() as session:
        return rendered({"items": evaluation_pages.list_evaluated_models(session)})


@router.get(
    "/evaluations/report",
    response_model=ReportShape,
    responses={
        200: {
            "content": {media: {"schema": {"type": "string"}} for media, _ in TEXTS.values()},
        }
    },
)
def read_evaluation_report(
    query: Annotated[ReportQuery, Query()], database: DatabaseDep, settings: SettingsDep
) -> Response:
    """Put a model's scores together, mean ± deviation over seeds, with published ones beside."""
    with database.read() as session:
        report = stored_report(session, settings, query.model, query.suite, query.against)
    if query.format == "json":
        return rendered(report_json(report))
    media_type, write = TEXTS[query.format]
    return Response(write(report), media_type=media_type)


@router.get("/evaluations/classes", response_model=ClassTables)
def read_classes(
    query: Annotated[ClassesQuery, Query()], database: DatabaseDep, settings: SettingsDep
) -> Response:
    """Say of each class how well a model finds it, and what it takes it for."""
    with database.read() as session:
        found = stored_predictions(session, settings, query.model, query.suite)
    items: list[dict[str, Any]] = []
    for task, keys in groupby(sorted(found), key=itemgetter(0)):
        seeds = [seed for _, seed in keys]
        tables = class_tables([found[task, seed].path for seed in seeds])
        items += ({"task": task, "seeds": seeds, **table.to_json()} for table in tables)
    return rendered({"items": items})


@router.get(
    "/evaluations/predictions",
    response_class=FileResponse,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)
def read_predictions(
    query: Annotated[PredictionsQuery, Query()], database: DatabaseDep, settings: SettingsDep
) -> FileResponse:
    """Fetch what a model said about each example of a task, a line each."""
    with database.read() as session:
        found = stored_predictions(session, settings, query.model, query.suite)
    kept = found.get((query.task, query.seed))
    if kept is None:
        there = ", ".join(f"{task} seed {seed}" for task, seed in sorted(found)) or "none"
        raise NotFoundError(
            f"what {query.model!r} said on {query.task!r} with seed {query.seed} is not on this "
            f"machine; there is {there}"
        )
    name = f"{folder_name(query.task)}-seed{query.seed}.jsonl"
    return FileResponse(kept.path, media_type=NDJSON, filename=name)


def _checked(
    request: EvaluationSpec, database: Database, settings: Settings
) -> tuple[EvaluationSpec, str | None]:
    """Refuse what may not be read; return the request with whole paths, and the distillation.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
        NotFoundError: no such distillation.
        ConflictError: the distillation has no student yet.
    """
    changes: dict[str, ModelSpec | str] = {}
    distillation_id = None
    if request.data_dir is not None:
        check_folder(request.data_dir, "data_dir", settings)
        changes["data_dir"] = str(expanded(request.data_dir).resolve())
    ref = request.model.ref
    if names_distillation(ref):
        with told_at("model.ref"), database.read() as session:
            found, ref = distillation_with_student(session, ref)
        distillation_id = found.id
    else:
        check_model(request.model, "model.ref", settings)
    if expanded(ref).is_dir():
        ref = str(expanded(ref).absolute())
    changes["model"] = request.model.model_copy(update={"ref": ref})
    return request.model_copy(update=changes), distillation_id
