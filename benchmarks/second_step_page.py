"""One task, from a teacher to a student for it: what the second step brings, and what of it is due.

    kdnas launch --name one-task --tasks STS-B --task-distill universal-kd-il --config one.yaml …
    kdnas task-distill --name controls --student STUDENT --method none,vanilla-kd …
    python benchmarks/second_step_page.py --pipeline one-task --controls controls \
        --command "kdnas launch …" --output docs/results/second_step

The controls start from the student of the pipeline with the settings of its second step, so that
nothing differs but the method: ``none`` trains as long without a teacher. Both lie in
``KDNAS_HOME``, where the predictions are as well.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline_study import without_folders
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
from kdnas.evaluation.scoring.paired import Files, compare_together
from kdnas.settings import Settings

TITLE = "# One task, from a teacher to a student for it"


@dataclass(frozen=True)
class Scored:
    """A model over the seeds of a task.

    Attributes:
        results: a seed each.
        files: predictions of them.
    """

    results: tuple[TaskResult, ...]
    files: Files

    @property
    def mean(self) -> float:
        """Of the scores, in per cent."""
        return 100 * sum(result.main for result in self.results) / len(self.results)


def runs_of(session: Session, settings: Settings, job: str, suite: str) -> dict[str, Scored]:
    """Method → what its runs in a job have come to.

    Args:
        session: of any transaction.
        settings: say where predictions lie.
        job: id of distillations for a task.
        suite: of the task.
    """
    facts = task_distillations.task_facts(session, job)
    assert facts is not None
    runs = task_distillations.task_runs(session, job)
    found = {}
    for method in dict.fromkeys(run.method for run in runs):
        own = run_results(facts, [run for run in runs if run.method == method], suite)
        found[method] = Scored(own, run_prediction_files(job, method, own, settings))
    return found


def fine_tuned(session: Session, settings: Settings, member: MemberRecord, task: str) -> Scored:
    """What a model of a pipeline has scored on a task when it was fine-tuned."""
    records = [one for one in member.evaluations if one.task == task]
    return Scored(task_results(records), prediction_files(session, records, settings))


def line(name: str, one: Scored, teacher: Scored, others: Mapping[str, Scored], task: str) -> str:
    """A row of the table: a model beside its teacher, and beside others."""
    together = compare_together(one.files, teacher.files, [task])
    share = "" if together is None or together.share is None else _ends(together.share, "")
    cells = [f"{one.mean:.1f}", f"{100 * one.mean / teacher.mean:.1f} %{share}"]
    for other in others.values():
        beside = None if other is one else compare_together(one.files, other.files, [task])
        points = one.mean - other.mean
        cells.append("" if beside is None else f"{points:+.1f}{_ends(beside.difference, '+')}")
    return f"| {name} | {' | '.join(cells)} |"


def _ends(ends: tuple[float, float], sign: str) -> str:
    low, high = (f"{100 * end:{sign}.1f}" for end in ends)
    return f" ({low} to {high})"


def page(
    report: PipelineReport,
    step: SecondStep,
    teacher: Scored,
    before: Scored,
    after: Mapping[str, Scored],
    told: tuple[str, str],
) -> str:
    """The page.

    Args:
        report: of the pipeline.
        step: what its second step has come to.
        teacher: fine-tuned as all models are.
        before: the student, fine-tuned likewise.
        after: method → the student after a second step by it, that of the pipeline first.
        told: the command, and what else is to be known.
    """
    command, note = told
    first, *controls = after
    others = {"fine-tuned": before, **{method: after[method] for method in controls}}
    heads = " | ".join(["to it fine-tuned", *(f"to `{method}`" for method in controls)])
    lines = [
        TITLE,
        "",
        "```",
        command,
        "```",
        "",
        *([note, ""] if note else []),
        f"Of the student that the search chose, `{step.model}`, on {step.task}, "
        f"{len(before.results)} seeds. Beside the second step of the pipeline, `{first}`, the same "
        "student with the same settings by other methods: `none` trains as long without a "
        "teacher. In brackets 95 % intervals over the examples (paired bootstrap):",
        "",
        f"| {step.model} | score | of the teacher's | {heads} |",
        "|---" * (3 + len(others)) + "|",
        f"| teacher, fine-tuned | {teacher.mean:.1f} {'| ' * (1 + len(others))}|",
        line("fine-tuned", before, teacher, others, step.task),
        *(
            line(f"second step by `{method}`", one, teacher, others, step.task)
            for method, one in after.items()
        ),
        "",
        "## The report as it was written",
        "",
        re.sub(r"^#", "##", without_folders(as_markdown(report)), flags=re.MULTILINE).strip(),
    ]
    return "\n".join(lines) + "\n"


def is_teacher(member: MemberRecord) -> bool:
    """Whether it is the teacher itself."""
    return member.role == "teacher"


def has_second_step(member: MemberRecord) -> bool:
    """Whether its student was distilled once more."""
    return bool(member.task_distillations)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pipeline", required=True, help="id or name")
    parser.add_argument("--controls", required=True, help="id or name of task distillations")
    parser.add_argument("--command", required=True, help="what was run, for the head of the page")
    parser.add_argument("--note", default="", help="what else to know before reading it")
    parser.add_argument("--output", type=Path, help="path without ending for .md and .json")
    given = parser.parse_args()
    settings = Settings.from_environment()
    with open_database(settings) as database:
        report = build_pipeline_report(database, settings, given.pipeline)
        step = next(one for one in report.second_steps if one.job is not None)
        assert step.job is not None
        with database.read() as session:
            record = pipelines.get_pipeline(session, given.pipeline)
            suite = record.spec["evaluation"]["suite"]
            members = pipelines.list_members(session, record.id)
            teacher, before = (
                fine_tuned(session, settings, next(filter(which, members)), step.task)
                for which in (is_teacher, has_second_step)
            )
            controls = task_distillations.get_task_distillation(session, given.controls)
            after = runs_of(session, settings, step.job, suite)
            after |= runs_of(session, settings, controls.id, suite)
    text = page(report, step, teacher, before, after, (given.command, given.note))
    numbers = {
        "teacher": teacher.mean,
        "fine-tuned": before.mean,
        **{method: one.mean for method, one in after.items()},
    }
    publish(text, numbers, given.output)


if __name__ == "__main__":
    main()
