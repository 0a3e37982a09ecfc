"""The page of a pipeline's second step, on a pipeline that is made up."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas.db.engine import Database
from kdnas.db.repository import pipelines, task_distillations
from kdnas.evaluation.scoring.paired import compare_together
from kdnas.settings import Settings
from kdnas.testing.demo_data import add_search
from kdnas.testing.demo_pipelines import add_pipeline
from kdnas.testing.demo_tasks import task_facts

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def program(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("second_step_page")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path)})


@pytest.fixture
def made(database: Database, tmp_path: Path) -> list[str]:
    """Two pipelines of the same student, by two methods."""
    search = add_search(database, "search", episodes=2)
    return [
        add_pipeline(database, name, search, home=tmp_path, spec={"task_distill": method})
        for name, method in (("one", "universal-kd-il"), ("other", "none"))
    ]


def second_job(program: ModuleType, database: Database, settings: Settings, pipeline: str) -> Any:
    report = program.build_pipeline_report(database, settings, pipeline)
    named = next(one for one in report.second_steps if one.job is not None)
    return report, program.step_of(report, named.model, named.task)


def compared(program: ModuleType, database: Database, settings: Settings, made: list[str]) -> Any:
    """The report of the first pipeline, its second step, and all models beside that one's."""
    report, step = second_job(program, database, settings, made[0])
    _, other = second_job(program, database, settings, made[1])
    with database.read() as session:
        return report, step, program.gathered(session, settings, made[0], step, other.job)


def test_each_method_is_beside_the_teacher_and_beside_the_others(
    program: ModuleType, database: Database, settings: Settings, made: list[str]
) -> None:
    report, step, everyone = compared(program, database, settings, made)
    own = pytest.raises(SystemExit, match="universal-kd-il is the pipeline's own; leave it out of")
    with database.read() as session, own:
        program.gathered(session, settings, made[0], step, step.job)
    assert list(everyone) == ["teacher", "fine-tuned", "universal-kd-il", "none"]
    numbers = program.figures(everyone, step.task)
    assert [one["seeds"] for one in numbers.values()] == [[0, 1, 2]] * 4
    by = numbers["universal-kd-il"]
    centre, low, high = by["above"]["fine-tuned"]
    assert step.gained is not None
    assert centre == pytest.approx(100 * step.gained.value)
    assert low < centre < high
    over_examples = compare_together(
        everyone["universal-kd-il"].files, everyone["fine-tuned"].files, [step.task]
    )
    assert over_examples is not None
    least, most = over_examples.difference
    assert high - low > 100 * (most - least)  # the seeds are in it
    assert by["share"][0] == pytest.approx(100 * step.retained_after.value)
    text = program.page(report, step, numbers, ("kdnas launch", "A note."))
    lines = text.splitlines()
    (tuned,) = [row for row in lines if row.startswith("| fine-tuned |")]
    (row,) = [row for row in lines if row.startswith("| second step by `universal-kd-il` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == f"{by['mean']:.1f}"
    assert cells[2].count(",") == 2
    assert cells[3].startswith(f"{by['share'][0]:.1f} % (")
    assert cells[4] == f"{centre:+.1f} ({low:+.1f} to {high:+.1f})"
    assert cells[5].startswith(("+", "-"))
    assert tuned.split("|")[5].strip() == ""  # beside itself
    assert "## Pipeline one" in lines


def test_figures_are_of_the_seeds_that_all_have(
    program: ModuleType, database: Database, settings: Settings, made: list[str]
) -> None:
    _, step, everyone = compared(program, database, settings, made)
    fewer = {**everyone, "none": everyone["none"].on(frozenset([1]))}
    numbers = program.figures(fewer, step.task)
    assert [one["seeds"] for one in numbers.values()] == [[1]] * 4
    one, before = (
        next(r.main for r in everyone[name].results if r.seed == 1)
        for name in ("universal-kd-il", "fine-tuned")
    )
    assert numbers["universal-kd-il"]["above"]["fine-tuned"][0] == pytest.approx(
        100 * (one - before)
    )
    failed = {**everyone, "none": everyone["none"].on(frozenset())}
    with pytest.raises(SystemExit, match=r"no seed has succeeded for every model .*none: none"):
        program.figures(failed, step.task)


def test_controls_differ_in_the_method_alone(program: ModuleType) -> None:
    facts = task_facts()
    program.refuse_other_runs(facts, facts)
    slower = replace(facts, settings={**facts.settings, "learning_rate": 1e-9})
    with pytest.raises(SystemExit, match="learning_rate of the controls is 1e-09, and of"):
        program.refuse_other_runs(facts, slower)
    teacher = replace(facts, teacher={**facts.teacher, "fingerprint": "another"})
    with pytest.raises(SystemExit, match="teacher of the controls is 'another'"):
        program.refuse_other_runs(facts, teacher)


def test_a_step_is_named_where_there_are_several(
    program: ModuleType, database: Database, settings: Settings, made: list[str]
) -> None:
    report, step = second_job(program, database, settings, made[0])
    with pytest.raises(SystemExit, match=r"0 second steps are of mine on a task; name one with "):
        program.step_of(report, "mine", None)
    same = [one for one in report.second_steps if one.job and one.model == step.model]
    assert len(same) == 2
    with pytest.raises(SystemExit, match="2 second steps are of"):
        program.step_of(report, step.model, None)
    with database.read() as session:
        members = pipelines.list_members(session, made[0])
        jobs = [job.id for member in members for job in member.task_distillations]
        assert step.job in jobs
        assert task_distillations.task_facts(session, step.job) is not None
