"""What a user may do to a piece of work, such as a search or a pipeline, in each state.

``docs/api.md`` shows the table to users. The row changes at once; the process that works on it
sees that and stops by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, cast

from sqlalchemy.orm import Session

from kdnas.db.models import Distillation, Evaluation, LatencyBuild, Pipeline, Search
from kdnas.db.repository.distillations import locked_distillation, set_distillation_status
from kdnas.db.repository.evaluations import locked_evaluation, set_evaluation_status
from kdnas.db.repository.latency_builds import locked_build, set_build_status
from kdnas.db.repository.pipelines import (
    locked_parts,
    locked_pipeline,
    set_part_status,
    set_pipeline_status,
)
from kdnas.db.repository.searches import locked_search, set_search_status
from kdnas.errors import ConflictError
from kdnas.records import SearchStatus

Action = Literal["pause", "resume", "cancel"]
WorkRow = Search | Distillation | Evaluation | Pipeline | LatencyBuild
WorkTable = (
    type[Search] | type[Distillation] | type[Evaluation] | type[Pipeline] | type[LatencyBuild]
)

TRANSITIONS: Final[Mapping[Action, Mapping[SearchStatus, SearchStatus]]] = {
    "pause": {"queued": "paused", "running": "paused"},
    "resume": {"paused": "queued", "failed": "queued"},
    "cancel": {
        "queued": "cancelled",
        "running": "cancelled",
        "paused": "cancelled",
        "failed": "cancelled",
    },
}
"""Action → status before → status after; what is not here is refused."""

_PARTICIPLES: Final[Mapping[Action, str]] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
}


def apply_action(session: Session, table: WorkTable, row_id: str, action: Action) -> SearchStatus:
    """Pause, resume or cancel, with an event; what is done to a pipeline is done to its parts.

    Latency builds have no events.

    Args:
        session: of a write transaction.
        table: of searches, distillations, evaluations, pipelines or latency builds.
        row_id: the row.
        action: what a user asks for.

    Returns:
        The new status.

    Raises:
        NotFoundError: no such row.
        ConflictError: its status forbids it; says why, and what to do otherwise.
    """
    row = _locked(session, table, row_id)
    status = cast(SearchStatus, row.status)
    after = TRANSITIONS[action].get(status)
    if after is None:
        raise ConflictError(_refusal(row, status, action))
    if action == "resume" and not isinstance(row, LatencyBuild) and row.owner_kind == "cli":
        raise ConflictError(
            f"{_called(row)} was started by the command line, which resumes it with {_command(row)}"
        )
    if isinstance(row, Search):
        set_search_status(session, row.id, after)
    elif isinstance(row, Distillation):
        set_distillation_status(session, row.id, after)
    elif isinstance(row, Pipeline):
        parts = locked_parts(session, row)
        set_pipeline_status(session, row.id, after)
        for part in parts:
            part_after = TRANSITIONS[action].get(cast(SearchStatus, part.status))
            if part_after is not None:
                set_part_status(session, part, part_after)
    elif isinstance(row, LatencyBuild):
        set_build_status(session, row.id, after)
    else:
        set_evaluation_status(session, row.id, after)
    return after


def _locked(session: Session, table: WorkTable, row_id: str) -> WorkRow:
    if table is Search:
        return locked_search(session, row_id)
    if table is Distillation:
        return locked_distillation(session, row_id)
    if table is Pipeline:
        return locked_pipeline(session, row_id)
    if table is LatencyBuild:
        return locked_build(session, row_id)
    return locked_evaluation(session, row_id)


def _refusal(row: WorkRow, status: SearchStatus, action: Action) -> str:
    said = {"succeeded": "has succeeded"}.get(status, f"is {status}")
    return f"{_called(row)} {said}, so it cannot be {_PARTICIPLES[action]}; " + _advice(
        row, status, action
    )


def _advice(row: WorkRow, status: SearchStatus, action: Action) -> str:
    if status == "succeeded":
        output = row.output_path if isinstance(row, Distillation) else None
        return f"its student is in {output}" if output else "its result is there to be read"
    if status == "cancelled":
        return f"what is cancelled stays so: start a new {_noun(row)}"
    if action == "resume":
        return "pause it first, or leave it to go on"
    if status == "failed":
        return "nothing works on it; resume it to try again, or cancel it"
    return "resume it to go on, or cancel it"  # paused twice


def _noun(row: WorkRow) -> str:
    return "latency build" if isinstance(row, LatencyBuild) else type(row).__name__.lower()


def _called(row: WorkRow) -> str:
    name = row.id if isinstance(row, Evaluation | LatencyBuild) else row.name
    return f"{_noun(row)} {name!r}"


def _command(row: Search | Distillation | Evaluation | Pipeline) -> str:
    if isinstance(row, Evaluation):
        return "the `kdnas evaluate` that started it, run again"
    if isinstance(row, Pipeline):
        return f"`kdnas launch --resume {row.name}`"
    command = "kdnas search" if isinstance(row, Search) else "kdnas full-distill"
    return f"`{command} --resume {row.name}`"
