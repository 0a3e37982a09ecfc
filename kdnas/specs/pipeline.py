"""The request for a pipeline: a search, full distillations of what it chose, and their scores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from kdnas.specs.base import Spec
from kdnas.specs.distillation import DistillationSpec, FullTrainingSpec
from kdnas.specs.evaluation import OWN_SUITE, EvaluationPlanSpec, EvaluationSpec, OwnTaskSpec
from kdnas.specs.naming import Name
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.parts import ModelSpec, Start, StudentSpec
from kdnas.specs.ranges import (
    BatchSize,
    CalibrationTokens,
    Epochs,
    Fraction,
    Layer,
    Limit,
    Seed,
    Share,
    Steps,
)
from kdnas.specs.search import BOUNDS, SearchSpec
from kdnas.specs.task_distillation import METHODS, MethodName, Rate, TaskDistillationSpec

MOST_STUDENTS = 50
OF_OTHER_STUDENTS = "universal-kd-ca"
"""The one method that teaches no Transformers, which all students of a search are."""
MOST_OF_A_TASK = 40
"""Characters of a task's name that a file's has."""


class ChooseSpec(Spec):
    """Which students of the search are distilled to the end: exactly one way of choosing.

    Attributes:
        top: so many of the highest reward.
        latency_budgets_ms: for each budget the lowest loss within it.
        latency_budgets_ratio: the same with budgets as shares of the teacher's latency, which mean
            the same on another machine.
    """

    top: int | None = Field(None, ge=1, le=MOST_STUDENTS)
    latency_budgets_ms: tuple[Limit, ...] = Field((), max_length=MOST_STUDENTS)
    latency_budgets_ratio: tuple[Limit, ...] = Field((), max_length=MOST_STUDENTS)

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        return {"top": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [self.top is not None, bool(self.latency_budgets_ms)]
        if sum([*ways, bool(self.latency_budgets_ratio)]) != 1:
            raise ValueError("give exactly one of top, latency_budgets_ms, latency_budgets_ratio")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The largest budget, as limits of a search; none where the highest rewards are taken."""
        budgets = {
            "max_latency_ms": self.latency_budgets_ms,
            "max_latency_ratio": self.latency_budgets_ratio,
        }
        return {name: max(given) for name, given in budgets.items() if given}


class VariantSpec(Spec):
    """The teacher itself, made smaller without distilling.

    Attributes:
        int8: weights in 8 bits after the fine-tuning.
        layers: how many of its layers are kept, from below: a share below 1, or a count from 1 on.
    """

    int8: bool = False
    layers: Layer | Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _smaller(self) -> Self:
        if not self.int8 and self.layers is None:
            raise ValueError(
                "give int8: true, layers such as 0.5 (half of them) or 1 (the lowest one), or both"
            )
        return self

    def kept_layers(self, num_layers: int) -> int:
        """Return how many of a teacher's layers are kept: one at least, and all at most."""
        if self.layers is None:
            return num_layers
        if isinstance(self.layers, int):
            return min(self.layers, num_layers)
        return max(1, int(self.layers * num_layers + 0.5))


class BaselinesSpec(Spec):
    """What the chosen students are compared with, distilled with the same budget.

    Attributes:
        proportions: shares of the teacher's layers and of its width: ``[0.5, 1.0]`` and
            ``[0.5, 0.5]`` are to any teacher what 6L-768H and 6L-384H are to one of 12 layers and
            a width of 768.
        random: so many random states of the search's space, within its limits.
        seed: of the random picks.
        undistilled: whether each student is evaluated as it starts, too, so that nothing is put
            down to its distillation that its architecture and its start do without.
        variants: what the teacher is evaluated as, too, without any distillation.
        smallest_cuts: whether it is so evaluated, for each student, with the fewest of its lowest
            layers with which it is not faster.
    """

    proportions: tuple[tuple[Fraction, Fraction], ...] = Field(
        ((0.5, 1.0), (0.5, 0.5)), max_length=MOST_STUDENTS
    )
    random: int = Field(1, ge=0, le=MOST_STUDENTS)
    seed: Seed = 0
    undistilled: bool = True
    variants: tuple[VariantSpec, ...] = Field((), max_length=10)
    smallest_cuts: bool = False


