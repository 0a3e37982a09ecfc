"""The report of a pipeline, from whatever of it is there; loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from api.inputs.results import learned_nothing, prediction_files, task_results
from api.pipelines.choice import budgets, cut_teacher, params_millions
from api.pipelines.results import Beside, ModelLine, Pick, PipelineReport
from api.pipelines.scores import ScoredModel, Scoring
from api.pipelines.second_step_report import (
    Taught,
    read_taught,
    second_step_findings,
    second_step_notes,
    second_steps,
    with_taught,
)
from api.pipelines.story import failures, member_name, remedy, setup, stage_times
from api.pipelines.verdict import (
    Case,
    answer,
    choose_picks,
    findings,
    rank_correlation,
    unmet,
)
from kdnas.architecture import Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import explored
from kdnas.db.records import MemberRecord, PipelineRecord
from kdnas.db.repository import pipelines, searches
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.records import SearchFacts, SearchRecord, StateCounts
from kdnas.search_space import AXES
from kdnas.settings import Settings
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import SearchSpec

SHOWN_PUBLISHED = 4
ONCE = (
    "Each student was distilled once: what another seed of its distillation would change is in "
    "none of the intervals."
)
ONE_RATE = (
    "All models were fine-tuned alike, with one learning rate a task. Each may want another, and "
    "small differences may turn round with it, such as that of a student and itself undistilled: "
    "grid in evaluation gives each its own."
)


@dataclass(frozen=True)
class _Stored:
    """What is stored of a pipeline.

    Attributes:
        record: its row.
        spec: its request.
        members: its models.
        search: its search; None if that was deleted.
        search_spec: as the search ran, else as it was asked for.
        facts: what preparing the search found out.
        counts: of the search's states.
        scored: member → its results, the tasks as they were asked for, and predictions.
        taught: what the second step has come to.
    """

    record: PipelineRecord
    spec: PipelineSpec
    members: Sequence[MemberRecord]
    search: SearchRecord | None
    search_spec: SearchSpec
    facts: SearchFacts | None
    counts: StateCounts | None
    scored: Mapping[str, ScoredModel]
    taught: Sequence[Taught]

    @property
    def all_scored(self) -> list[ScoredModel]:
        """All results, those after the second step last."""
        return [*self.scored.values(), *(one.scored for one in self.taught)]

    @property
    def teacher(self) -> MemberRecord | None:
        """The teacher, if it takes part."""
        return next((member for member in self.members if member.role == "teacher"), None)


def build_pipeline_report(
    database: Database, settings: Settings, pipeline_id: str
) -> PipelineReport:
    """Put a pipeline's results together, be it finished or under way.

    Args:
        database: where it is stored.
        settings: of this process; predictions are looked for below its ``KDNAS_HOME``.
        pipeline_id: id or name.

    Raises:
        NotFoundError: there is no such pipeline.
    """
    stored = database.ask(lambda session: _read(session, settings, pipeline_id))
    record, facts = stored.record, stored.facts
    suite, seeds = stored.spec.evaluation.suite, stored.spec.evaluation.seeds
    also = [one.scored for one in stored.taught]
    scoring = Scoring(suite, list(stored.scored.values()), also)
    scores = _scores(stored, ())
    models = tuple(_line(member, stored, scores, scoring) for member in stored.members)
    # Of a search that was deleted the teacher's own row still knows it.
    timed = next((line.latency_ms for line in models if line.role == "teacher"), None)
    asked = budgets(stored.spec.choose, timed if facts is None else facts.teacher_ms)
    picks = choose_picks(models, asked, scoring)
    case = Case(models, picks, _beside(models, picks, scoring), scoring)
    found = failures(stored.search, stored.members)
    shown = _scores(stored, picks)
    cells = {row.model: row.cells for row in scores.rows if row.origin == "measured"}
    above = None if stored.teacher is None else stored.teacher.id
    steps = second_steps(suite, stored.scored, above, stored.taught, scoring)
    teacher: tuple[str | None, float | None]
    teacher = (None, None) if facts is None else _teacher_size(facts)
    if case.teacher is not None:
        teacher = (case.teacher.architecture, case.teacher.params_millions)
    return PipelineReport(
        id=record.id,
        name=record.name,
        status=record.status,
        stage=record.stage,
        headline=_headline(stored, case, found),
        findings=(
            *second_step_findings(steps),
            *findings(case),
            *unmet(models, asked),
            *rank_correlation(models),
        ),
        picks=picks,
        score_name=scoring.name if scoring.tasks else "",
        columns=shown.columns,
        models=with_taught(models, stored.taught, scoring, cells, len(seeds)),
        published=tuple(row for row in shown.rows if row.origin == "published"),
        beside=tuple(case.beside),
        second_steps=steps,
        details=shown.details,
        setup=setup(stored.spec, stored.search_spec, stored.counts, stored.members, teacher),
        stages=stage_times(stored.search, stored.members),
        failures=found,
        remedy=remedy(record, found),
        notes=(*record.notes, *_notes(stored, case), *shown.notes),
    )


def _read(session: Session, settings: Settings, pipeline_id: str) -> _Stored:
    record = pipelines.get_pipeline(session, pipeline_id)
    spec = PipelineSpec.read(record.spec, f"pipeline {record.name}")
    search, search_spec, facts, counts = None, spec.search, None, None
    if record.search_id is not None:
        search = searches.get_search(session, record.search_id)
        search_spec = SearchSpec.read(search.spec, f"search {search.name}")
        facts = searches.search_facts(session, search.id)
        counts = explored.state_counts(session, search.id)
    members = pipelines.list_members(session, record.id)
    scored = {
        member.id: ScoredModel(
            member_name(member),
            task_results(member.evaluations),
            prediction_files(session, member.evaluations, settings),
        )
        for member in members
    }
    taught = read_taught(session, settings, spec, members)
    return _Stored(record, spec, members, search, search_spec, facts, counts, scored, taught)


def _scores(stored: _Stored, picks: Sequence[Pick]) -> Report:
    """Put all scores together, with published models of about the size of what is picked."""
    shape = Architecture.parse(picks[0].name) if picks else None
    return make_report(
        stored.spec.evaluation.suite,
        [Measured(one.name, one.results) for one in stored.all_scored if one.results],
        layers=None if shape is None else shape.layers,
        hidden=None if shape is None else shape.hidden,
        max_published=SHOWN_PUBLISHED,
    )


def _line(member: MemberRecord, stored: _Stored, scores: Report, scoring: Scoring) -> ModelLine:
    name, figures, made = member_name(member), member.figures, member.distillation
    teacher = None if stored.teacher is None else member_name(stored.teacher)
    starts = (one for one in stored.members if one.role == "undistilled")
    start = next((member_name(m) for m in starts if m.architecture == member.architecture), None)
    shape = None if member.architecture is None else str(member.architecture)
    params = figures.params_millions
    latency_ms, ratio = figures.latency_ms, figures.latency_ratio
    if latency_ms is None:
        latency_ms, ratio = _measured_latency(member, stored)
    if member.role == "teacher" and stored.facts is not None:
        shape, params = _teacher_size(stored.facts)
    measured = (row for row in scores.rows if row.model == name and row.origin == "measured")
    return ModelLine(
        id=member.id,
        name=name,
        role=member.role,
        reasons=tuple(reason.about for reason in member.reasons),
        architecture=shape,
        reward=figures.reward,
        search_loss=figures.loss_relative,
        held_out_loss=None if made is None else made.metrics.get("relative"),
        params_millions=params,
        latency_ms=latency_ms,
        latency_ratio=ratio,
        scores=next((row.cells for row in measured), {}),
        score=scoring.score(name),
        retained=scoring.retained(name, teacher) if teacher not in (None, name) else None,
        gained=scoring.difference(name, start) if start not in (None, name) else None,
        kept_layers=(member.variant or {}).get("keep_layers"),
        distillation=None if made is None else made.status,
        num_evaluated=len(stored.scored[member.id].results),
        num_evaluations=len(member.evaluations),
    )


def _measured_latency(
    member: MemberRecord, stored: _Stored
) -> tuple[float, float] | tuple[None, None]:
    """Return the latency of what the search's table lacks, from the sizes and speeds of results.

    Returns:
        Milliseconds on the scale of the table, and the share of the teacher's, which was timed
        beside it; None where they were not timed alike.
    """
    teacher = stored.teacher
    if teacher is None or teacher.figures.latency_ms is None:
        return None, None
    own, other = (
        [result.figures for result in stored.scored[one.id].results if result.figures]
        for one in (member, teacher)
    )
    speeds = (first.speed_up_over(second) for first in own for second in other)
    speed = next(filter(None, speeds), None)
    return (None, None) if speed is None else (teacher.figures.latency_ms / speed, 1 / speed)


def _teacher_size(facts: SearchFacts) -> tuple[str, float]:
    """Return the teacher's architecture in words, and its parameters in millions."""
    whole = cut_teacher(facts, facts.teacher["layers"])
    return ",".join(str(facts.teacher[axis]) for axis in AXES), params_millions(whole, facts)


