"""A made-up pipeline: finished, or at any of its stages, with predictions that make its scores.

As :mod:`kdnas.testing.demo_data`, it serves the tests of the dashboard and of the report.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from api.jobs.files import task_run_folder
from kdnas.architecture import Architecture
from kdnas.db import models
from kdnas.db.engine import Database, Session
from kdnas.db.exploration import explored
from kdnas.db.records import MemberFigures, MemberRecord, NewMember, Reason
from kdnas.db.repository import (
    distillations,
    evaluations,
    jobs,
    pipelines,
    searches,
    task_distillations,
)
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.settings import published_settings
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.cost import EmbeddingShape, count_parameters
from kdnas.records import ExploredState, PipelineStage, SearchFacts, SearchStatus, TaskRun
from kdnas.search.reward import rank_key
from kdnas.search_space import SearchSpace
from kdnas.settings import Settings
from kdnas.specs.pipeline import PipelineSpec
from kdnas.testing import demo_data
from kdnas.testing.demo_data import TEACHER, TEACHER_NAME, landscape, latency_ms
from kdnas.testing.demo_tasks import task_facts

TASKS: Mapping[str, tuple[int, float]] = {"SST-2": (872, 0.93), "RTE": (277, 0.68)}
"""Task → examples that it is scored on, and about the teacher's accuracy."""
CHANCE = 0.5
STEPS = 1000
BY_SECOND_STEP = 0.3
"""Share of what a student lacks that the second step gives it."""
SEEDS = (0, 1, 2)
WHY = "1 of 6 distillations failed; resume the pipeline to try again"
BASELINES = {
    "6,12,768,3072,gelu": "0.5 of the layers, 1 of the width",
    "6,12,384,1536,gelu": "0.5 of the layers, 0.5 of the width",
}


def add_pipeline(
    database: Database,
    name: str,
    search_id: str,
    *,
    stage: PipelineStage = "done",
    failing: bool = False,
    home: Path | None = None,
    began: datetime | None = None,
    spec: Mapping[str, Any] | None = None,
) -> str:
    """Write a pipeline over a search that is there; returns its id.

    Args:
        database: where the search is.
        name: of the pipeline.
        search_id: of a search with at least three explored states, unless the stage is search.
        stage: how far it is.
        failing: whether one distillation and one evaluation have failed, and the pipeline with
            them; only where it is done.
        home: a ``KDNAS_HOME`` that gets the predictions; None leaves them out.
        began: when the distillations began.
        spec: parts of the request other than usual.
    """
    began = began or datetime.now(UTC) - timedelta(hours=9)
    with database.write() as session:
        asked = _spec(session, name, search_id, spec or {})
        row = pipelines.create_pipeline(
            session, asked.model_dump(mode="json"), name=name, owner_kind="service"
        )
        pipelines.set_pipeline_search(session, row.id, search_id)
        jobs.set_status(session, row.id, "running")
        searches.set_search_facts(session, search_id, _facts())
        if stage != "search":
            pipelines.set_pipeline_stage(session, row.id, "distillation")
            members = _members(session, search_id, asked)
            pipelines.add_members(session, row.id, members)
    if stage != "search":
        _distil(database, row.id, name, stage, failing)
        _evaluate(database, row.id, stage, failing, home)
        if asked.task_distill is not None:
            _teach(database, row.id, asked, failing, home)
        with database.write() as session:
            pipelines.set_pipeline_stage(session, row.id, "distillation" if failing else stage)
            if stage == "done":
                status: SearchStatus = "failed" if failing else "succeeded"
                jobs.set_status(session, row.id, status, WHY if failing else None)
    _date(database, row.id, began)
    return row.id


