"""One task, from a teacher to a student for it: what the second step brings, and what of it is due.

    kdnas launch --name one-task --tasks STS-B --task-distill universal-kd-il --config one.yaml …
    kdnas task-distill --name controls --student STUDENT --method none,vanilla-kd …
    python benchmarks/second_step_page.py --pipeline one-task --controls controls \
        --command "kdnas launch …" --output docs/results/second_step

The controls start from the student of the pipeline with the settings and the teacher of its second
step, so that nothing differs but the method (which is looked at): ``none`` trains as long without a
teacher. Both lie in ``KDNAS_HOME``, where the predictions are as well.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pipeline_study import without_folders
from quality_page import interval
from study_files import publish

from api.inputs.results import prediction_files, run_prediction_files, run_results, task_results
from api.pipelines.report import build_pipeline_report
from api.pipelines.report_formats import as_markdown
from api.pipelines.results import PipelineReport, SecondStep
from kdnas.db.engine import Session
from kdnas.db.migrate import open_database
from kdnas.db.records import MemberRecord
from kdnas.db.repository import pipelines, task_distillations
from kdnas.evaluation.results import TaskResult
from kdnas.evaluation.scoring.paired import Files, draws_together
from kdnas.records import TaskFacts
from kdnas.settings import Settings

TITLE = "# One task, from a teacher to a student for it"
TEACHER, BEFORE = "teacher", "fine-tuned"

Interval = tuple[float, float, float]
"""A figure and the ends of its 95 % interval, in per cent or points."""


@dataclass(frozen=True)
class Scored:
    """A model over the seeds of a task.

    Attributes:
        results: a seed each, in the order of the seeds.
        files: predictions of them.
    """

    results: tuple[TaskResult, ...]
    files: Files

    @property
    def seeds(self) -> frozenset[int]:
        """That have come to something."""
        return frozenset(result.seed for result in self.results)

    @property
    def scores(self) -> list[float]:
        """A seed each, as fractions."""
        return [result.main for result in self.results]

    def on(self, seeds: frozenset[int]) -> Scored:
        """The same of some of its seeds."""
        kept = sorted((r for r in self.results if r.seed in seeds), key=lambda r: r.seed)
        files = {key: file for key, file in self.files.items() if key[1] in seeds}
        return Scored(tuple(kept), files)


def on_shared_seeds(everyone: Mapping[str, Scored]) -> dict[str, Scored]:
    """Cut all models to the seeds that all of them have, so that every figure is of the same.

    A seed whose predictions are not here counts as one that is lacking.

    Raises:
        SystemExit: there are none.
    """
    seeds = [one.seeds & {seed for _, seed in one.files} for one in everyone.values()]
    shared = frozenset.intersection(*seeds)
    if not shared:
        has = "; ".join(f"{name}: {sorted(one.seeds) or 'none'}" for name, one in everyone.items())
        raise SystemExit(
            f"no seed has succeeded for every model ({has}); run those that are lacking"
        )
    return {name: one.on(shared) for name, one in everyone.items()}


def difference(one: Scored, other: Scored, task: str) -> Interval | None:
    """By how many points one is above another, seed by seed and on the same examples.

    The interval has in it which examples there are and how the seeds turned out.
    """
    draws = draws_together(one.files, other.files, [task])
    if draws is None:
        return None
    apart = [a - b for a, b in zip(one.scores, other.scores, strict=True)]
    centre = fmean(apart)
    return 100 * centre, *interval(centre, draws[:, 0] - draws[:, 1], apart)


def share(one: Scored, teacher: Scored, task: str) -> Interval | None:
    """How much of the teacher's score one has; None also where that may be 0."""
    draws = draws_together(one.files, teacher.files, [task])
    if draws is None or (draws[:, 1] <= 0).any() or min(teacher.scores) <= 0:
        return None
    parts = [a / b for a, b in zip(one.scores, teacher.scores, strict=True)]
    centre = fmean(one.scores) / fmean(teacher.scores)
    return 100 * centre, *interval(centre, draws[:, 0] / draws[:, 1], parts)


