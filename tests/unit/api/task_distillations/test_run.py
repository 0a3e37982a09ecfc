"""Distillations for one task: whole, in pieces, with runs that fail, and what is left of them.

The work itself is made up here: what is tried is how it is put together and stored.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.jobs.files import task_run_folder
from api.task_distillations.report import task_report
from api.task_distillations.run import (
    TaskWatchers,
    create_task_distillation,
    run_stored_task_distillation,
)
from kdnas.db.engine import Database
from kdnas.db.models import TaskDistillation
from kdnas.db.queue.transitions import resume_here
from kdnas.db.repository import events, jobs, task_distillations
from kdnas.errors import (
    ConflictError,
    OutputError,
    SpecError,
    StoreError,
    TaskDataError,
    TrainingError,
)
from kdnas.evaluation.scoring.paired import PREDICTIONS_FILE
from kdnas.latency.device_lock import StillTakenError, measuring_lock
from kdnas.records import TaskRun
from kdnas.settings import Settings
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.testing.demo_tasks import task_facts, task_run
from kdnas.testing.job_rows import make_distilled
from kdnas.testing.task_work import TaskWork

# What is tried here is how work runs; that queries find the same is for the tests of the routes.
pytestmark = pytest.mark.databases("sqlite")

METHODS = ("none", "vanilla-kd")


class Place:
    """A database, a home and work that is made up."""

    def __init__(self, database: Database, home: Path, work: TaskWork) -> None:
        self.database, self.work, self.home = database, work, home
        self.settings = Settings.from_environment({"KDNAS_HOME": str(home)})
        self.data = home / "glue"
        (self.data / "RTE").mkdir(parents=True)
        for part in ("train", "dev"):
            (self.data / "RTE" / f"{part}.tsv").write_text("sentence1\tsentence2\tlabel\n")

    def create(self, **entries: Any) -> str:
        asked = {"task": "RTE", "data_dir": str(self.data), "methods": METHODS, "seeds": 2}
        spec = TaskDistillationSpec.read({**asked, **entries}, "task-distill")
        return create_task_distillation(spec, self.database, self.settings).id

    def run(self, job_id: str, **options: Any) -> str:
        return run_stored_task_distillation(job_id, self.database, self.settings, **options)

    def runs(self, job_id: str) -> list[TaskRun]:
        with self.database.read() as session:
            return task_distillations.task_runs(session, job_id)

    def folder(self, job_id: str, method: str, seed: int) -> Path:
        return task_run_folder(self.settings, job_id, method, seed)


@pytest.fixture
def place(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(database, tmp_path, TaskWork.installed(monkeypatch))


def test_what_a_run_would_go_on_with_stays_until_its_result_is_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed between the two comes to it again without a step."""
    job_id = place.create(methods=["none"], seeds=1)
    folder = place.folder(job_id, "none", 0)
    store = task_distillations.add_run

    def lost(*_: Any) -> None:
        assert (folder / "checkpoints").exists()
        raise StoreError("killed here")

    monkeypatch.setattr(task_distillations, "add_run", lost)
    with pytest.raises(StoreError):
        place.run(job_id)
    assert (folder / "checkpoints").exists()
    with place.database.write() as session:
        store(session, job_id, task_run("none", 0))  # and here another one, after that
        jobs.set_status(session, job_id, "queued")
    assert place.run(job_id) == "succeeded"
    assert place.work.begun == [("none", 0)]
    assert not (folder / "checkpoints").exists()


