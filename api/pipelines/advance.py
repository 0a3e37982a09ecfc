"""Pipelines move on: a short transaction that looks at a pipeline's rows and adds what comes next.

There is no process of a pipeline. Its search, distillations, evaluations and distillations for
tasks are rows like any others, done by whoever does such rows; between them :func:`advance` is
called, by a coordinator every few seconds or by ``kdnas launch``. Whatever it adds is committed
together with the note that it was added, under the pipeline's lock, so a kill loses nothing and two
callers add nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from api.inputs.pairs import evaluation_pairs
from api.pipelines.choice import choose
from api.pipelines.second_step import (
    ask_for_task_distillations,
    is_taught,
    is_teacher_unknown,
)
from kdnas.architecture import Architecture
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import explored
from kdnas.db.models import Distillation, Search
from kdnas.db.records import MemberRecord, OwnerKind, PipelineRecord
from kdnas.db.repository import (
    distillations,
    evaluations,
    jobs,
    latencies,
    names,
    pipelines,
    searches,
)
from kdnas.errors import ConflictError, DatabaseError, NotFoundError, RequestError, told_within
from kdnas.evaluation.data.choosing import chosen_tasks
from kdnas.records import PipelineStage, SearchRecord, SearchStatus
from kdnas.specs.parts import ModelSpec
from kdnas.specs.pipeline import PipelineSpec
from kdnas.specs.search import SearchSpec

OPEN: frozenset[SearchStatus] = frozenset({"queued", "running", "paused"})
MOST_SHOWN = 3
"""Failures that a pipeline's error quotes."""

log = structlog.get_logger("kdnas.pipelines")


@dataclass(frozen=True, slots=True)
class MemberState:
    """Where a member stands.

    Attributes:
        distillation: of a student; None for the teacher in all forms, which is there already.
        evaluations: none until they are asked for.
        undistilled: whether it is a student as it starts, which is no answer by itself.
        is_taught: whether it is to be distilled for the tasks.
        task_distillations: none until they are asked for.
        waits: whether it is to be distilled for them as soon as more is known of its teacher.
    """

    distillation: SearchStatus | None
    evaluations: tuple[SearchStatus, ...] = ()
    undistilled: bool = False
    is_taught: bool = False
    task_distillations: tuple[SearchStatus, ...] = ()
    waits: bool = False

    @property
    def wants_evaluations(self) -> bool:
        """Whether its model is there, and its evaluations have not been asked for."""
        return self.distillation in {None, "succeeded"} and not self.evaluations

    @property
    def wants_task_distillations(self) -> bool:
        """Whether its student is there, and the distillations for tasks were not asked for."""
        is_there = self.distillation == "succeeded"
        ready = is_there and not self.waits
        return self.is_taught and ready and not self.task_distillations


