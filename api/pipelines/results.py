"""What the report of a pipeline consists of: plain values, with nothing left to work out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kdnas.evaluation.reports.report import Cell, Detail, Row
from kdnas.evaluation.scoring.significance import Comparison
from kdnas.records import MemberRole, PipelineStage, SearchStatus

LineRole = Literal[MemberRole, "task"]
"""Role of a line of the report; ``task`` is a student after the second step."""
Part = Literal[PipelineStage, "task distillation"]
"""What a pipeline's time goes into."""
Over = Literal["examples", "seeds"]
Verdict = Literal["better", "worse", "within the noise", "not known"]


ENDINGS: Mapping[Verdict, str] = {
    "better": "which is more than noise",
    "worse": "which is more than noise",
    "within the noise": "which is within the noise",
    "not known": "and whether that is more than noise is not known",
}
"""End of a sentence on a difference: how sure it is."""

NORMAL_QUANTILE = 1.96
"""Standard errors from the middle of a 95 % interval to its ends."""

ROLE_NAMES = {
    "chosen": "chosen by the search",
    "baseline": "baseline",
    "random": "random pick",
    "undistilled": "undistilled student",
    "teacher": "teacher",
    "variant": "undistilled teacher",
    "task": "distilled for each task",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, and how sure it is.

    Attributes:
        value: the figure.
        low: lower end of its 95 % interval; None where there is nothing to take one from.
        high: upper end.
        over: what the interval is drawn over: the scored examples (paired bootstrap), or the
            seeds of the fine-tuning.
    """

    value: float
    low: float | None = None
    high: float | None = None
    over: Over | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of its interval, where it has one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def standard_error(self) -> float | None:
        """The share of its interval that is one; None where there is none."""
        return self.ends and (self.ends[1] - self.ends[0]) / (2 * NORMAL_QUANTILE)

    @property
    def verdict(self) -> Verdict:
        """What a difference says of the first of two models."""
        if self.ends is None:
            return "not known"
        low, high = self.ends
        return "better" if low > 0 else "worse" if high < 0 else "within the noise"

    def as_share(self, about: str = "") -> str:
        """A share with its interval, and what that is: ``96.3 % (94.1 to 98.3)``."""
        return f"{100 * self.value:.1f} %{self._in_brackets('', about)}"

    @property
    def as_difference(self) -> str:
        """A difference in points with its interval: ``+1.5 (+0.2 to +2.9)``."""
        return f"{100 * self.value:+.1f}{self._in_brackets('+')}"

    def _in_brackets(self, sign: str, about: str = "") -> str:
        if self.ends is None:
            return ""
        low, high = (f"{100 * end:{sign}.1f}" for end in self.ends)
        return f" ({about}{low} to {high})"

    @property
    def points(self) -> str:
        """How large a difference is: ``1.5 points``."""
        return f"{abs(100 * self.value):.1f} points"

    @property
    def interval(self) -> str:
        """The interval of a difference: without signs where all of it is on one side."""
        low, high = 100 * (self.low or 0.0), 100 * (self.high or 0.0)
        if low <= 0 <= high:
            return f"95 % interval {low:+.1f} to {high:+.1f}"
        near, far = sorted((abs(low), abs(high)))
        return f"95 % interval {near:.1f} to {far:.1f}"


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model of the pipeline, with all its figures; None where there is none yet.

    Attributes:
        id: of the member; of its student after the second step with ``-for-tasks`` behind it.
        name: architecture of a student, with a word where it is undistilled and the method where it
            was distilled once more for each task, or how the teacher is called.
        role: why it is there; the first of ``reasons``.
        reasons: why, in words.
        architecture: ``layers,heads,hidden,intermediate,activation``.
        reward: in the search.
        search_loss: relative loss after the short training of the search.
        held_out_loss: relative held-out loss after the full distillation; of an undistilled
            student as it starts.
        params_millions: without head and pooler.
        latency_ms: by the search's latency table.
        latency_ratio: share of the teacher's.
        scores: column → score, a fraction.
        score: what it is compared by: the mean over the tasks that all scored models have.
        retained: share of the teacher's.
        gained: points by which a distilled student is above itself undistilled, a fraction.
        kept_layers: of the teacher, of a variant that lacks the others.
        distillation: status of its distillation; None of the teacher.
        num_evaluated: evaluations that have succeeded.
        num_evaluations: evaluations that were asked for.
    """

    id: str
    name: str
    role: LineRole
    reasons: tuple[str, ...]
    architecture: str | None
    reward: float | None
    search_loss: float | None
    held_out_loss: float | None
    params_millions: float | None
    latency_ms: float | None
    latency_ratio: float | None
    scores: Mapping[str, Cell]
    score: Cell | None
    retained: Estimate | None
    gained: Estimate | None
    kept_layers: int | None
    distillation: SearchStatus | None
    num_evaluated: int
    num_evaluations: int

    @property
    def is_student(self) -> bool:
        """Whether it was distilled here."""
        return self.role not in ("teacher", "variant", "undistilled", "task")

    @property
    def with_role(self) -> str:
        """Its name with its role."""
        if self.role == "undistilled":
            return f"the undistilled {self.architecture}"
        if self.role == "chosen":
            return f"the search's {self.name}"
        return f"the {ROLE_NAMES[self.role]} {self.name}"

    def is_within(self, budget_ms: float | None) -> bool:
        """Whether it is known to take no longer."""
        ms = self.latency_ms
        return ms is not None and budget_ms is not None and ms <= budget_ms


@dataclass(frozen=True, slots=True)
class Pick:
    """A student to take.

    Attributes:
        name: its architecture.
        budget_ms: the latency that it keeps within; None where no budgets were asked for.
        about: the budget in words; empty without one.
    """

    name: str
    budget_ms: float | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """A student that is to be taken, beside another model.

    Attributes:
        model: the student.
        other: the other model.
        difference: of the scores that they are compared by.
        verdict: what the difference says of the student.
        tests: task → paired bootstrap over the examples, where both models' predictions lie here.
    """

    model: str
    other: str
    difference: Estimate
    verdict: Verdict
    tests: Mapping[str, Comparison]


@dataclass(frozen=True, slots=True)
class SecondStep:
    """A student before and after it was distilled once more for a task, or over several of them.

    Attributes:
        model: name of the student, fine-tuned as all models are.
        name: of the same after the second step.
        task: its name; of a mean of several what models are compared by.
        before: score of the former.
        after: score of the latter.
        retained_before: share of the teacher's score, which is fine-tuned as all models are.
        retained_after: the same after the second step.
        gained: what is after it above what was before.
        verdict: what that says of the second step.
        job: id of the distillations for the task; None of a mean.
        status: of them.
        taught_by: score of the teacher that taught it.
        student: folder of the student that is done, of the best seed by held-out score.
    """

    model: str
    name: str
    task: str
    before: Cell | None
    after: Cell | None
    retained_before: Estimate | None
    retained_after: Estimate | None
    gained: Estimate | None
    verdict: Verdict
    job: str | None = None
    status: SearchStatus | None = None
    taught_by: float | None = None
    student: str | None = None


@dataclass(frozen=True, slots=True)
class StageTime:
    """How long a stage took.

    Attributes:
        stage: its name; ``task distillation`` is the second step, done in stage ``evaluation``.
        started_at: when the first of its parts began.
        finished_at: when the last one ended; None while any is open.
        seconds: between the two, by the clock.
        work_seconds: of all its parts from start to end, added up; pauses of a part count.
    """

    stage: Part
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    work_seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A part that failed: its name, what it said, and which model lacks it."""

    part: str
    error: str


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """A pipeline's results, for somebody who has to decide.

    Attributes:
        id: of the pipeline.
        name: of the pipeline.
        status: of the pipeline.
        stage: of the pipeline.
        headline: the answer in a sentence or two.
        findings: what else to know before deciding, a sentence each.
        picks: the students to take, one for each budget, or one.
        score_name: what models are compared by.
        columns: tasks, languages and averages, in order.
        models: the teacher, then the students, each followed by itself after the second step.
        published: rows of papers with some of the columns.
        beside: students to take beside the other models.
        second_steps: what was chosen before and after it was distilled once more for each task;
            none where that was not asked for.
        details: every metric of every evaluation set.
        setup: how it was made: word → text.
        stages: how long it took.
        failures: what failed.
        remedy: how to go on after the failures; empty without any.
        notes: what a reader should know, a sentence each.
    """

    id: str
    name: str
    status: SearchStatus
    stage: PipelineStage
    headline: str
    findings: tuple[str, ...]
    picks: tuple[Pick, ...]
    score_name: str
    columns: tuple[str, ...]
    models: tuple[ModelLine, ...]
    published: tuple[Row, ...]
    beside: tuple[Beside, ...]
    second_steps: tuple[SecondStep, ...]
    details: tuple[Detail, ...]
    setup: Mapping[str, str]
    stages: tuple[StageTime, ...]
    failures: tuple[Failure, ...]
    remedy: str
    notes: tuple[str, ...]
