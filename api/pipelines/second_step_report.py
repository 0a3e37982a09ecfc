"""What the second step of a pipeline brings: students before and after it, task by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from api.inputs.methods import misfit
from api.inputs.results import evaluated_main, run_prediction_files, run_results
from api.pipelines.results import ENDINGS, Estimate, ModelLine, SecondStep
from api.pipelines.scores import ScoredModel, Scoring
from api.pipelines.second_step import tasks_of
from kdnas.db.engine import Session
from kdnas.db.records import MemberRecord, TaskDistillationRecord
from kdnas.db.repository import task_distillations
from kdnas.evaluation.data.splitting import HELD_OUT_TENTH
from kdnas.evaluation.reports.report import Cell
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import Kept
from kdnas.settings import Settings
from kdnas.specs.evaluation import OWN_SUITE
from kdnas.specs.pipeline import PipelineSpec
from kdnas.taskspecific.published import EPOCHS, EPOCHS_OF, FINETUNE_EPOCHS

LINE = "-for-tasks"
"""End of the id of a student's line after the second step; what comes before is its own."""


@dataclass(frozen=True)
class Taught:
    """A student after the second step.

    Attributes:
        member: whose student it is.
        jobs: its distillations, a task each.
        scored: what it scores on the tasks that are done.
        taught_by: task → score of the teacher that taught it.
        failed: what its runs failed of, a sentence each.
        cut: tasks for which a part of the training examples was kept to choose epochs by.
    """

    member: MemberRecord
    jobs: Sequence[TaskDistillationRecord]
    scored: ScoredModel
    taught_by: Mapping[str, float]
    failed: Sequence[str]
    cut: Sequence[str] = ()


def read_taught(
    session: Session, settings: Settings, spec: PipelineSpec, members: Iterable[MemberRecord]
) -> tuple[Taught, ...]:
    """Read what the second step has come to, of each member that has one.

    Args:
        session: of any transaction.
        settings: of this process; predictions are looked for below its ``KDNAS_HOME``.
        spec: of the pipeline.
        members: of the pipeline.
    """
    if spec.task_distill is None:
        return ()
    method = spec.task_distill.method
    found = []
    for member in (one for one in members if one.task_distillations):
        results: list[TaskResult] = []
        files: dict[tuple[str, int], Kept] = {}
        taught_by, failed, cut = {}, [], []
        for job in member.task_distillations:
            facts = task_distillations.task_facts(session, job.id)
            if facts is None:
                continue
            runs = task_distillations.task_runs(session, job.id)
            own = run_results(facts, runs, spec.evaluation.suite)
            results += own
            files |= run_prediction_files(job.id, method, own, settings)
            cut += [job.task] if facts.chosen_on in (HELD_OUT_TENTH, None) else []
            metrics = facts.teacher["metrics"]
            taught_by[job.task] = evaluated_main(facts, metrics, spec.evaluation.suite)
            failed += [
                f"{member.architecture}: {method} for {job.task} with seed {run.seed} failed: "
                f"{run.error}."
                for run in runs
                if run.error is not None
            ]
        name = f"{member.architecture} + {method}"
        scored = ScoredModel(name, tuple(results), files)
        found.append(Taught(member, member.task_distillations, scored, taught_by, failed, cut))
    return tuple(found)


def with_taught(
    models: Sequence[ModelLine],
    taught: Sequence[Taught],
    scoring: Scoring,
    scores: Mapping[str, Mapping[str, Cell]],
    seeds: int,
) -> tuple[ModelLine, ...]:
    """Return the models with a line behind each student for the same after the second step.

    Args:
        models: of the pipeline.
        taught: what came of the second step.
        scoring: how models are compared.
        scores: model → column → score.
        seeds: of each task.
    """
    by_member = {one.member.id: one for one in taught}
    teacher = next((model.name for model in models if model.role == "teacher"), None)
    lines = []
    for model in models:
        lines.append(model)
        one = by_member.get(model.id)
        if one is None:
            continue
        name = one.scored.name
        starts = (m for m in models if m.role == "undistilled")
        start = next((m.name for m in starts if m.architecture == model.architecture), None)
        method = name.partition(" + ")[2]
        lines.append(
            replace(
                model,
                id=f"{model.id}{LINE}",
                name=name,
                role="task",
                reasons=(method,),
                held_out_loss=None,
                scores=scores.get(name, {}),
                score=scoring.score(name),
                retained=None if teacher is None else scoring.retained(name, teacher),
                gained=None if start is None else scoring.difference(name, start),
                distillation=None,
                num_evaluated=len(one.scored.results),
                num_evaluations=len(one.jobs) * seeds,
            )
        )
    return tuple(lines)


def second_steps(
    suite: str,
    models: Mapping[str, ScoredModel],
    teacher: str | None,
    taught: Sequence[Taught],
    scoring: Scoring,
) -> tuple[SecondStep, ...]:
    """Set each student before and after the second step side by side, task by task.

    Of several tasks their mean, by which models are compared, comes last.

    Args:
        suite: of the evaluation.
        models: member → its results.
        teacher: id of the teacher's member; None if it takes no part.
        taught: what came of the second step.
        scoring: how models are compared.
    """
    found = []
    for one in taught:
        before, after = models[one.member.id], one.scored
        above = None if teacher is None else models[teacher]
        named = None if above is None else above.name
        for job in one.jobs:
            sides = [side for side in (before, after, above) if side is not None]
            on_task = Scoring(suite, [side.on(job.task) for side in sides])
            step = _step(on_task, job.task, before.name, after.name, named)
            found.append(
                replace(
                    step,
                    job=job.id,
                    status=job.status,
                    taught_by=one.taught_by.get(job.task),
                    student=_output(job),
                )
            )
        if len(one.jobs) > 1 and scoring.score(after.name) is not None:
            found.append(_step(scoring, scoring.name, before.name, after.name, named))
    return tuple(found)


