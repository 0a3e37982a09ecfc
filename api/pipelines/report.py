"""The report of a pipeline, from whatever of it is there; loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from api.inputs.results import learned_nothing, prediction_files, task_results
from api.pipelines.results import Beside, ModelLine, Pick, PipelineReport
from api.pipelines.scores import ScoredModel, Scoring
from api.pipelines.story import failures, member_name, remedy, setup, stage_times
from api.pipelines.verdict import (
    Budget,
    Case,
    answer,
    choose_picks,
    findings,
    rank_correlation,
    unmet,
)
from kdnas.architecture import ACTIVATIONS, Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import explored
from kdnas.db.records import MemberRecord, PipelineRecord
from kdnas.db.repository import pipelines, searches
from kdnas.evaluation.reports.report import Measured, Report, make_report
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import Files
from kdnas.evaluation.tasks.registry import TASKS
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import SearchFacts, SearchRecord, StateCounts
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
        files: member → its predictions that lie on this machine.
    """

    record: PipelineRecord
    spec: PipelineSpec
    members: Sequence[MemberRecord]
    search: SearchRecord | None
    search_spec: SearchSpec
    facts: SearchFacts | None
    counts: StateCounts | None
    files: Mapping[str, Files]


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
    with database.read() as session:
        stored = _read(session, settings, pipeline_id)
    results = {member_name(one): task_results(one.evaluations) for one in stored.members}
    scoring = Scoring(
        stored.spec.evaluation.suite,
        [
            ScoredModel(member_name(m), results[member_name(m)], stored.files[m.id])
            for m in stored.members
        ],
    )
    scores = _scores(stored, results, ())
    models = tuple(_line(member, stored, scores, scoring) for member in stored.members)
    picks = choose_picks(models, _budgets(stored), scoring)
    case = Case(models, picks, _beside(models, picks, scoring), scoring)
    found = failures(stored.search, stored.members)
    shown = _scores(stored, results, picks)
    teacher = case.teacher or _unscored_teacher(stored)
    return PipelineReport(
        id=stored.record.id,
        name=stored.record.name,
        status=stored.record.status,
        stage=stored.record.stage,
        headline=_headline(stored, case, found),
        findings=(*findings(case), *unmet(models, _budgets(stored)), *rank_correlation(models)),
        picks=picks,
        score_name=scoring.name if scoring.tasks else "",
        columns=shown.columns,
        models=models,
        published=tuple(row for row in shown.rows if row.origin == "published"),
        beside=tuple(case.beside),
        details=shown.details,
        setup=setup(stored.spec, stored.search_spec, stored.counts, stored.members, teacher),
        stages=stage_times(stored.search, stored.members),
        failures=found,
        remedy=remedy(stored.record, found),
        notes=(*stored.record.notes, *_notes(stored, case, results), *shown.notes),
    )


def _read(session: Session, settings: Settings, pipeline_id: str) -> _Stored:
    record = pipelines.get_pipeline(session, pipeline_id)
    spec = PipelineSpec.read(record.spec, f"pipeline {record.name}")
    search = facts = counts = None
    search_spec = spec.search
    if record.search_id is not None:
        search = searches.get_search(session, record.search_id)
        search_spec = SearchSpec.read(search.spec, f"search {search.name}")
        facts = searches.search_facts(session, search.id)
        counts = explored.state_counts(session, search.id)
    members = pipelines.list_members(session, record.id)
    files = {
        member.id: prediction_files(session, member.evaluations, settings) for member in members
    }
    return _Stored(record, spec, members, search, search_spec, facts, counts, files)


def _scores(
    stored: _Stored, results: Mapping[str, tuple[TaskResult, ...]], picks: Sequence[Pick]
) -> Report:
    """Put all scores together, with published models of about the size of what is picked."""
    shape = Architecture.parse(picks[0].name) if picks else None
    return make_report(
        stored.spec.evaluation.suite,
        [Measured(name, found) for name, found in results.items() if found],
        layers=None if shape is None else shape.layers,
        hidden=None if shape is None else shape.hidden,
        max_published=SHOWN_PUBLISHED,
    )


def _line(member: MemberRecord, stored: _Stored, scores: Report, scoring: Scoring) -> ModelLine:
    name, figures, made = member_name(member), member.figures, member.distillation
    start = next(
        (
            member_name(one)
            for one in stored.members
            if one.role == "undistilled" and one.architecture == member.architecture
        ),
        None,
    )
    teacher = next((member_name(one) for one in stored.members if one.role == "teacher"), None)
    shape = None if member.architecture is None else str(member.architecture)
    params = figures.params_millions
    latency_ms, ratio = figures.latency_ms, figures.latency_ratio
    if latency_ms is None:
        latency_ms, ratio = _measured_latency(member, stored)
    if member.role == "teacher" and stored.facts is not None:
        shape, params = _teacher_size(stored.facts)
    cells = [row.cells for row in scores.rows if row.model == name and row.origin == "measured"]
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
        scores=cells[0] if cells else {},
        score=scoring.score(name),
        retained=scoring.retained(name, teacher) if teacher not in (None, name) else None,
        gained=scoring.difference(name, start) if start not in (None, name) else None,
        kept_layers=(member.variant or {}).get("keep_layers"),
        distillation=None if made is None else made.status,
        num_evaluated=sum(one.status == "succeeded" for one in member.evaluations),
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
    teacher = next((one for one in stored.members if one.role == "teacher"), None)
    if teacher is None or teacher.figures.latency_ms is None:
        return None, None
    own, other = (
        [result.figures for result in task_results(one.evaluations) if result.figures]
        for one in (member, teacher)
    )
    speeds = (first.speed_up_over(second) for first in own for second in other)
    speed = next((speed for speed in speeds if speed), None)
    if speed is None:
        return None, None
    return teacher.figures.latency_ms / speed, 1 / speed


