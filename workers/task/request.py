"""A request for distillations for one task, checked: models, data and methods fit each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, pstdev
from typing import Any, Literal

import torch

from kdnas.distill.numerics import Device, choose_device, choose_dtype
from kdnas.errors import SpecError, TaskDataError
from kdnas.evaluation.data.choosing import chosen_tasks, plan_to_distil
from kdnas.evaluation.data.loading import load_task
from kdnas.evaluation.data.splitting import for_tuning
from kdnas.evaluation.finetuning.saving import SavedTask, read_saved_task
from kdnas.evaluation.tasks.examples import TaskData, TextExample, places
from kdnas.evaluation.tasks.task import Task
from kdnas.models.teacher import TeacherHandle, open_teacher, prepare_teacher
from kdnas.models.teacher_files import named_folder
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.specs.task_distillation import TaskDistillationSpec, TaskTeacherSpec
from kdnas.specs.task_student import LayersOfTeacher, StudentChoice, parse_student
from kdnas.specs.wording import shown
from kdnas.store import Store
from kdnas.taskspecific.grid import TaskPoint, task_grid_key, task_points
from kdnas.taskspecific.methods.base import NetworkShape, Setting
from kdnas.taskspecific.methods.registry import method_named
from kdnas.taskspecific.output_space import Classes, Numbers, OutputSpace
from kdnas.taskspecific.published import (
    WEIGHT_DECAY,
    published_choice,
    published_epochs,
    table_for,
)
from kdnas.taskspecific.stages import Hyperparameters
from workers.task.students import StudentPlan, plan_student, shape_before
from workers.task.teacher import OF_FINE_TUNING, has_head, in_order_of_head


@dataclass(frozen=True)
class CheckedTask:
    """A request that can be done; nothing is trained yet.

    Attributes:
        spec: the request, its teacher and number format pinned.
        data: of the task, with labels in the order of the teacher's head.
        tuning: the same, cut into what is learned from and what epochs are chosen by.
        teacher: that was named.
        has_learned: whether it has a head for the task.
        student: how students are made.
        assistant: how assistants are made, where a method wants one.
        hyper: what runs are trained with.
        device: that was chosen.
        dtype: of the forward passes.
        warnings: what the user should know.
    """

    spec: TaskDistillationSpec
    data: TaskData
    tuning: TaskData
    teacher: TeacherHandle
    has_learned: bool
    student: StudentPlan
    assistant: StudentPlan | None
    hyper: Hyperparameters
    device: Device
    dtype: Literal["float32", "bfloat16"]
    warnings: tuple[str, ...]

    @property
    def teacher_shape(self) -> NetworkShape:
        """Layers and width of the teacher."""
        return NetworkShape(self.teacher.shape.layers, self.teacher.shape.hidden)

    @property
    def space(self) -> OutputSpace:
        """Of the task's outputs; nothing that is held out decides it."""
        return space_of(self.tuning)

    def setting(self, taught_by: NetworkShape, beta: float, seed: int) -> Setting:
        """Return what a method is made for.

        Args:
            taught_by: the teacher, or an assistant.
            beta: weight of the distillation of the outputs.
            seed: of what is learned beside the student.
        """
        spec = self.spec
        return Setting(
            self.space,
            self.student.shape,
            taught_by,
            beta,
            spec.temperature,
            spec.layer_choice,
            spec.teacher_layers,
            seed,
        )

    def points(self, method: str) -> tuple[TaskPoint, ...]:
        """Return what the grid of a method tries; nothing where there is no grid."""
        grid = self.spec.grid
        if grid is None:
            return ()
        return task_points(
            grid, uses_beta=method_named(method).uses_beta, examples=len(self.tuning.train)
        )

    def grids(self, teacher: str, data: str) -> dict[str, dict[str, Any]]:
        """Name the grid of each method by what decides its outcome; nothing without a grid.

        Args:
            teacher: fingerprint of the teacher, when it has learned the task.
            data: fingerprint of the data, with what is held out.

        Returns:
            Method → ``key``, and ``points`` that are tried.
        """
        if self.spec.grid is None:
            return {}
        spec, warmed = self.spec, self.spec.teacher
        otherwise = [] if warmed.warmup_states == "raw" else [warmed.warmup_states]
        decides = {
            "teacher": teacher,
            "classifiers": [warmed.warmup_epochs, warmed.warmup_rate, warmed.seed, *otherwise],
            "student": _named(self.student),
            "data": data,
            "dtype": self.dtype,
            "layers": [spec.layer_choice, spec.teacher_layers],
        }
        found: dict[str, dict[str, Any]] = {}
        for name in spec.methods:
            points = self.points(name)
            helps = self.assistant if method_named(name).assisted else None
            decided = {**decides, "assistant": helps and _named(helps)}
            key = task_grid_key(name, points, self.hyper, decided)
            found[name] = {"key": key, "points": len(points)}
        return found