@pytest.mark.parametrize(
    ("students", "cuts"),
    [
        ({"student": "first-layers:2"}, False),
        ({"student": "2,12,384,384,gelu"}, True),
        ({"methods": ["takd"], "assistant": "2,12,384,384,gelu"}, True),
    ],
)
def test_nobody_measures_while_an_architecture_is_cut(
    students: dict[str, Any], cuts: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []

    def check(*_: Any) -> None:
        try:
            with measuring_lock(0):
                taken.append(False)
        except StillTakenError:
            taken.append(True)

    monkeypatch.setattr(place.work, "check_task", check)
    place.create(**students)
    assert taken == [cuts]


def test_every_method_is_done_with_a_seed_before_the_next_seed(place: Place) -> None:
    job_id, told = place.create(), []
    watchers = TaskWatchers(
        preparing=lambda progress: told.append(progress.phase),
        facts=lambda facts: told.append(facts.task),
        progress=lambda progress: told.append(progress.phase),
        run=lambda run: told.append((run.method, run.seed)),
    )
    assert place.run(job_id, watchers=watchers) == "succeeded"
    order = [(method, seed) for seed in (0, 1) for method in METHODS]
    assert place.work.begun == order
    assert told[:4] == [
        "fine-tuning the teacher",
        "RTE",
        "none seed 0: stage 1",
        ("none", 0),
    ]
    assert place.runs(job_id) == [task_run(method, seed) for method in METHODS for seed in (0, 1)]
    for method, seed in order:
        folder = place.folder(job_id, method, seed)
        assert sorted(path.name for path in folder.iterdir()) == ["model", PREDICTIONS_FILE]
    with place.database.read() as session:
        row = jobs.get_job(session, job_id, TaskDistillation)
        assert (row.done, row.total) == (4, 4)
        assert row.resolved is not None
        assert row.resolved["teacher"]["fingerprint"] == "made-up-teacher"
        assert (row.task, row.student) == ("RTE", "first-layers:3")
        assert task_distillations.task_facts(session, job_id) == task_facts()
        found = events.events_since(session, job_id=job_id)
        report = task_report(session, place.settings, job_id)
    types = [event.type.removeprefix("task_distillation_") for event in found]
    assert types[:2] == ["created", "status"]
    assert {"preparing", "warning", "progress", "run"} <= set(types)
    (first, *_) = [event for event in found if event.type == "task_distillation_run"]
    about = task_run("none", 0)
    assert first.payload == {
        "method": "none",
        "seed": 0,
        "main": about.main,
        "held_out": about.held_out,
        "error": None,
    }
    assert [row["num_succeeded"] for row in report["rows"]] == [2, 2]
    assert report["rows"][0]["student"] == str(
        place.folder(job_id, "none", report["rows"][0]["best_seed"]) / "model"
    )


def test_stopped_at_any_moment_it_goes_on_where_it_was(place: Place) -> None:
    job_id = place.create()
    asked = iter([False, False, True])
    assert place.run(job_id, should_stop=lambda: next(asked, False)) == "paused"
    assert place.runs(job_id) == []
    for done in (1, 1, 2, 2):  # after a run, and within one
        should_stop = partial(_has_begun, place.work, len(place.work.begun))
        assert place.run(job_id, should_stop=should_stop) == "paused"
        assert len(place.runs(job_id)) == done
        assert place.folder(job_id, *place.work.begun[-1]).is_dir()
    assert place.run(job_id) == "succeeded"
    assert len(place.runs(job_id)) == 4


def _has_begun(work: TaskWork, before: int) -> bool:
    return len(work.begun) > before


def test_killed_in_a_run_it_goes_on_with_what_is_not_stored(place: Place) -> None:
    job_id = place.create()

    def die(method: str, seed: int) -> None:
        if len(place.work.begun) == 3:
            raise KeyboardInterrupt

    place.work.before = die
    with pytest.raises(KeyboardInterrupt):
        place.run(job_id)
    with place.database.read() as session:
        assert jobs.get_job(session, job_id, TaskDistillation).progress_mark(session) == 2
    assert place.run(job_id) == "succeeded"
    assert place.work.begun == [
        ("none", 0),
        ("vanilla-kd", 0),
        *[("none", 1), ("none", 1)],
        ("vanilla-kd", 1),
    ]
    assert place.work.prepared == 2


def test_a_student_of_a_distillation_is_found_where_that_has_put_it(place: Place) -> None:
    """Also by the service, which otherwise stays below its data roots."""
    student = place.home / "elsewhere"
    student.mkdir()
    make_distilled(place.database, "small", student)
    job_id = place.create(student="distillation:small", methods=["none"], seeds=1)
    with place.database.read() as session:
        assert jobs.get_job(session, job_id, TaskDistillation).student == str(student)
    place.settings = replace(place.settings.for_service(), data_roots=(str(place.data),))
    assert place.run(job_id) == "succeeded"
    place.work.reached.require(student)


def test_it_says_that_it_waits_for_a_measurement_and_can_be_stopped(place: Place) -> None:
    job_id, told = place.create(methods=["none"], seeds=1), []
    watchers = TaskWatchers(preparing=lambda progress: told.append(progress.phase))
    with measuring_lock():
        ended = place.run(job_id, watchers=watchers, should_stop=lambda: bool(told))
    assert ended == "paused"
    (said,) = told
    assert said.startswith("waiting for a latency measurement on this machine to end: ")
    with place.database.read() as session:
        found = events.events_since(session, job_id=job_id)
    waits = [event.payload for event in found if event.type == "task_distillation_preparing"]
    assert waits == [{"text": said, "share": None}]
    assert place.run(job_id) == "succeeded"


def test_a_folder_is_for_one_job_until_that_is_over(place: Place) -> None:
    out = str(place.home / "out")
    job_id = place.create(output=out, name="first")
    with pytest.raises(ConflictError, match=r"task distillation 'first' \(queued\) is to write"):
        place.create(output=out)
    with place.database.write() as session:
        jobs.set_status(session, job_id, "cancelled")
    assert place.run(place.create(output=out)) == "succeeded"


def test_runs_beside_each_other_are_stored_together(place: Place) -> None:
    """Killed among them none is, so that all go on from one checkpoint; one that fails is left."""
    job_id, told = place.create(methods=["none", "pkd", "vanilla-kd"], seeds=1), []
    place.work.groups = [("none",), ("pkd", "vanilla-kd")]
    place.work.fails = {("pkd", 0)}

    def die(method: str, seed: int) -> None:
        if method == "vanilla-kd" and len(place.work.begun) == 3:
            raise KeyboardInterrupt

    place.work.before = die
    with pytest.raises(KeyboardInterrupt):
        place.run(job_id)
    assert [run.method for run in place.runs(job_id)] == ["none"]
    watchers = TaskWatchers(run=lambda run: told.append((run.method, run.error is None)))
    assert place.run(job_id, watchers=watchers) == "succeeded"
    assert told == [("pkd", False), ("vanilla-kd", True)]
    assert place.work.begun[1:] == [("pkd", 0), ("vanilla-kd", 0)] * 2
    assert not place.folder(job_id, "pkd", 0).exists()
    with place.database.read() as session:
        found = events.events_since(session, job_id=job_id)
    progress = [event for event in found if event.type == "task_distillation_progress"]
    assert progress[-1].payload["method"] == "pkd, vanilla-kd"


def test_runs_that_fail_are_left_out_and_tried_again(place: Place) -> None:
    job_id = place.create(output=str(place.home / "out"))
    place.work.fails = {("none", 0), ("vanilla-kd", 0), ("vanilla-kd", 1)}
    assert place.run(job_id) == "succeeded"
    failed = [(run.method, run.seed) for run in place.runs(job_id) if run.error is not None]
    assert failed == sorted(place.work.fails)
    assert not place.folder(job_id, "none", 0).exists()
    assert [path.name for path in (place.home / "out").iterdir()] == ["none"]
    place.work.begun.clear()
    place.work.fails = set()
    with place.database.write() as session:
        resume_here(session, job_id)
    assert place.run(job_id) == "succeeded"
    assert sorted(place.work.begun) == failed
    assert all(run.error is None for run in place.runs(job_id))
    assert sorted(path.name for path in (place.home / "out").iterdir()) == sorted(METHODS)


def test_if_nothing_comes_of_it_the_job_has_failed(place: Place) -> None:
    job_id = place.create()
    place.work.fails = {(method, seed) for method in METHODS for seed in (0, 1)}
    with pytest.raises(TrainingError, match=r"none of the 4 runs came to anything.*no number"):
        place.run(job_id)
    with place.database.read() as session:
        assert jobs.status_of(session, job_id) == "failed"


def test_the_best_student_of_each_method_is_copied(place: Place) -> None:
    several, one = place.home / "several", place.home / "one"
    many = place.create(output=str(several))
    alone = place.create(output=str(one), methods=["none"], seeds=3)
    assert place.run(many) == place.run(alone) == "succeeded"
    for job_id, method, target in (
        *((many, method, several / method) for method in METHODS),
        (alone, "none", one),
    ):
        runs = [run for run in place.runs(job_id) if run.method == method]
        best = max(runs, key=lambda run: run.held_out or 0.0)
        assert (target / "weights").read_text() == f"{method} {best.seed}"


def test_a_copy_that_was_killed_is_made_again_and_a_better_one_takes_its_place(
    place: Place,
) -> None:
    out = place.home / "out"
    job_id = place.create(output=str(out), methods=["none"])
    place.work.fails = {("none", 0)}
    assert place.run(job_id) == "succeeded"
    assert (out / "weights").read_text() == "none 1"
    with place.database.write() as session:
        resume_here(session, job_id)
    place.work.fails = set()
    assert place.run(job_id) == "succeeded"
    best = max(place.runs(job_id), key=lambda run: run.held_out or 0.0)
    assert (out / "weights").read_text() == f"none {best.seed}"


def test_what_else_is_in_the_output_is_refused_before_any_work(place: Place) -> None:
    out = place.home / "out"
    job_id = place.create(output=str(out), methods=["none"])
    out.mkdir()
    (out / "weights").write_text("somebody else's")
    with pytest.raises(OutputError, match="is not empty; empty it and go on"):
        place.run(job_id)
    assert place.work.prepared == 0
    with pytest.raises(OutputError, match="is not empty; name a new one with --output"):
        place.create(output=str(out), methods=["none"])
    assert (out / "weights").read_text() == "somebody else's"


def test_no_folder_is_made_before_there_is_a_student_for_it(place: Place) -> None:
    out = place.home / "deep" / "out"
    job_id = place.create(output=str(out))
    assert place.run(job_id, should_stop=lambda: bool(place.work.begun)) == "paused"
    assert not out.exists()
    assert place.run(job_id) == "succeeded"
    assert sorted(path.name for path in out.iterdir()) == sorted(METHODS)


def test_a_student_that_is_gone_is_told(place: Place) -> None:
    job_id = place.create(output=str(place.home / "out"), methods=["none"], seeds=1)

    def lose(run: TaskRun) -> None:
        model = place.folder(job_id, "none", 0) / "model"
        (model / "weights").unlink()
        model.rmdir()

    with pytest.raises(StoreError, match=r"student of none with seed 0 is not in .*start anew"):
        place.run(job_id, watchers=TaskWatchers(run=lose))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "other"}, "the data changed"),
        ({"teacher": {**task_facts().teacher, "fingerprint": "other"}}, "the teacher changed"),
        ({"student": {**task_facts().student, "fingerprint": "other"}}, "the student changed"),
        (
            {"student": {**task_facts().student, "assistant": {"fingerprint": "other"}}},
            "the assistant changed",
        ),
        ({"settings": {}, "data": "other"}, "the data and hyper-parameters changed"),
    ],
)
def test_others_than_when_it_began_are_refused(
    place: Place, changes: dict[str, Any], said: str
) -> None:
    job_id = place.create()
    assert place.run(job_id, should_stop=lambda: bool(place.work.begun)) == "paused"
    place.work.facts = replace(task_facts(), **changes)
    with pytest.raises(SpecError, match=f"cannot go on: since it began, {said}; start a new one"):
        place.run(job_id)