def end_evaluations(database: Database, pipeline_id: str, home: Path | None = None) -> None:
    """Let a pipeline that is at its evaluations end well."""
    with database.write() as session:
        for member in pipelines.list_members(session, pipeline_id):
            for one in member.evaluations:
                if one.status != "succeeded":
                    pair = NewEvaluation(one.suite, one.task, one.seed, {})
                    _finish(session, one.id, pair, member, home, fails=False)
        pipelines.set_pipeline_stage(session, pipeline_id, "done")
        jobs.set_status(session, pipeline_id, "succeeded")


def _spec(session: Session, name: str, search_id: str, parts: Mapping[str, Any]) -> PipelineSpec:
    search = searches.get_search(session, search_id)
    return PipelineSpec.model_validate(
        {
            "name": name,
            "search": search.spec,
            "choose": 3,
            "distillation": {"training": {"steps": STEPS}},
            "evaluation": {"suite": "glue", "tasks": list(TASKS), "data_dir": "/data/glue"},
            **parts,
        }
    )


def _facts() -> SearchFacts:
    space = SearchSpace.paper()
    return SearchFacts(
        teacher={name: getattr(TEACHER, name) for name in Architecture.__dataclass_fields__},
        embedding=asdict(EmbeddingShape(30522)),
        axes={name: list(values) for name, values in space.axes.items()},
        head_multiple=1,
        allowed=None,
        latency_profile="made-up",
        family="bert-512",
        teacher_fingerprint="made-up-teacher",
        teacher_ms=latency_ms(TEACHER),
    )