def refuse_other_runs(mine: TaskFacts, controls: TaskFacts) -> None:
    """Refuse controls that differ in more than the method.

    Raises:
        SystemExit: they do.
    """
    sides = [
        {
            "task": one.task,
            "data": one.data,
            "teacher": one.teacher["fingerprint"],
            "student": one.student.get("fingerprint"),
            **one.settings,
        }
        for one in (mine, controls)
    ]
    for key in sorted(sides[0].keys() | sides[1].keys()):
        here, there = (side.get(key) for side in sides)
        if here != there:
            raise SystemExit(
                f"{key} of the controls is {there!r}, and of the second step {here!r}; distil them "
                "with the pipeline's settings"
            )


def step_of(report: PipelineReport, model: str | None, task: str | None) -> SecondStep:
    """The second step of a model on a task: of what the report recommends, unless one is named.

    Raises:
        SystemExit: there is none, or there are several.
    """
    name = model or (report.picks[0].name if report.picks else None)
    steps = [one for one in report.second_steps if one.job is not None]
    found = [one for one in steps if one.model == name and task in (None, one.task)]
    if len(found) != 1:
        there = ", ".join(f"{one.model} on {one.task}" for one in steps) or "none"
        raise SystemExit(
            f"{len(found)} second steps are of {name} on {task or 'a task'}; name one with --model "
            f"and --task of: {there}"
        )
    return found[0]


def runs_of(session: Session, settings: Settings, job: str, suite: str) -> dict[str, Scored]:
    """Method → what its runs in a job have come to.

    Args:
        session: of any transaction.
        settings: say where predictions lie.
        job: id of distillations for a task.
        suite: of the task.
    """
    facts = facts_of(session, job)
    runs = task_distillations.task_runs(session, job)
    found = {}
    for method in dict.fromkeys(run.method for run in runs):
        own = run_results(facts, [run for run in runs if run.method == method], suite)
        found[method] = Scored(own, run_prediction_files(job, method, own, settings))
    return found


def facts_of(session: Session, job: str) -> TaskFacts:
    """What preparing a job has found out.

    Raises:
        SystemExit: it has not been prepared yet.
    """
    facts = task_distillations.task_facts(session, job)
    if facts is None:
        raise SystemExit(f"task distillation {job} has not begun; resume it")
    return facts


def fine_tuned(session: Session, settings: Settings, member: MemberRecord, task: str) -> Scored:
    """What a model of a pipeline has scored on a task when it was fine-tuned."""
    records = [one for one in member.evaluations if one.task == task]
    return Scored(task_results(records), prediction_files(session, records, settings))


def figures(everyone: Mapping[str, Scored], task: str) -> dict[str, dict[str, Any]]:
    """All numbers of the page.

    Args:
        everyone: the teacher, the student fine-tuned, and the methods, that of the pipeline first.
        task: its name.

    Returns:
        Model → its ``seeds`` and ``scores``, ``mean``, what it has of the teacher's (``share``),
        and ``above`` each other model but the teacher, with intervals; None where there is none.
    """
    models = on_shared_seeds(everyone)
    teacher = models[TEACHER]
    return {
        name: {
            "seeds": sorted(one.seeds),
            "scores": [100 * score for score in one.scores],
            "mean": 100 * fmean(one.scores),
            "share": None if name == TEACHER else share(one, teacher, task),
            "above": {
                other: difference(one, beside, task)
                for other, beside in models.items()
                if TEACHER not in (name, other) and name != other
            },
        }
        for name, one in models.items()
    }


def line(name: str, one: Mapping[str, Any], others: list[str]) -> str:
    """A row of the table: a model beside its teacher, and beside others."""
    spread = ", ".join(f"{score:.1f}" for score in one["scores"])
    cells = [f"{one['mean']:.1f}", spread, _written(one["share"], "", " %")]
    cells += [_written(one["above"].get(other), "+") for other in others]
    return f"| {name} | {' | '.join(cells)} |"


def _written(found: Interval | None, sign: str, unit: str = "") -> str:
    if found is None:
        return ""
    centre, low, high = (f"{end:{sign}.1f}" for end in found)
    return f"{centre}{unit} ({low} to {high})"


