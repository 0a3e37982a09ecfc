"""A request for a pipeline, checked as far as that takes no work, with its tasks named."""

from __future__ import annotations

from collections.abc import Sequence

from api.inputs.pairs import evaluation_pairs
from controller.strategies import build_strategy
from kdnas.errors import SpecError, told_at, told_within
from kdnas.evaluation.data.choosing import tasks_with_data
from kdnas.evaluation.tasks.task import Task
from kdnas.paths import expanded
from kdnas.reach import ANYWHERE, Reach
from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.parts import ModelSpec
from kdnas.specs.pipeline import ChooseSpec, PipelineSpec
from kdnas.specs.search import SearchSpec


def checked_pipeline(spec: PipelineSpec, reach: Reach = ANYWHERE) -> PipelineSpec:
    """Refuse what could only fail hours later; return the request with nothing left to look for.

    Args:
        spec: the request.
        reach: how folders of data are opened.

    Raises:
        RequestError: values that contradict each other, a strategy that cannot be built, an
            unknown task, impossible axes, or tasks without data.
    """
    with told_within("search"):
        spec.search.refuse_contradictions()
        with told_at("controller.strategy"):
            build_strategy(spec.search.controller, SearchSpace.paper(), seed=0)
        if spec.search.space.kind == "custom":
            with told_at("space.axes"):
                SearchSpace.from_axes(spec.search.space.axes)
    _refuse_students_that_cannot_copy(spec)
    plan, students = spec.evaluation, spec.distillation
    if plan.data_dir is not None:
        folder = str(expanded(plan.data_dir).resolve())
        plan = plan.model_copy(update={"data_dir": folder})
    if students.output is not None:
        output = str(expanded(students.output).absolute())
        students = students.model_copy(update={"output": output})
    search = _within_budgets(spec.search, spec.choose)
    spec = spec.model_copy(update={"evaluation": plan, "distillation": students, "search": search})
    request = spec.evaluation_of(ModelSpec(ref=spec.search.teacher.ref))
    with told_within("evaluation"):
        tasks = tasks_with_data(request, reach)
        evaluation_pairs(request, tasks)  # refuses what does not go together
    if spec.task_distill is not None:
        _refuse_nothing_to_teach(tasks)
        with told_at("task_distill"):
            for task in tasks:
                if task.is_distilled_for:  # what the evaluation takes, the second step may not
                    spec.task_distillation_of(task.name, "student", spec.search, "name")
    named = plan.model_copy(update={"tasks": tuple(task.name for task in tasks)})
    return spec.model_copy(update={"evaluation": named})


def _refuse_students_that_cannot_copy(spec: PipelineSpec) -> None:
    """Refuse distillations that could be done of few of the students that a search may choose."""
    search, space = spec.search, spec.search.space
    if search.objective.copies_layers or search.student.init == "copy":
        return  # and so it tries such students alone
    if space.kind == "custom" and all(len(space.axes.get(axis, ())) == 1 for axis in AXES[1:]):
        return  # layers alone vary
    objective = spec.distillation.objective or search.objective
    if objective.copies_layers:
        field, what = "distillation.objective", f"objective {objective.name}"
    elif spec.distillation.student.over(search.student).init == "copy":
        field, what = "distillation.student", "start copy"
    else:
        return
    raise SpecError(
        f"{field}: the {what} is for students that differ from their teacher in layers alone, and "
        f"the search may choose others; give the search the same {what.partition(' ')[0]}, or "
        "`space.axes` with one value each but for layers",
        field=field,
    )


def _refuse_nothing_to_teach(tasks: Sequence[Task]) -> None:
    if not any(task.is_distilled_for for task in tasks):
        listed = ", ".join(task.name for task in tasks)
        raise SpecError(
            f"task_distill has nothing to do: no classification or regression is learned in "
            f"{listed}; leave it out, or evaluate other tasks",
            field="task_distill",
        )


def _within_budgets(search: SearchSpec, choose: ChooseSpec) -> SearchSpec:
    """The search without states that no budget could choose; limits that were asked for stay."""
    limits = search.limits
    if limits.max_latency_ms is not None or limits.max_latency_ratio is not None:
        return search
    return search.model_copy(update={"limits": limits.model_copy(update=choose.limits)})