@dataclass(frozen=True, slots=True)
class PipelineState:
    """Where a pipeline stands.

    Attributes:
        status: its own.
        search: its search's; None if that was deleted.
        members: None until the search has chosen them.
    """

    status: SearchStatus
    search: SearchStatus | None
    members: tuple[MemberState, ...] | None = None

    @property
    def at_work(self) -> bool:
        """Whether a part is worked on, or will be as soon as there is room."""
        return not {"queued", "running"}.isdisjoint({self.search, *self._parts})

    @property
    def is_over(self) -> bool:
        """Whether no part is left to wait for, or to ask for."""
        if self.members is None:
            return self.search in {None, "failed", "cancelled"}
        wanted = any(m.wants_evaluations or m.wants_task_distillations for m in self.members)
        return not wanted and OPEN.isdisjoint(self._parts)

    @property
    def _parts(self) -> set[SearchStatus | None]:
        """Where what was asked for of the members stands."""
        members = self.members or ()
        scored = {one for m in members for one in (*m.evaluations, *m.task_distillations)}
        return scored | {m.distillation for m in members}


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now.

    Attributes:
        status: of the pipeline.
        stage: of the pipeline.
        choose: whether to choose the members from the search, and to ask for their distillations.
        evaluate: positions of the members whose evaluations are to be asked for.
        teach: positions of the members that are to be distilled for the tasks.
    """

    status: SearchStatus
    stage: PipelineStage
    choose: bool = False
    evaluate: tuple[int, ...] = ()
    teach: tuple[int, ...] = ()


def next_step(state: PipelineState) -> Step | None:
    """Decide what comes next.

    A pipeline runs on as long as anything in it can; what failed keeps nothing else from its end.
    What somebody has cancelled is left out. One that rests goes on when a part of it was resumed
    by itself, and comes to its end when all that rested was cancelled.

    Returns:
        None if it does not go on: it is paused, or over.
    """
    goes_on = state.at_work or state.is_over
    if state.status not in {"queued", "running"} and not (state.status == "paused" and goes_on):
        return None
    if state.members is None:
        return _after_search(state)
    distilled = [m.distillation for m in state.members if m.distillation is not None]
    scored = [status for member in state.members for status in member.evaluations]
    taught = [status for member in state.members for status in member.task_distillations]
    members = tuple(enumerate(state.members))
    evaluate = tuple(i for i, member in members if member.wants_evaluations)
    teach = tuple(i for i, member in members if member.wants_task_distillations)
    open_ones = [status for status in (*distilled, *scored, *taught) if status in OPEN]
    if open_ones or evaluate or teach:
        stage: PipelineStage = "distillation" if OPEN & set(distilled) else "evaluation"
        resting = set(open_ones) == {"paused"} and not evaluate and not teach
        return Step("paused" if resting else "running", stage, evaluate=evaluate, teach=teach)
    students = [member.distillation for member in state.members if not member.undistilled]
    if "failed" in distilled or "succeeded" not in students:
        return Step("failed", "distillation")
    if "failed" in (*scored, *taught) or "succeeded" not in scored:
        return Step("failed", "evaluation")
    return Step("succeeded", "done")


def _after_search(state: PipelineState) -> Step:
    if state.search in {"queued", "running"}:
        waits = state.search == state.status == "queued"
        return Step("queued" if waits else "running", "search")
    if state.search == "succeeded":
        return Step("running", "distillation", choose=True)
    return Step("paused" if state.search == "paused" else "failed", "search")


def begin_pipeline(session: Session, spec: PipelineSpec, owner_kind: OwnerKind) -> PipelineRecord:
    """Store a pipeline and queue its search.

    Args:
        session: of a write transaction.
        spec: with the tasks of its evaluation named.
        owner_kind: who is to do all of its parts.

    Raises:
        ConflictError: the name of the pipeline, or one given to the search, is taken.
    """
    record = pipelines.create_pipeline(
        session, spec.to_json(), name=spec.name, owner_kind=owner_kind
    )
    name = spec.search.name or record.name
    invented = spec.search.name is None and names.is_taken(session, Search, name)
    with told_within("search"):
        search = searches.create_search(
            session,
            spec.search.to_json(),
            name=None if invented else name,
            owner_kind=owner_kind,
            parent_id=record.id,
        )
    pipelines.set_pipeline_search(session, record.id, search.id)
    return pipelines.get_pipeline(session, record.id)


def advance(session: Session, pipeline_id: str) -> PipelineRecord:
    """Do what comes next in a pipeline, if anything does.

    Args:
        session: of a write transaction.
        pipeline_id: the pipeline.

    Returns:
        The pipeline as it is now.

    Raises:
        NotFoundError: no such pipeline.
    """
    row = jobs.locked_job(session, pipeline_id)
    record = pipelines.get_pipeline(session, pipeline_id)
    parts = _parts(session, record)
    search, members = parts.search, parts.members
    step = _next_step(record, parts)
    if step == Step(record.status, record.stage):
        return record
    spec = PipelineSpec.read(dict(record.spec), f"pipeline {record.name!r}")
    reason = None
    if step.choose:
        assert search is not None  # it has succeeded
        reason = _choose(session, record, spec, search)
        if reason is not None:
            step = Step("failed", "search")
    for position in step.evaluate:
        _evaluate(session, record, spec, members[position])
    for position in step.teach:
        ran = _search_spec(spec, search)
        ask_for_task_distillations(session, record, spec, ran, members[position], members)
    if step.status == "failed":
        reason = reason or _failures(record, search, members)
    if step.stage != record.stage:
        pipelines.set_pipeline_stage(session, record.id, step.stage)
    if step.status != record.status:
        jobs.set_status(session, record.id, step.status, reason)
    row.phase = None  # what it may have waited for is there
    return pipelines.get_pipeline(session, record.id)


def has_next(session: Session, record: PipelineRecord) -> bool:
    """Whether :func:`advance` would change anything; a reading transaction is enough."""
    return _next_step(record, _parts(session, record)) != Step(record.status, record.stage)


def advance_all(database: Database) -> None:
    """Move on every pipeline of the service that is not over.

    Raises:
        DatabaseError: the database is out of reach.
    """
    with database.read() as session:
        unfinished = pipelines.list_pipelines(
            session, statuses=OPEN, owner_kind="service", limit=None
        )
    for record in unfinished:
        try:
            with database.read() as session:  # a writer would hold up others on SQLite
                if not has_next(session, record):
                    continue
            with database.write() as session:
                now = advance(session, record.id)
            log.info("pipeline moved on", pipeline=record.id, stage=now.stage, status=now.status)
        except NotFoundError as error:  # it was deleted
            log.warning("pipeline not moved on", pipeline=record.id, reason=str(error))
        except ConflictError as error:  # what comes next is in another job's way
            with database.write() as session:
                is_new = jobs.note_phase(session, record.id, f"waiting: {error}")
            if is_new or record.status != "running":
                log.warning("pipeline not moved on", pipeline=record.id, reason=str(error))
        except RequestError as error:
            with database.write() as session:
                jobs.set_status(session, record.id, "failed", str(error), among=OPEN)
        except DatabaseError:
            raise
        except Exception:  # one odd pipeline must not hold up all others
            log.exception("pipeline not moved on", pipeline=record.id)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The rows of a pipeline.

    Attributes:
        search: its search; None if that was deleted.
        members: none before the search has chosen them.
        method: of its second step; None if it has none.
        teacher_layers: where there is a second step, and they are known.
        tunes_teacher: whether the evaluation chooses how a model learns a task from a grid.
    """

    search: SearchRecord | None
    members: Sequence[MemberRecord]
    method: str | None
    teacher_layers: int | None
    tunes_teacher: bool