def _teacher_size(facts: SearchFacts) -> tuple[str, float]:
    """Return the teacher's architecture in words, and its parameters in millions."""
    axes = facts.teacher
    known = {**axes, "activation": ACTIVATIONS[0]}  # parameters do not depend on it
    params = count_parameters(Architecture(**known), EmbeddingShape(**facts.embedding)) / 1e6
    sizes = [axes[name] for name in ("layers", "heads", "hidden", "intermediate", "activation")]
    return ",".join(map(str, sizes)), params


def _unscored_teacher(stored: _Stored) -> ModelLine | None:
    """What is known of a teacher that is not evaluated."""
    if stored.facts is None:
        return None
    shape, params = _teacher_size(stored.facts)
    nothing: dict[str, Any] = dict.fromkeys(
        (
            *("reward", "search_loss", "held_out_loss", "score", "retained", "gained"),
            *("kept_layers", "distillation"),
        )
    )
    return ModelLine(
        id="",
        name=stored.search_spec.teacher.ref,
        role="teacher",
        reasons=(),
        architecture=shape,
        params_millions=params,
        latency_ms=stored.facts.teacher_ms,
        latency_ratio=1.0,
        scores={},
        num_evaluated=0,
        num_evaluations=0,
        **nothing,
    )


def _budgets(stored: _Stored) -> list[Budget]:
    way = stored.spec.choose
    if way.latency_budgets_ms:
        return [(ms, f"within {ms:g} ms") for ms in way.latency_budgets_ms]
    if stored.facts is None:
        return []
    return [
        (share * stored.facts.teacher_ms, f"within {share:g} of the teacher's latency")
        for share in way.latency_budgets_ratio
    ]


def _beside(models: Sequence[ModelLine], picks: Sequence[Pick], scoring: Scoring) -> list[Beside]:
    """Set each student that is to be taken beside all other models."""
    names = dict.fromkeys(pick.name for pick in picks)
    pairs = [scoring.beside(name, other.name) for name in names for other in models]
    return [one for one in pairs if one is not None and one.model != one.other]


def _headline(stored: _Stored, case: Case, found: Sequence[object]) -> str:
    """Say which student to take, or how far it is to an answer."""
    record = stored.record
    if case.picks:
        said = answer(case)
        if record.status == "succeeded":
            return said
        return f"{_state(stored)} By what is there now: {said[:1].lower()}{said[1:]}"
    if record.status in ("succeeded", "failed", "cancelled"):
        about = f": {len(found)} of its parts failed" if found else ""
        return f"There is no answer{about}; no student that was chosen has a score."
    return f"{_state(stored)} There is no score yet."


def _state(stored: _Stored) -> str:
    """Say how far a pipeline is."""
    made = [
        m.distillation
        for m in stored.members
        if m.architecture is not None and m.role != "undistilled"
    ]
    scored = [one for m in stored.members for one in m.evaluations]
    parts = []
    if made:
        done = sum(one is not None and one.status == "succeeded" for one in made)
        parts.append(f"{done} of {len(made)} students are distilled")
    if scored:
        done = sum(one.status == "succeeded" for one in scored)
        parts.append(f"{done} of {len(scored)} evaluations are done")
    words = {"failed": "Parts of it failed", "cancelled": "It was cancelled", "paused": "It pauses"}
    state = words.get(stored.record.status, "It is under way")
    where = " and ".join(parts) or "the search is not over"
    return f"{state}: {where}."


def _notes(stored: _Stored, case: Case, results: Mapping[str, tuple[TaskResult, ...]]) -> list[str]:
    """Say what limits the figures."""
    notes = []
    scored = [name for name, found in results.items() if found]
    tasks = dict.fromkeys(result.task for found in results.values() for result in found)
    missing = [task for task in tasks if task not in case.scoring.tasks]
    if len(scored) > 1 and missing:
        notes.append(
            f"Models are compared without {', '.join(missing)}: some of them have no score of it."
        )
    elsewhere = [
        member_name(m)
        for m in stored.members
        if len(results[member_name(m)]) > len(stored.files[m.id])
    ]
    if elsewhere:
        notes.append(
            f"The predictions of {', '.join(elsewhere)} lie on another machine, where this report "
            "can tell more of how sure the differences are."
        )
    own = [m for m in case.models if m.role != "undistilled"]  # as fast as when distilled
    unknown = [m.name for m in own if m.latency_ms is None]
    if unknown:
        notes.append(f"The search's latency table has no figure for {', '.join(unknown)}.")
    table = {member_name(m) for m in stored.members if m.figures.latency_ms is not None}
    timed = [m.name for m in own if m.latency_ms is not None and m.name not in table]
    if timed:
        notes.append(
            f"{', '.join(timed)}: not in the search's latency table, but timed beside the teacher."
        )
    for m in stored.members:
        doubt = None if m.distillation is None else learned_nothing(m.distillation)
        if doubt is not None:
            notes.append(f"{member_name(m)} {doubt}.")
    cancelled = [one for m in stored.members for one in (m.distillation, *m.evaluations)]
    num_cancelled = sum(one is not None and one.status == "cancelled" for one in cancelled)
    if num_cancelled:
        notes.append(f"{num_cancelled} of its distillations and evaluations were cancelled.")
    if case.picks:
        notes.append(ONCE)
        asked = stored.spec.evaluation
        as_they_are = {task.suite for task in TASKS.values() if not task.fine_tuned}
        if asked.grid is None and asked.suite not in as_they_are:
            notes.append(ONE_RATE)
    return notes


def report_json(report: PipelineReport) -> dict[str, Any]:
    """Return a report as plain values, times among them; scores are fractions."""
    return asdict(report)