def test_what_a_model_is_called_does_not_count(place: Place) -> None:
    """The store may know the teacher by another name than the request."""
    job_id = place.create()
    assert place.run(job_id, should_stop=lambda: bool(place.work.begun)) == "paused"
    student = {**task_facts().student, "start": "the first 3 layers of something/else"}
    teacher = {**task_facts().teacher, "ref": "something/else"}
    place.work.facts = replace(task_facts(), student=student, teacher=teacher)
    assert place.run(job_id) == "succeeded"


def test_one_that_began_before_students_were_written_down_goes_on(place: Place) -> None:
    known = task_facts()
    new = ("fingerprint", "assistant")
    old = {name: value for name, value in known.student.items() if name not in new}
    place.work.facts = replace(known, student=old)
    job_id = place.create()
    assert place.run(job_id, should_stop=lambda: bool(place.work.begun)) == "paused"
    place.work.facts = known
    assert place.run(job_id) == "succeeded"


def test_what_is_cancelled_leaves_no_checkpoints(place: Place) -> None:
    job_id = place.create()
    watched = []

    def cancel(method: str, seed: int) -> None:
        if (method, seed) == ("vanilla-kd", 0):
            with place.database.write() as session:
                jobs.set_status(session, job_id, "cancelled")
            watched.append(place.folder(job_id, method, seed))

    place.work.before = cancel
    unwanted = iter([False] * 4)
    status = place.run(job_id, should_stop=lambda: next(unwanted, bool(watched)))
    assert status == "cancelled"
    assert not watched[0].exists()
    assert place.folder(job_id, "none", 0).is_dir()


def test_a_request_without_data_is_stored_nowhere(place: Place) -> None:
    with pytest.raises(TaskDataError):
        place.create(task="CoLA")
    with place.database.read() as session:
        assert jobs.newest_jobs(session, TaskDistillation) == []
