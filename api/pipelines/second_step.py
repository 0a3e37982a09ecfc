"""The second step of a pipeline: what the search chose is distilled once more, for each task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from api.inputs.methods import misfit
from kdnas.db.engine import Session
from kdnas.db.models import TaskDistillation
from kdnas.db.records import MemberRecord, PipelineRecord
from kdnas.db.repository import names, task_distillations
from kdnas.evaluation.data.choosing import chosen_tasks
from kdnas.evaluation.tasks.task import Task
from kdnas.specs.parts import ModelSpec
from kdnas.specs.pipeline import PipelineSpec, file_name
from kdnas.specs.search import SearchSpec

CHOSEN: Final = ("learning_rate", "epochs")
"""By the grid of an evaluation."""


def tasks_of(spec: PipelineSpec) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Return the tasks that what was chosen is distilled for, and those that are left out."""
    tasks = chosen_tasks(spec.evaluation_of(ModelSpec(ref=spec.search.teacher.ref)))
    fitting = tuple(task for task in tasks if task.is_distilled_for)
    return fitting, tuple(task for task in tasks if not task.is_distilled_for)


def is_taught(member: MemberRecord, method: str | None, teacher_layers: int | None) -> bool:
    """Whether a member is to be distilled for the tasks.

    Args:
        member: of a pipeline.
        method: of its second step; None if it has none.
        teacher_layers: of the teacher, where they are known.
    """
    if method is None or member.architecture is None or not member.is_chosen:
        return False
    return misfit(method, member.architecture.layers, teacher_layers) is None


def is_teacher_unknown(members: Sequence[MemberRecord]) -> bool:
    """Whether it is still open what the evaluation's grid chooses for the teacher.

    What has failed may be tried again; what somebody has cancelled is waited for no more.
    """
    statuses = [one.status for m in members if m.role == "teacher" for one in m.evaluations]
    has_teacher = any(member.role == "teacher" for member in members)
    return has_teacher and not (statuses and {*statuses} <= {"succeeded", "cancelled"})


def chosen_for_teacher(members: Sequence[MemberRecord], task: str) -> dict[str, Any]:
    """Return learning rate and epochs that the evaluation's grid chose for the teacher on a task.

    All seeds share them. Nothing is returned where it was not scored.
    """
    for member in members:
        for one in member.evaluations if member.role == "teacher" else ():
            if one.task == task and one.status == "succeeded":
                return {key: one.metrics["settings"][key] for key in CHOSEN}
    return {}


def ask_for_task_distillations(
    session: Session,
    record: PipelineRecord,
    spec: PipelineSpec,
    search: SearchSpec,
    member: MemberRecord,
    members: Sequence[MemberRecord],
) -> None:
    """Ask for the distillations of a member's student, which is there, a task each.

    Args:
        session: of a write transaction.
        record: the pipeline.
        spec: its request.
        search: as the search ran.
        member: whose student it is.
        members: all of the pipeline's.
    """
    made = member.distillation
    assert made is not None  # it has succeeded
    assert made.student is not None
    for task in tasks_of(spec)[0]:
        end = f"-for-{file_name(task.name)}"
        name = names.free_name(session, TaskDistillation, made.name, end)
        chosen = {} if spec.evaluation.grid is None else chosen_for_teacher(members, task.name)
        request = spec.task_distillation_of(task.name, made.student, search, name, chosen)
        task_distillations.create_task_distillation(
            session,
            request.to_json(),
            name=name,
            owner_kind=record.owner_kind,
            parent_id=record.id,
        )