def _beside(models: Sequence[ModelLine], picks: Sequence[Pick], scoring: Scoring) -> list[Beside]:
    """Set each student that is to be taken beside all other models."""
    names = dict.fromkeys(pick.name for pick in picks)
    pairs = [scoring.beside(name, other.name) for name in names for other in models]
    return [one for one in pairs if one is not None and one.model != one.other]


def _headline(stored: _Stored, case: Case, found: Sequence[object]) -> str:
    """Say which student to take, or how far it is to an answer."""
    status = stored.record.status
    if case.picks:
        said = answer(case)
        if status == "succeeded":
            return said
        return f"{_state(stored)} By what is there now: {said[:1].lower()}{said[1:]}"
    if status in ("succeeded", "failed", "cancelled"):
        about = f": {len(found)} of its parts failed" if found else ""
        return f"There is no answer{about}; no student that was chosen has a score."
    return f"{_state(stored)} There is no score yet."


def _state(stored: _Stored) -> str:
    """Say how far a pipeline is."""
    students = [m for m in stored.members if m.architecture and m.role != "undistilled"]
    made = [m.distillation.status if m.distillation else None for m in students]
    scored = [one.status for m in stored.members for one in m.evaluations]
    taught = [one.status for m in stored.members for one in m.task_distillations]
    parts = [
        f"{statuses.count('succeeded')} of {len(statuses)} {what}"
        for statuses, what in (
            (made, "students are distilled"),
            (scored, "evaluations are done"),
            (taught, "distillations for tasks are done"),
        )
        if statuses
    ]
    words = {"failed": "Parts of it failed", "cancelled": "It was cancelled", "paused": "It pauses"}
    state = words.get(stored.record.status, "It is under way")
    *first, last = parts or ["the search is not over"]
    return f"{state}: {' and '.join(filter(None, (', '.join(first), last)))}."


