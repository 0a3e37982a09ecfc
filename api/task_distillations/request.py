"""What a request for distillations for a task names: whole paths, and what may be named."""

from __future__ import annotations

from typing import Final

from api.inputs.data_roots import check_folder, check_model, check_output
from api.inputs.methods import misfit
from api.inputs.students import distillation_with_student, names_distillation
from kdnas.db.engine import Session
from kdnas.errors import SpecError, told_at
from kdnas.evaluation.data.choosing import plan_to_distil, tasks_with_data
from kdnas.evaluation.tasks.registry import find_task
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.settings import Settings
from kdnas.specs.parts import ModelSpec
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.specs.task_student import (
    LayersOfTeacher,
    SequenceStudent,
    StudentFolder,
    StudentOfSpace,
    parse_student,
)

SEVERAL: Final = 3
"""Layers, of students that are no Transformers: at least so many."""


def task_name(spec: TaskDistillationSpec) -> str:
    """What lists call the task of a request: as papers write it, or as its user does.

    Raises:
        SpecError: an unknown task.
    """
    return find_task(spec.task).name if spec.own is None else spec.own.name or spec.task


def with_whole_paths(spec: TaskDistillationSpec) -> TaskDistillationSpec:
    """Write paths of folders so that they mean the same in every working folder."""
    changes: dict[str, object] = {}
    for name in ("data_dir", "output"):
        path = getattr(spec, name)
        if path is not None:
            changes[name] = str(expanded(path).absolute())
    for name, named in named_students(spec):
        if names_model(named, name):
            changes[name] = _whole(named)
    ref = _whole(spec.teacher.ref)
    changes["teacher"] = spec.teacher.model_copy(update={"ref": ref})
    return spec.model_copy(update=changes)


def with_students(spec: TaskDistillationSpec, session: Session) -> TaskDistillationSpec:
    """Put the folder of a student in place of the distillation that made it.

    Raises:
        NotFoundError: no such distillation.
        ConflictError: it has no student yet.
    """
    folders = {}
    for name, named in named_students(spec):
        if names_distillation(named):
            with told_at(name):
                folders[name] = distillation_with_student(session, named)[1]
    return spec.model_copy(update=folders)


def named_students(spec: TaskDistillationSpec) -> list[tuple[str, str]]:
    """Entries that name students, and what they name."""
    named = (("student", spec.student), ("assistant", spec.assistant))
    return [(entry, text) for entry, text in named if text is not None]


def cuts_from_space(spec: TaskDistillationSpec) -> bool:
    """Whether a student or an assistant is an architecture that is cut from the teacher.

    Raises:
        SpecError: one of them cannot be read.
    """
    found = []
    for entry, text in named_students(spec):
        with told_at(entry):
            found.append(isinstance(parse_student(text), StudentOfSpace))
    return any(found)


def check_task(spec: TaskDistillationSpec, reach: Reach = ANYWHERE) -> None:
    """Refuse a task that cannot be distilled for, or has no data, by the names of files alone.

    Raises:
        SpecError: an unknown task, or one whose answers are neither a class nor a number.
        RequestError: a folder of the data is out of reach.
        TaskDataError: there are no data.
    """
    tasks_with_data(plan_to_distil(spec), reach)


def check_places(spec: TaskDistillationSpec, settings: Settings) -> None:
    """Refuse a request to the service that names what it may not, or a folder that is not there.

    Raises:
        RequestError: names the entry, its value and the setting that would allow it.
        TeacherError: a model's folder is not there.
    """
    check_model(spec.teacher, "teacher.ref", settings)
    for name, named in named_students(spec):
        if names_model(named, name) and not names_distillation(named):
            check_model(ModelSpec(ref=named), name, settings)
    if spec.data_dir is not None:
        check_folder(spec.data_dir, "data_dir", settings)
    if spec.output is not None:
        check_output(spec.output, "output", settings)


def check_methods(spec: TaskDistillationSpec) -> None:
    """Refuse methods that cannot teach the student, where its name says enough of it.

    Raises:
        SpecError: names the student, the first such method, and what to choose.
    """
    match parse_student(spec.student):
        case LayersOfTeacher() as choice:
            layers, transformer = choice.count, True
        case StudentOfSpace() as choice:
            layers, transformer = choice.architecture.layers, True
        case SequenceStudent():
            layers, transformer = SEVERAL, False
        case StudentFolder():
            return
    for method in spec.methods:
        problem = misfit(method, layers, None, transformer=transformer)
        if problem is not None:
            said = f"student {spec.student!r}: {problem}; choose another of the two"
            raise SpecError(said, field="methods")


def names_model(student: str, entry: str) -> bool:
    """Whether a student is a model that is there, not one that is made here.

    Args:
        student: as a request names it.
        entry: of the request that does.

    Raises:
        SpecError: it cannot be read.
    """
    with told_at(entry):
        return isinstance(parse_student(student), StudentFolder)


def _whole(ref: str) -> str:
    folder = expanded(ref)
    return str(folder.absolute()) if folder.is_dir() else ref
