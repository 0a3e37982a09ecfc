"""The page of a pipeline's second step, on a pipeline that is made up."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kdnas.db.engine import Database
from kdnas.db.repository import pipelines
from kdnas.settings import Settings
from kdnas.testing.demo_data import add_search
from kdnas.testing.demo_pipelines import add_pipeline

pytestmark = pytest.mark.databases("sqlite")


def test_each_method_is_beside_the_teacher_and_beside_the_others(
    load: Callable[[str], ModuleType], database: Database, tmp_path: Path
) -> None:
    program = load("second_step_page")
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    search = add_search(database, "search", episodes=2)
    made = [
        add_pipeline(database, name, search, home=tmp_path, spec={"task_distill": method})
        for name, method in (("one", "universal-kd-il"), ("other", "none"))
    ]
    report = program.build_pipeline_report(database, settings, made[0])
    step = next(one for one in report.second_steps if one.job is not None)
    with database.read() as session:
        members = pipelines.list_members(session, made[0])
        teacher, before = (
            program.fine_tuned(session, settings, next(filter(which, members)), step.task)
            for which in (program.is_teacher, program.has_second_step)
        )
        (other, *_) = filter(program.has_second_step, pipelines.list_members(session, made[1]))
        (job,) = [one.id for one in other.task_distillations if one.task == step.task]
        after = program.runs_of(session, settings, step.job, "glue")
        after |= program.runs_of(session, settings, job, "glue")
    assert list(after) == ["universal-kd-il", "none"]
    assert [len(one.results) for one in (teacher, before, *after.values())] == [3] * 4
    text = program.page(report, step, teacher, before, after, ("kdnas launch", "A note."))
    lines = text.splitlines()
    (tuned,) = [row for row in lines if row.startswith("| fine-tuned |")]
    (by,) = [row for row in lines if row.startswith("| second step by `universal-kd-il` |")]
    share = step.retained_after
    assert share is not None
    cells = [cell.strip() for cell in by.strip("|").split("|")]
    assert cells[1] == f"{after['universal-kd-il'].mean:.1f}"
    assert cells[2] == share.as_share()  # as the report has it, by the same bootstrap
    assert step.gained is not None
    assert cells[3] == step.gained.as_difference
    assert cells[4].startswith(("+", "-"))
    assert tuned.split("|")[4].strip() == ""  # beside itself
    assert "## Pipeline one" in lines