def _notes(stored: _Stored, case: Case) -> list[str]:
    """Say what limits the figures."""
    scored = [one for one in stored.scored.values() if one.results]
    tasks = dict.fromkeys(result.task for one in scored for result in one.results)
    missing = [task for task in tasks if task not in case.scoring.tasks and len(scored) > 1]
    elsewhere = [one.name for one in stored.all_scored if len(one.results) > len(one.files)]
    own = [m for m in case.models if m.role != "undistilled"]  # as fast as when distilled
    unknown = [m.name for m in own if m.latency_ms is None]
    table = {member_name(m) for m in stored.members if m.figures.latency_ms is not None}
    timed = [m.name for m in own if m.latency_ms is not None and m.name not in table]
    made = [(m, m.distillation) for m in stored.members if m.distillation is not None]
    doubts = [(member_name(m), learned_nothing(distillation)) for m, distillation in made]
    statuses = [one.status for _, one in made]
    statuses += [one.status for m in stored.members for one in m.evaluations]
    statuses += [one.status for m in stored.members for one in m.task_distillations]
    changed = [task for task in tasks if len(_versions(stored.members, task)) > 1]
    layers = None if stored.facts is None else stored.facts.teacher["layers"]
    steps = second_step_notes(stored.spec, stored.members, stored.taught, layers)
    cancelled = statuses.count("cancelled")
    asked = stored.spec.evaluation
    as_they_are = {task.suite for task in TASKS.values() if not task.fine_tuned}
    alike = asked.grid is None and asked.suite not in as_they_are
    said: list[tuple[object, str]] = [
        (
            missing,
            f"Models are compared without {', '.join(missing)}: some of them have no score of it.",
        ),
        (
            elsewhere,
            f"The predictions of {', '.join(elsewhere)} lie on another machine, where this report "
            "can tell more of how sure the differences are.",
        ),
        (
            changed,
            f"The data of {', '.join(changed)} changed between the evaluations: models learned "
            "from, or are scored on, other examples there, and differences are not theirs alone; "
            "a new pipeline scores all on the same.",
        ),
        (unknown, f"The search's latency table has no figure for {', '.join(unknown)}."),
        (
            timed,
            f"{', '.join(timed)}: not in the search's latency table, but timed beside the teacher.",
        ),
        *((doubt, f"{name} {doubt}.") for name, doubt in doubts),
        (
            cancelled,
            f"{cancelled} of its distillations and evaluations were cancelled.",
        ),
        (case.picks, ONCE),
        (case.picks and alike, ONE_RATE),
    ]
    return [*(text for holds, text in said if holds), *steps]


def _versions(members: Sequence[MemberRecord], task: str) -> set[str]:
    """Tell the versions of a task's data that scores are of."""
    scored = (one for member in members for one in member.evaluations if one.metrics)
    return {one.decides["data"] for one in scored if one.task == task and "data" in one.decides}


def report_json(report: PipelineReport) -> dict[str, Any]:
    """Return a report as plain values, times among them; scores are fractions."""
    return asdict(report)