def _step(scoring: Scoring, task: str, before: str, after: str, teacher: str | None) -> SecondStep:
    gained = scoring.difference(after, before)
    return SecondStep(
        model=before,
        name=after,
        task=task,
        before=scoring.score(before),
        after=scoring.score(after),
        retained_before=None if teacher is None else scoring.retained(before, teacher),
        retained_after=None if teacher is None else scoring.retained(after, teacher),
        gained=gained,
        verdict="not known" if gained is None else gained.verdict,
    )


def _output(job: TaskDistillationRecord) -> str | None:
    """The folder of a student that is done."""
    return job.spec["output"] if job.status == "succeeded" else None


def second_step_findings(steps: Sequence[SecondStep]) -> Iterator[str]:
    """Say in a sentence of each student what the second step has brought it, all in all."""
    last = {step.model: step for step in steps}  # the mean, of several tasks
    alone = {step.model: sum(one.model == step.model for one in steps) == 1 for step in steps}
    for step in last.values():
        if step.before is None or step.after is None or step.gained is None:
            continue
        if step.job is not None and not alone[step.model]:
            continue  # no mean yet: some task is not done
        retained = ""
        if step.retained_before is not None and step.retained_after is not None:
            retained = (
                f" and retains {_share(step.retained_after)} of the teacher's instead of "
                f"{_share(step.retained_before)}"
            )
        interval = "" if step.gained.ends is None else f" ({step.gained.interval})"
        yield (
            f"Distilled once more for the task{'' if alone[step.model] else 's'}, {step.name} "
            f"scores {100 * step.after.mean:.1f} in {step.task} instead of "
            f"{100 * step.before.mean:.1f}{retained}: {100 * step.gained.value:+.1f} "
            f"points{interval}, {ENDINGS[step.verdict]}."
        )


def _share(share: Estimate) -> str:
    return share.as_share("95 % interval ")


def second_step_notes(
    spec: PipelineSpec,
    members: Sequence[MemberRecord],
    taught: Sequence[Taught],
    teacher_layers: int | None,
) -> Iterator[str]:
    """What a reader of the figures of the second step should know, a sentence each."""
    step = spec.task_distill
    if step is None:
        return
    left = ", ".join(task.name for task in tasks_of(spec)[1])
    if left:
        yield f"{left}: no class or number is learned there, so nothing was distilled for it."
    for member in members:
        if member.is_chosen and member.architecture is not None:
            why = misfit(step.method, member.architecture.layers, teacher_layers)
            if why is not None:
                yield f"{member.architecture} was not distilled for the tasks: {why}."
    for one in taught:
        yield from one.failed
    if not any(one.scored.results for one in taught):
        return
    plan = spec.evaluation
    if plan.early_stopping is not None:
        yield "The teacher that taught has learned to its last epoch, without early stopping."
    other = "" if step.method == "none" else ": the method none tells what that alone is worth"
    yield (
        "What the second step brings need not be its teacher's doing alone, since it is a training "
        f"of another length, rate and batch than the fine-tuning{other}."
    )
    if plan.grid is not None or plan.early_stopping is not None:
        return
    cut = {task: None for one in taught for task in one.cut}
    if cut:
        every = cut.keys() == {job.task for one in taught for job in one.jobs}
        yield (
            f"It learns from nine tenths of the training examples{'' if every else _of(cut)} and "
            "chooses its epoch by the rest; fine-tuning learns from all of them to its end."
        )


def _of(tasks: Iterable[str]) -> str:
    return f" of {', '.join(tasks)}"


def second_step_setup(spec: PipelineSpec) -> str:
    """Say how the second step is made; empty without one."""
    step = spec.task_distill
    if step is None:
        return ""
    tasks = tasks_of(spec)[0]
    longer = {} if step.epochs or spec.evaluation.suite == OWN_SUITE else EPOCHS_OF
    others = [f"{task.name} {longer[task.name]:g}" for task in tasks if task.name in longer]
    but_for = f" (of {', '.join(others)})" if others else ""
    source = "a teacher that has learned the task" if step.method != "none" else "the labels"
    first = f"{step.epochs or EPOCHS:g}{but_for} passes on {source}"
    second = f"{step.finetune_epochs or FINETUNE_EPOCHS:g} on the labels alone"
    most = step.max_steps or spec.evaluation.max_steps
    own = {"batch size": step.batch_size, "learning rate": step.learning_rate, "beta": step.beta}
    said = [
        f"{step.method} for {', '.join(task.name for task in tasks)}",
        f"{first} and {second}" + (f", at most {most} steps in each stage" if most else ""),
        *(f"{name} {value:g}" for name, value in own.items() if value is not None),
    ]
    return "; ".join(said)