def _parts(session: Session, record: PipelineRecord) -> _Parts:
    search = None
    if record.search_id is not None:
        search = searches.get_search(session, record.search_id)
    # Whatever is stored: what cannot be read fails where something is to be asked for.
    method = (record.spec.get("task_distill") or {}).get("method")
    facts = search and method and searches.search_facts(session, search.id)
    layers = facts.teacher["layers"] if facts else None
    tunes = (record.spec.get("evaluation") or {}).get("grid") is not None
    return _Parts(search, pipelines.list_members(session, record.id), method, layers, tunes)


def _next_step(record: PipelineRecord, parts: _Parts) -> Step:
    """What comes next; to stay as it is, of one that does not go on."""
    search, members = parts.search, parts.members
    waits = parts.tunes_teacher and is_teacher_unknown(members)
    made: dict[str, SearchStatus] = {  # one that was deleted counts as one that was cancelled
        member.id: member.distillation.status if member.distillation else "cancelled"
        for member in members
        if member.architecture is not None
    }
    states = tuple(
        MemberState(
            made.get(member.id),
            tuple(evaluation.status for evaluation in member.evaluations),
            member.role == "undistilled",
            is_taught(member, parts.method, parts.teacher_layers),
            tuple(one.status for one in member.task_distillations),
            waits,
        )
        for member in members
    )
    searched = None if search is None else search.status
    state = PipelineState(record.status, searched, states or None)
    return next_step(state) or Step(record.status, record.stage)