def page(
    report: PipelineReport,
    step: SecondStep,
    numbers: Mapping[str, Mapping[str, Any]],
    told: tuple[str, str],
) -> str:
    """The page.

    Args:
        report: of the pipeline.
        step: what its second step has come to.
        numbers: see :func:`figures`.
        told: the command, and what else is to be known.
    """
    command, note = told
    first, *controls = (name for name in numbers if name not in (TEACHER, BEFORE))
    others = [BEFORE, *controls]
    heads = " | ".join(["to it fine-tuned", *(f"to `{method}`" for method in controls)])
    seeds = numbers[BEFORE]["seeds"]
    over = "over examples and seeds" if len(seeds) > 1 else "over the examples alone, of one seed"
    lines = [
        TITLE,
        "",
        "```",
        command,
        "```",
        "",
        *([note, ""] if note else []),
        f"Of the student `{step.model}`, on {step.task}, seeds {', '.join(map(str, seeds))}. "
        f"Beside the second step of the pipeline, `{first}`, the same student with the same "
        "settings and the same teacher by other methods: `none` trains as long without a teacher. "
        f"In brackets 95 % intervals {over}; another teacher, or another student of the search, "
        "is in none of them:",
        "",
        f"| {step.model} | score | by seed | of the teacher's | {heads} |",
        "|---" * (4 + len(others)) + "|",
        line("teacher, fine-tuned", numbers[TEACHER], others),
        line("fine-tuned", numbers[BEFORE], others),
        *(
            line(f"second step by `{method}`", numbers[method], others)
            for method in (first, *controls)
        ),
        "",
        "## The report as it was written",
        "",
        "Its intervals are over the examples alone, or over the seeds alone where it says so.",
        "",
        re.sub(r"^#", "##", without_folders(as_markdown(report)), flags=re.MULTILINE).strip(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", required=True, help="id or name")
    parser.add_argument("--controls", required=True, help="id or name of task distillations")
    parser.add_argument("--command", required=True, help="what was run, for the head of the page")
    parser.add_argument("--note", default="", help="what else to know before reading it")
    parser.add_argument("--model", help="student; the one that the report recommends")
    parser.add_argument("--task", help="its name, where the second step was for several")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    given = parser.parse_args()
    settings = Settings.from_environment()
    with open_database(settings) as database:
        report = build_pipeline_report(database, settings, given.pipeline)
        step = step_of(report, given.model, given.task)
        assert step.job is not None
        with database.read() as session:
            everyone = gathered(session, settings, given.pipeline, step, given.controls)
    numbers = figures(everyone, step.task)
    publish(page(report, step, numbers, (given.command, given.note)), numbers, given.output)


def gathered(
    session: Session, settings: Settings, pipeline: str, step: SecondStep, controls: str
) -> dict[str, Scored]:
    """All models of the page, the pipeline's method before the controls.

    Args:
        session: of any transaction.
        settings: say where predictions lie.
        pipeline: id or name.
        step: of its student.
        controls: id or name of task distillations of the same student.

    Raises:
        SystemExit: the controls are others, or of the pipeline's own method, or nothing is done.
    """
    assert step.job is not None
    record = pipelines.get_pipeline(session, pipeline)
    suite = record.spec["evaluation"]["suite"]
    members = pipelines.list_members(session, record.id)
    teacher = next(one for one in members if one.role == "teacher")
    student = next(m for m in members if step.job in [job.id for job in m.task_distillations])
    beside = task_distillations.get_task_distillation(session, controls)
    refuse_other_runs(facts_of(session, step.job), facts_of(session, beside.id))
    own, others = (runs_of(session, settings, job, suite) for job in (step.job, beside.id))
    if twice := own.keys() & others.keys():
        raise SystemExit(
            f"{', '.join(sorted(twice))} is the pipeline's own; leave it out of {controls}"
        )
    if not own:
        raise SystemExit(f"the second step of {step.model} has no runs yet; resume {pipeline}")
    return {
        TEACHER: fine_tuned(session, settings, teacher, step.task),
        BEFORE: fine_tuned(session, settings, student, step.task),
        **own,
        **others,
    }


if __name__ == "__main__":
    main()