def _named(plan: StudentPlan) -> list[str]:
    """What decides how a student starts."""
    return [str(plan.choice), plan.origin.fingerprint]


def task_of(spec: TaskDistillationSpec) -> Task:
    """Return the task of a request, with the main metric that Wu et al. 2021, §5.2, report.

    That is Matthews for CoLA, Pearson for STS-B, and accuracy for all others, also where an
    evaluation reports F1 first (MRPC, QQP).

    Raises:
        SpecError: an unknown one, or of a kind that is not learned so.
    """
    (task,) = chosen_tasks(plan_to_distil(spec))
    if spec.own is not None:
        return task
    return replace(task, main_metric="accuracy") if task.main_metric == "f1" else task


def check_task(spec: TaskDistillationSpec, store: Store, reach: Reach = ANYWHERE) -> CheckedTask:
    """Find models and data of a request and check that all of it can be done.

    Args:
        spec: the request.
        store: where models are brought.
        reach: how models and data are opened.

    Raises:
        RequestError: whatever cannot be done; nothing is trained before.
    """
    task, choice = task_of(spec), parse_student(spec.student)
    folder = expanded(spec.data_dir) if spec.data_dir else None
    data = load_task(task, folder, reach=reach)
    refuse_one_answer(for_tuning(data))  # before a model is brought
    refuse_new_classes(for_tuning(data))
    named = spec.teacher
    teacher = (
        replace(open_teacher(named.fingerprint, store), ref=named.ref)
        if named.fingerprint
        else prepare_teacher(named, store, reach)
    )
    learned = named.fine_tune == "auto" and has_head(teacher)
    if learned:
        data = in_order_of_head(teacher, data, _saved(named, reach))
    tuning = for_tuning(data)
    device = choose_device(spec.device)
    length = min(spec.max_length, teacher.longest_sequence)

    @cache  # a folder is opened for its shape already
    def planned(chosen: StudentChoice) -> StudentPlan:
        return plan_student(chosen, teacher, tuning, length, store, reach, device, spec.threads)

    def shape_of(chosen: StudentChoice) -> NetworkShape:
        return shape_before(chosen, teacher) or planned(chosen).shape

    # Before an architecture is started, which watches the teacher for a while.
    own, theirs = shape_of(choice), NetworkShape(teacher.shape.layers, teacher.shape.hidden)
    refuse_misfits(spec, space_of(tuning), own, theirs)
    helper = None
    if any(method_named(name).assisted for name in spec.methods):
        helper = assistant_choice(spec, own, theirs)
        refuse_no_assistant(helper, shape_of(helper), own, theirs)
    student = planned(choice)
    assistant = None if helper is None else planned(helper)
    readers = [teacher, *(plan.origin for plan in (student, assistant) if plan is not None)]
    length = min(length, *(reader.longest_sequence for reader in readers))
    dtype = choose_dtype(spec.dtype, device)
    hyper = hyperparameters(
        spec, task, student.kind, teacher.shape.model_type, length, len(tuning.train)
    )
    pinned = {
        "teacher": named.model_copy(update={"fingerprint": teacher.fingerprint}),
        "dtype": dtype,  # another machine that goes on might choose another
    }
    return CheckedTask(
        spec.model_copy(update=pinned),
        data,
        tuning,
        teacher,
        learned,
        student,
        assistant,
        hyper,
        device,
        dtype,
        tuple(
            dict.fromkeys(
                (
                    *data.notes,
                    *_warnings(spec, choice, student, teacher, learned),
                    *_of_another_kind(assistant, student, hyper),
                )
            )
        ),
    )