def _members(session: Session, search_id: str, spec: PipelineSpec) -> list[NewMember]:
    states = sorted(explored.explored_states(session, search_id), key=rank_key)
    members = [
        NewMember(
            (Reason("teacher", TEACHER_NAME),),
            figures=MemberFigures(latency_ms=latency_ms(TEACHER), latency_ratio=1.0),
        )
    ]
    chosen = states[: spec.choose.top or 3]
    members += [
        NewMember(
            (Reason("chosen", f"reward no. {rank}"),),
            Architecture.parse(state.architecture),
            _of_state(state),
        )
        for rank, state in enumerate(chosen, 1)
    ]
    members += [
        NewMember((Reason("baseline", about),), Architecture.parse(text), _unexplored(text))
        for text, about in BASELINES.items()
    ]
    picked = random.Random(0).choice(states[len(states) // 2 :])
    why = (Reason("random", "seed 0"),)
    members.append(NewMember(why, Architecture.parse(picked.architecture), _of_state(picked)))
    if spec.baselines.undistilled:
        start = (Reason("undistilled", "as it starts"),)
        members += [
            NewMember(start, member.architecture, _unexplored(str(member.architecture)))
            for member in members[1:]
        ]
    return members


def _of_state(state: ExploredState) -> MemberFigures:
    return MemberFigures(
        reward=state.reward,
        loss_relative=state.losses.relative,
        loss_output=state.losses.output,
        latency_ms=state.latency_ms,
        latency_ratio=state.latency_ratio,
        params_millions=state.params_millions,
    )


def _unexplored(text: str) -> MemberFigures:
    architecture = Architecture.parse(text)
    return MemberFigures(
        latency_ms=latency_ms(architecture),
        latency_ratio=latency_ms(architecture) / latency_ms(TEACHER),
        params_millions=count_parameters(architecture, EmbeddingShape(30522)) / 1e6,
    )


def _distil(
    database: Database, pipeline_id: str, name: str, stage: PipelineStage, failing: bool
) -> None:
    """Write the students' distillations; the last two are not done while that is the stage.

    As they start, the students are not made before that.
    """
    with database.read() as session:
        members = pipelines.list_members(session, pipeline_id)
    students = [m for m in members if m.architecture and m.role != "undistilled"]
    for member in members[1:]:
        steps = 0 if member.role == "undistilled" else STEPS
        is_late = stage == "distillation" and (member in students[-2:] or steps == 0)
        until = steps // 2 if is_late or (failing and member is students[-1]) else None
        made = demo_data.add_distillation(
            database,
            f"{name}-{member.position}",
            str(member.architecture),
            steps=steps,
            until=until,
        )
        with database.write() as session:
            pipelines.set_member_distillation(session, member.id, made)
            if until is None and member.architecture is not None:
                distillations.set_distillation_result(
                    session,
                    made,
                    metrics={"relative": _held_out(member.architecture, steps)},
                    output_path=f"/data/models/{name}-{member.position}",
                )
            if is_late and member is not students[-2]:
                jobs.set_status(session, made, "queued")
            elif until is not None and failing:
                why = "the loss is not finite at step 500; use a lower learning rate"
                jobs.set_status(session, made, "failed", why)


def _held_out(architecture: Architecture, steps: int) -> float:
    return 0.8 * landscape(architecture).relative if steps else 1.04


def _evaluate(
    database: Database,
    pipeline_id: str,
    stage: PipelineStage,
    failing: bool,
    home: Path | None,
) -> None:
    """Write the evaluations of what is distilled; of the last model they may not be done."""
    with database.read() as session:
        members = pipelines.list_members(session, pipeline_id)
    ready = [m for m in members if m.distillation is None or m.distillation.status == "succeeded"]
    for member in ready if stage != "distillation" else ready[:2]:
        pairs = [NewEvaluation("glue", task, seed, {}) for task in TASKS for seed in SEEDS]
        made = member.distillation
        model = TEACHER_NAME if made is None else f"/data/models/{made.name}"
        with database.write() as session:
            ids = evaluations.create_evaluations(
                session,
                pairs,
                model=model,
                distillation_id=None if made is None else made.id,
                pipeline_member_id=member.id,
            )
            is_open = stage != "done" and member is ready[-1 if stage == "evaluation" else 1]
            for number, (row_id, pair) in enumerate(zip(ids, pairs, strict=True)):
                if not is_open or number < 2:
                    fails = failing and member is ready[-1] and number == len(pairs) - 1
                    _finish(session, row_id, pair, member, home, fails)
                elif number == 2:
                    jobs.set_status(session, row_id, "running")
                    evaluations.note_evaluation_progress(
                        session, row_id, "training", 120, 240, 0.61
                    )


def _finish(
    session: Session,
    row_id: str,
    pair: NewEvaluation,
    member: MemberRecord,
    home: Path | None,
    fails: bool,
) -> None:
    about = {"key": row_id, "model": {"ref": member.id}, "data": pair.task, "settings": {}}
    evaluations.note_prepared(session, row_id, about)
    jobs.set_status(session, row_id, "running")
    if fails:
        why = "out of memory; use a smaller batch_size"
        jobs.set_status(session, row_id, "failed", why)
        return
    undistilled = member.role == "undistilled"
    right = answers(member.architecture, pair.task, pair.seed, undistilled=undistilled)
    metrics = _result(pair, fmean(right)).to_json()
    evaluations.set_figures(session, row_id, metrics)
    if home is not None:
        _keep(home / "evaluations" / row_id, right)


def _keep(folder: Path, right: Sequence[float]) -> None:
    """Write predictions of which it is known how right each is."""
    folder.mkdir(parents=True)
    lines = [{"set": "dev", "id": str(i), "score": score} for i, score in enumerate(right)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "predictions.jsonl").write_text(text, encoding="utf-8")


def _teach(
    database: Database, pipeline_id: str, spec: PipelineSpec, failing: bool, home: Path | None
) -> None:
    """Write the second step of the chosen students: with ``failing`` the last one has failed."""
    assert spec.task_distill is not None
    with database.read() as session:
        members = pipelines.list_members(session, pipeline_id)
    chosen = [(m, m.distillation) for m in members if m.is_chosen]
    for number, (member, made) in enumerate(chosen, 1):
        for task in TASKS:
            assert made is not None
            assert made.student is not None
            name = f"{made.name}-for-{task}"
            asked = spec.task_distillation_of(task, made.student, spec.search, name).to_json()
            with database.write() as session:
                step = task_distillations.create_task_distillation(
                    session, asked, name=name, owner_kind="service", parent_id=pipeline_id
                )
                jobs.set_status(session, step.id, "running")
                if failing and number == len(chosen):
                    jobs.set_status(session, step.id, "failed", "the loss is no number at step 9")
                    continue
                task_distillations.set_task_facts(session, step.id, task_facts(task))
                for seed in SEEDS:
                    right = answers(member.architecture, task, seed, taught=True)
                    run = _run(task, spec.task_distill.method, seed, fmean(right))
                    task_distillations.add_run(session, step.id, run)
                    if home is not None:
                        of_home = Settings.from_environment({"KDNAS_HOME": str(home)})
                        _keep(task_run_folder(of_home, step.id, run.method, seed), right)
                jobs.set_status(session, step.id, "succeeded")


def _run(task: str, method: str, seed: int, score: float) -> TaskRun:
    metric = find_task(task).main_metric
    return TaskRun(
        method,
        seed,
        main=score,
        metrics={"dev": {metric: score}},
        held_out=score,
        chosen={
            "stage": 1,
            "epoch": 17,
            "batch_size": 32,
            "learning_rate": 5e-5,
            "beta": 0.5,
        },
        steps=2340,
        seconds=240.0,
    )


def answers(
    architecture: Architecture | None,
    task: str,
    seed: int,
    *,
    undistilled: bool = False,
    taught: bool = False,
) -> list[float]:
    """Say of each example whether a model gets it right, 1 or 0; each is as hard to all models."""
    count, best = TASKS[task]
    loss = 0.0 if architecture is None else landscape(architecture).relative
    loss = 1.0 if undistilled else loss
    loss *= 1 - BY_SECOND_STEP * taught
    ability = CHANCE + (best - CHANCE) * (1 - 0.35 * loss)
    chance, hardness = random.Random(f"{architecture} {task} {seed}"), random.Random(task)
    return [float(hardness.random() < ability + chance.gauss(0, 0.05)) for _ in range(count)]


def _result(pair: NewEvaluation, score: float) -> TaskResult:
    task = find_task(pair.task)
    is_official = task.name != "RTE"
    return TaskResult(
        task=task.name,
        suite="glue",
        seed=pair.seed,
        settings=published_settings(task),
        metrics={"dev": {task.main_metric: score}},
        main=score,
        seconds=214.0,
        steps=240,
        train_examples=2490,
        official_split=is_official,
        notes=() if is_official else ("not the official split: there is no training part",),
    )


def _date(database: Database, pipeline_id: str, began: datetime) -> None:
    """Let each distillation take forty minutes and each evaluation four, one after another.

    A student as it starts is there at once.
    """
    with database.write() as session:
        members = pipelines.list_members(session, pipeline_id)
        at = began
        rows: list[tuple[Any, timedelta]] = []
        for member in members:
            if member.distillation is not None:
                row = session.get_one(models.Distillation, member.distillation.id)
                rows.append((row, timedelta(minutes=40 * (member.role != "undistilled"))))
        scored: Sequence[str] = [one.id for m in members for one in m.evaluations]
        rows += [(session.get_one(models.Evaluation, one), timedelta(minutes=4)) for one in scored]
        taught = [one.id for m in members for one in m.task_distillations]
        rows += [
            (session.get_one(models.TaskDistillation, one), timedelta(minutes=12)) for one in taught
        ]
        for row, length in rows:
            row.created_at = began
            if row.started_at is not None:
                row.started_at, at = at, at + length
            if row.finished_at is not None:
                row.finished_at = at
        pipeline = session.get_one(models.Pipeline, pipeline_id)
        search = session.get_one(models.Search, pipeline.search_id)
        pipeline.created_at = pipeline.started_at = search.started_at or began
        if pipeline.finished_at is not None:
            pipeline.finished_at = at