class StudentsStartSpec(Spec):
    """How students start where that is not as in the search; what is None is the search's.

    Attributes:
        init: None is the start of the search's students.
        calibration_tokens: tokens of the corpus on which the teacher is watched for it; None is as
            many as in the search.
    """

    init: Start | None = None
    calibration_tokens: CalibrationTokens | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"init": value} if isinstance(value, str) else value

    def over(self, search: StudentSpec) -> StudentSpec:
        """The search's, with what is given here in place of its own."""
        given = {name: value for name, value in self.to_json().items() if value is not None}
        return StudentSpec.model_validate(search.to_json() | given)


class StudentsSpec(Spec):
    """How every student is distilled; teacher and corpus are those of the search.

    Attributes:
        objective: what is learned; None takes the search's.
        student: how students start where that is not as in the search.
        training: length and settings of each.
        output: folder that gets a folder for each student; None is ``students`` of ``KDNAS_HOME``.
    """

    objective: ObjectiveSpec | None = None
    student: StudentsStartSpec = StudentsStartSpec()
    training: FullTrainingSpec = FullTrainingSpec()
    output: str | None = Field(None, min_length=1)

    @field_validator("student", mode="before")
    @classmethod
    def _as_in_the_search(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _distils(self) -> Self:
        if self.training.steps == 0:
            raise ValueError(
                "training.steps 0 distils nothing; give 1 or more (students as they start are "
                "among the baselines: undistilled)"
            )
        return self


class ScoresSpec(EvaluationPlanSpec):
    """How every student is evaluated, and whether the teacher is, in the same way."""

    teacher: bool = True


class SecondStepSpec(Spec):
    """How what the search chose is distilled once more, for each task that it is scored on.

    What is None is as published for student and task (Wu et al. 2021).

    Attributes:
        method: how a student learns from a teacher that has learned the task.
        epochs: of the first stage, on the teacher; as published 20, of CoLA 50.
        finetune_epochs: of the second stage, on the labels alone; as published 10.
        max_steps: at most this many optimiser steps in each stage; None is as many as a
            fine-tuning of the evaluation has.
        batch_size: examples of a step.
        learning_rate: peak rate of AdamW in either stage.
        beta: weight of the distillation of the outputs in the first stage.
    """

    method: MethodName = Field(
        json_schema_extra={"enum": [name for name in METHODS if name != OF_OTHER_STUDENTS]}
    )
    epochs: Epochs | None = None
    finetune_epochs: Epochs | None = None
    max_steps: Steps | None = None
    batch_size: BatchSize | None = None
    learning_rate: Rate | None = None
    beta: Share | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value

    @field_validator("method")
    @classmethod
    def _of_transformers(cls, value: str) -> str:
        if value == OF_OTHER_STUDENTS:
            raise ValueError(
                f"{value} is for students that are no Transformers, and those of a search "
                "are; with them it is universal-kd-il: take that"
            )
        return value


class PipelineSpec(Spec):
    """A pipeline, whole: search, full distillations, evaluations.

    Attributes:
        name: to call it by.
        search: what searches.
        choose: which of its students are distilled.
        distillation: how.
        baselines: what they are compared with.
        evaluation: how all of them are scored.
        task_distill: how the chosen ones are distilled once more for each of the tasks; None leaves
            it at that.
    """

    name: Name | None = None
    search: SearchSpec = SearchSpec()
    choose: ChooseSpec = ChooseSpec(top=3)
    distillation: StudentsSpec = StudentsSpec()
    baselines: BaselinesSpec = BaselinesSpec()
    evaluation: ScoresSpec
    task_distill: SecondStepSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_budget_is_a_limit(cls, value: Any) -> Any:
        """Let a search of goal limit without one have the largest budget."""
        if not isinstance(value, Mapping):
            return value
        search, choose = value.get("search"), value.get("choose")
        if not isinstance(search, Mapping) or search.get("goal") != "limit":
            return value
        limits = search.get("limits") or {}
        if not isinstance(limits, Mapping) or any(limits.get(name) is not None for name in BOUNDS):
            return value
        try:
            budgets = ChooseSpec.model_validate(choose).limits
        except ValidationError:  # told where its own field is read
            return value
        return {**value, "search": {**search, "limits": {**limits, **budgets}}}

    def distillation_of(
        self,
        architecture: str,
        search: SearchSpec,
        name: str | None = None,
        *,
        undistilled: bool = False,
    ) -> DistillationSpec:
        """Return the request for a student.

        Args:
            architecture: of the student.
            search: as it ran, with its teacher and corpus pinned.
            name: of the distillation, and of its folder below ``output``.
            undistilled: whether it is left as it starts, which takes 0 steps.
        """
        part = self.distillation
        training = part.training.to_json()
        return DistillationSpec.model_validate(
            {
                "name": name,
                "architecture": architecture,
                "teacher": search.teacher.to_json(),
                "corpus": search.corpus.to_json(),
                "objective": (part.objective or search.objective).to_json(),
                "student": part.student.over(search.student).to_json(),
                "training": training | {"steps": 0} if undistilled else training,
                "output": f"{part.output}/{name}" if part.output and name else part.output,
            }
        )

    def evaluation_of(
        self, model: ModelSpec, variant: Mapping[str, Any] | None = None
    ) -> EvaluationSpec:
        """Return the request for a model's scores.

        Args:
            model: which.
            variant: what is done to it before, as entries of the request.
        """
        plan = self.evaluation.model_dump(mode="json", exclude={"teacher"})
        return EvaluationSpec.model_validate({**plan, **(variant or {}), "model": model.to_json()})

    def task_distillation_of(
        self,
        task: str,
        student: str,
        search: SearchSpec,
        name: str,
        chosen: Mapping[str, Any] | None = None,
    ) -> TaskDistillationSpec:
        """Return the request for the second step of a student on a task.

        The teacher is that of the search, and learns the task as the evaluation has it learned,
        whatever head it has; data, seeds and the like are those of the evaluation. The result goes
        beside the student.

        Args:
            task: its name.
            student: folder of the student.
            search: as it ran, with its teacher pinned.
            name: of the distillation.
            chosen: learning rate and epochs that the evaluation's grid has chosen for the teacher.

        Raises:
            SpecError: the evaluation has something that no such distillation takes.
        """
        step, plan = self.task_distill, self.evaluation
        assert step is not None
        taught = {key: getattr(plan, key) for key in ("learning_rate", "epochs", "batch_size")}
        taught |= chosen or {}
        alike = {key: getattr(plan, key) for key in ("data_dir", "device", "dtype", "threads")}
        if plan.max_length is not None:
            alike["max_length"] = plan.max_length
        given = step.to_json()
        own = plan.own or (OwnTaskSpec() if plan.suite == OWN_SUITE else None)
        return TaskDistillationSpec.read(
            {
                **{key: value for key, value in given.items() if key != "method"},
                **alike,
                "name": name,
                "task": task,
                "own": None if own is None else own.to_json(),
                "student": student,
                "methods": [step.method],
                "seeds": plan.seeds,
                "max_steps": step.max_steps or plan.max_steps,
                "teacher": {
                    **search.teacher.to_json(),
                    **taught,
                    "max_steps": plan.max_steps,
                    "fine_tune": "always",
                },
                "output": f"{student}-for-{file_name(task)}",
            },
            f"the second step for {task}",
        )


def file_name(task: str) -> str:
    """Write a task's name with nothing in it that a file or a job may not have in theirs."""
    return re.sub(r"[^\w.-]+", "-", task)[:MOST_OF_A_TASK]