def _choose(
    session: Session, record: PipelineRecord, spec: PipelineSpec, search: SearchRecord
) -> str | None:
    """Choose the members and ask for their distillations; returns why there are none."""
    facts = searches.search_facts(session, search.id)
    assert facts is not None  # written before the search could begin
    ran = _search_spec(spec, search)
    states = explored.explored_states(session, search.id)
    table = latencies.load_latency_table(
        session, facts.latency_profile, facts.family, facts.teacher_fingerprint
    )
    choice = choose(spec, ran, facts, states, table)
    if choice.num_chosen == 0:
        found = "; ".join(choice.notes) or f"search {search.name!r} explored no student"
        return f"{found}; ask for others in `choose` of a new pipeline, or for a longer search"
    ids = pipelines.add_members(session, record.id, choice.members, choice.notes)
    numbers: dict[Architecture, int] = {}  # a student as it starts has the number of its own
    for member_id, member in zip(ids, choice.members, strict=True):
        architecture = member.architecture
        if architecture is None:
            continue
        number = numbers.setdefault(architecture, len(numbers) + 1)
        undistilled = member.reasons[0].role == "undistilled"
        end = f"-{number}" + ("-undistilled" if undistilled else "")
        name = names.free_name(session, Distillation, record.name, end)
        request = spec.distillation_of(str(architecture), ran, name, undistilled=undistilled)
        made = distillations.create_distillation(
            session,
            request.to_json(),
            architecture,
            name=name,
            owner_kind=record.owner_kind,
            search_id=search.id,
            parent_id=record.id,
        )
        pipelines.set_member_distillation(session, member_id, made.id)
    return None


def _search_spec(spec: PipelineSpec, search: SearchRecord | None) -> SearchSpec:
    """The request of a pipeline's search as that ran; as it was asked for, if it was deleted."""
    if search is None:
        return spec.search
    return SearchSpec.read(dict(search.spec), f"search {search.name!r}")


def _evaluate(
    session: Session, record: PipelineRecord, spec: PipelineSpec, member: MemberRecord
) -> None:
    """Ask for the evaluations of a member whose model is there."""
    made, teacher = member.distillation, spec.search.teacher
    model = ModelSpec(ref=teacher.ref, revision=teacher.revision)
    if made is not None:
        assert made.student is not None  # it has succeeded
        model = ModelSpec(ref=made.student)
    request = spec.evaluation_of(model, member.variant)
    evaluations.create_evaluations(
        session,
        evaluation_pairs(request, chosen_tasks(request)),
        model=request.model_name,
        distillation_id=None if made is None else made.id,
        owner_kind=record.owner_kind,
        pipeline_member_id=member.id,
    )


def _failures(
    record: PipelineRecord, search: SearchRecord | None, members: Sequence[MemberRecord]
) -> str:
    """Say in a sentence what failed, and how to go on."""
    if not members:
        if search is None:
            return "its search was deleted before it was over; start a new pipeline"
        if search.status == "cancelled":
            return f"its search {search.name!r} was cancelled; start a new pipeline"
        return f"its search {search.name!r} failed: {search.error}; resume the pipeline to go on"
    made = [m.distillation for m in members if m.distillation is not None]
    scored = [evaluation for member in members for evaluation in member.evaluations]
    failed = [f"{one.name}: {one.error}" for one in made if one.status == "failed"]
    failed_scores = [
        f"{one.task} with seed {one.seed} of {Path(one.model).name}: {one.error}"
        for one in scored
        if one.status == "failed"
    ]
    taught = [one for member in members for one in member.task_distillations]
    failed_steps = [f"{one.name}: {one.error}" for one in taught if one.status == "failed"]
    parts = [
        f"{len(reasons)} of {count} {what} failed ({_listed(reasons)})"
        for reasons, count, what in (
            (failed, len(made), "distillations"),
            (failed_scores, len(scored), "evaluations"),
            (failed_steps, len(taught), "distillations for tasks"),
        )
        if reasons
    ]
    if not parts:
        return "all that it was to do was cancelled; start a new pipeline"
    return f"{'; '.join(parts)}; what has succeeded is kept, resume the pipeline to try again"


def _listed(reasons: Sequence[str]) -> str:
    more = len(reasons) - MOST_SHOWN
    return "; ".join(reasons[:MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