def refuse_misfits(
    spec: TaskDistillationSpec, space: OutputSpace, student: NetworkShape, teacher: NetworkShape
) -> None:
    """Refuse methods that cannot teach such a student.

    Raises:
        SpecError: says of the first why, and what to do.
    """
    for name in spec.methods:
        layers = (spec.layer_choice, spec.teacher_layers)
        method_named(name)(Setting(space, student, teacher, 0.5, spec.temperature, *layers))


def _saved(named: TaskTeacherSpec, reach: Reach) -> SavedTask | None:
    """What a teacher's folder says of its fine-tuning, which no copy of the model has.

    Of a teacher that was pinned, this was looked at when it was.
    """
    folder = None if named.fingerprint else named_folder(named.ref)
    return None if folder is None else read_saved_task(folder, reach)


def space_of(data: TaskData) -> OutputSpace:
    """Return the space of a task's outputs."""
    if data.labels is not None:
        return Classes(len(data.labels))
    numbers = numbers_of(data)
    return Numbers(pstdev(numbers), fmean(numbers))


def numbers_of(data: TaskData) -> list[float]:
    """The numbers that a regression learns from."""
    return [e.number for e in data.train if isinstance(e, TextExample)]


def refuse_one_answer(data: TaskData) -> None:
    """Refuse examples that all have the same label, or numbers that float32 does not tell apart.

    Raises:
        TaskDataError: names it.
    """
    found = {e.label for e in data.train if isinstance(e, TextExample)}
    if len(found) < 2:
        (label,) = found
        what = "number" if data.labels is None else "class"
        raise TaskDataError(
            f"all {len(data.train)} examples of {data.task.name} to learn from have the one {what} "
            f"{label!r}, so that there is nothing to learn; give examples of at least two"
        )
    if data.labels is None and len(set(torch.tensor(numbers_of(data)).tolist())) < 2:
        few = " and ".join(map(str, sorted(set(numbers_of(data)))[:2]))
        raise TaskDataError(
            f"the numbers of {data.task.name}, such as {few}, are all the same in float32, as they "
            "are learned; subtract their mean, and divide them by their deviation"
        )


def refuse_new_classes(data: TaskData) -> None:
    """Refuse examples to choose epochs by of a class that no other example has.

    Where the task has a development part of its own, that is not among what its classes are found
    in: no network would have an output for such a class.

    Args:
        data: with what epochs are chosen by as its evaluation set.

    Raises:
        TaskDataError: names the class, and where it stands.
    """
    if data.labels is None:
        return
    chosen_by = (e for part in data.evaluations.values() for e in part)
    new = [e for e in chosen_by if isinstance(e, TextExample) and e.label not in data.labels]
    if new:
        raise TaskDataError(
            f"{len(new)} of the examples of {data.task.name} that epochs are chosen by"
            f"{places(new)} have the class {new[0].label!r}, which no example to learn from and "
            "none that is scored has; correct it there, or give examples of that class"
        )


def assistant_choice(
    spec: TaskDistillationSpec, student: NetworkShape, teacher: NetworkShape
) -> StudentChoice:
    """Return the student that stands between student and teacher: as asked, or half way in depth.

    Raises:
        SpecError: there is no layer between them.
    """
    if spec.assistant is not None:
        return parse_student(spec.assistant)
    few, most = student.layers, teacher.layers
    between = (few + most + 1) // 2
    if not few < between < most:
        raise SpecError(
            f"method takd needs an assistant between a student of {few} layers and a teacher of "
            f"{most}, and there is no number of layers between; name one as `assistant`"
        )
    return LayersOfTeacher(None, between)


def refuse_no_assistant(
    choice: StudentChoice, own: NetworkShape, student: NetworkShape, teacher: NetworkShape
) -> None:
    """Refuse an assistant that is not between student and teacher in size (Wu et al. 2021, §5.4).

    Sizes are compared where that is beyond doubt: by depth and width, of Transformers.

    Raises:
        SpecError: says with whom it cannot change places.
    """
    between = (
        ("larger than the student", student, own, student),
        ("smaller than the teacher", own, teacher, teacher),
    )
    for wanted, small, large, other in between:
        alike = small.transformer and large.transformer
        if alike and small.layers >= large.layers and small.width >= large.width:
            raise SpecError(
                f"assistant {shown(str(choice))} (layers × width: {own.layers} × {own.width}) is "
                f"not {wanted} ({other.layers} × {other.width}); name one between them, or leave "
                "`assistant` out"
            )


def hyperparameters(
    spec: TaskDistillationSpec,
    task: Task,
    student_kind: str,
    teacher_family: str,
    max_length: int,
    examples: int,
) -> Hyperparameters:
    """Return what runs are trained with: as published, with what a request changes.

    A batch has no more than the examples that there are to learn from. A task of the user's own is
    nobody else's, whatever it is called: it has what is usual.
    """
    table = table_for(student_kind, teacher_family)
    name = task.name if spec.own is None else None
    published = published_choice(table if spec.published == "auto" else spec.published, name)
    first, second = published_epochs(name)
    values: Mapping[str, Any] = {
        "epochs": first,
        "finetune_epochs": second,
        "batch_size": published.batch_size,
        "learning_rate": published.learning_rate,
        "beta": published.beta,
        "dropout": published.dropout,
        "weight_decay": WEIGHT_DECAY if student_kind == "transformer" else 0.0,
    }
    wanted = {
        name: usual if getattr(spec, name) is None else getattr(spec, name)
        for name, usual in values.items()
    }
    wanted["batch_size"] = min(wanted["batch_size"], examples)
    alike = ("temperature", "warmup_fraction", "max_grad_norm", "max_steps")
    return Hyperparameters(
        **wanted, **{name: getattr(spec, name) for name in alike}, max_length=max_length
    )


def unused(spec: TaskDistillationSpec) -> list[str]:
    """Say which entries of a request count for nothing with its methods."""
    methods = [method_named(name) for name in spec.methods]
    used = {
        "beta": any(method.uses_beta for method in methods),
        "temperature": any(method.uses_temperature for method in methods),
        "layer_choice": any(method.matches_layers for method in methods),
        "teacher_layers": any(method.takes_layers for method in methods),
        "assistant": any(method.assisted for method in methods),
    }
    usual = TaskDistillationSpec.model_fields
    found = [
        f"{entry} {shown(getattr(spec, entry))} counts for nothing with {', '.join(spec.methods)}"
        for entry, counts in used.items()
        if not counts and getattr(spec, entry) != usual[entry].default
    ]
    chosen = usual["layer_choice"].default != spec.layer_choice
    if chosen and used["layer_choice"] and spec.teacher_layers is not None:
        found.append(
            f"layer_choice {shown(spec.layer_choice)} counts for nothing: teacher_layers say which"
        )
    return found


def _of_another_kind(
    assistant: StudentPlan | None, student: StudentPlan, hyper: Hyperparameters
) -> list[str]:
    """Warn of an assistant that is trained with what was published for students of another kind."""
    if assistant is None or assistant.kind == student.kind:
        return []
    return [
        f"assistant {shown(str(assistant.choice))} is a {assistant.kind} and is trained as the "
        f"student is, which is a {student.kind} (learning_rate {hyper.learning_rate:g}, dropout "
        f"{hyper.dropout:g}, weight_decay {hyper.weight_decay:g}); name one of the student's kind "
        "as `assistant`, or give values that suit both"
    ]


def _warnings(
    spec: TaskDistillationSpec,
    choice: StudentChoice,
    student: StudentPlan,
    teacher: TeacherHandle,
    learned: bool,
) -> list[str]:
    found = unused(spec)
    if learned:
        tuned = {name: getattr(spec.teacher, name) for name in OF_FINE_TUNING}
        found += [
            f"teacher.{name} {value:g} counts for nothing: teacher {teacher.ref!r} has learned the "
            "task already, and is taken as it is"
            for name, value in tuned.items()
            if value is not None
        ]
    if student.data.labels is None and spec.temperature != 1:
        found.append(
            f"temperature {spec.temperature:g} counts for nothing where numbers are learned"
        )
    own, theirs = student.shape.width, teacher.shape.hidden
    comparing = [n for n in spec.methods if method_named(n).needs_teacher_states]
    if comparing and own != theirs:
        found.append(
            f"{', '.join(comparing)}: states of {own} and {theirs} numbers are compared through "
            "linear maps of the student's, which are learned with it and thrown away"
        )
    if has_head(teacher) and isinstance(choice, LayersOfTeacher):
        what = "the task" if learned else "a task"
        found.append(
            f"teacher {teacher.ref!r} has learned {what} already, and so have the layers that "
            "the student begins with; the paper takes those of the pre-trained model"
        )
    return found
