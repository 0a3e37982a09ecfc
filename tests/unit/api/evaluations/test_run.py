"""One evaluation of the service: done, looked up, stopped, gone on with, and failed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.evaluations import run as evaluation_run
from api.evaluations.command import run_evaluation
from api.evaluations.kind import KIND
from api.evaluations.prepare import PreparedEvaluation, prepare_evaluation
from api.evaluations.run import run_in
from api.jobs import runner
from api.jobs.files import evaluation_checkpoints, evaluation_folder
from api.jobs.work import do_job
from kdnas.db.engine import Database
from kdnas.db.models import Evaluation, Grid
from kdnas.db.queue import claims, leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import Action, apply_action
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations, events, grids
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.errors import TaskDataError
from kdnas.evaluation.finetuning.training import FinetuneProgress
from kdnas.latency.device_lock import measuring_lock
from kdnas.reach import Reach
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.store import Store
from kdnas.testing.tiny_tasks import WORDS, write_sst2
from kdnas.testing.tiny_teacher import make_tiny_teacher

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

GRID = {"learning_rates": [1e-5, 1e-3], "epochs": [1, 2]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_tiny_teacher(folder, words=WORDS)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sst2(tmp_path_factory.mktemp("glue"))


class Place:
    """A database, a model and data; a claim is what a coordinator does."""

    def __init__(self, database: Database, settings: Settings, model: Path, data: Path) -> None:
        self.database, self.settings = database, settings
        self.model, self.data = model, data

    def spec(self, **changes: Any) -> EvaluationSpec:
        request = {
            "model": str(self.model),
            "suite": "glue",
            "tasks": ["SST-2"],
            "data_dir": str(self.data),
            "seeds": [0],
            "max_steps": 4,
            "batch_size": 8,
            "device": "cpu",
            "dtype": "float32",
        }
        return EvaluationSpec.read(request | changes, "test")

    def queue(self, **changes: Any) -> str:
        spec = self.spec(**changes)
        pair = NewEvaluation("glue", "SST-2", spec.seeds[0], spec.to_json())
        with self.database.write() as session:
            (row_id,) = evaluations.create_evaluations(session, [pair], model=spec.model.ref)
        return row_id

    def run(
        self,
        row_id: str,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[FinetuneProgress], None] = lambda _: None,
    ) -> SearchStatus:
        with self.database.write() as session:
            owner = LeaseOwner.of_this_process("service")
            claim = claims.claim_next(session, ["evaluation"], owner, 60)
        assert claim is not None
        assert claim.job_id == row_id
        return do_job(
            row_id,
            self.database,
            self.settings,
            lambda context: run_in(context, on_progress),
            claim=owner.token,
            should_stop=should_stop,
            stopped_status="running",
            clean_up=KIND.clean_up,
        )

    def act(self, row_id: str, action: Action) -> None:
        with self.database.write() as session:
            apply_action(session, row_id, action)

    def row(self, row_id: str) -> EvaluationRecord:
        with self.database.read() as session:
            assert leases.holder(session, Evaluation, row_id) is None
            return evaluations.get_evaluation(session, row_id)

    def told(self, kind: str) -> list[Any]:
        with self.database.read() as session:
            found = events.events_since(session)
        return [event.payload for event in found if event.type == kind]


@pytest.fixture
def prepared_grid(place: Place) -> str:
    """Key of the grid that an evaluation with a grid tries."""
    prepared = prepare_evaluation(place.spec(grid=GRID))
    return prepared.tasks[0].grid_key(prepared.model)


@pytest.fixture
def place(database: Database, model: Path, data: Path, tmp_path: Path) -> Place:
    roots = f"{model.parent}:{data}"
    settings = Settings.from_environment(
        {"KDNAS_HOME": str(tmp_path / "home"), "KDNAS_DATA_ROOTS": roots}
    )
    return Place(database, settings, model, data)


def test_what_is_known_is_not_trained_again(place: Place) -> None:
    first = place.queue()
    assert place.run(first) == "succeeded"
    done = place.row(first)
    assert (done.metrics["steps"], done.share, done.error) == (4, 1.0, None)
    assert set(done.resolved or {}) == {"key", "model", "variant", "data", "settings", "method"}
    assert (evaluation_folder(place.settings, first) / "predictions.jsonl").is_file()
    assert not evaluation_checkpoints(place.settings, first).exists()
    phases = [payload["phase"] for payload in place.told("evaluation_progress")]
    assert list(dict.fromkeys(phases)) == ["reading data", "training", "dev"]
    assert [payload["status"] for payload in place.told("evaluation_status")] == [
        "running",
        "succeeded",
    ]
    again = place.queue()
    assert place.run(again) == "succeeded"
    assert place.row(again).metrics == done.metrics
    assert not evaluation_folder(place.settings, again).exists()
    other = place.queue(seeds=[1])
    assert place.run(other) == "succeeded"
    assert place.row(other).metrics["seed"] == 1


def test_what_was_stopped_goes_on_to_the_same_figures(place: Place) -> None:
    whole = place.queue()
    place.run(whole)
    with place.database.write() as session:  # so that it is not found again
        row = session.get_one(Evaluation, whole)
        row.resolved = {**(row.resolved or {}), "key": "another"}
    row_id = place.queue()
    asked = iter(range(1000))
    assert place.run(row_id, lambda: next(asked) > 4) == "running"
    assert list(evaluation_checkpoints(place.settings, row_id).iterdir())
    assert place.run(row_id) == "succeeded"
    assert place.row(row_id).metrics["metrics"] == place.row(whole).metrics["metrics"]


def test_what_has_changed_since_it_was_stopped_is_learned_anew(
    place: Place, tmp_path: Path
) -> None:
    place.data = write_sst2(tmp_path / "changing")
    row_id = place.queue()
    asked = iter(range(1000))
    assert place.run(row_id, lambda: next(asked) > 4) == "running"
    (train,) = place.data.rglob("train.tsv")
    train.write_text("".join(reversed(train.read_text().splitlines(keepends=True)[1:])))
    header = "sentence\tlabel\n"
    train.write_text(header + train.read_text())
    steps: list[int] = []
    told = lambda one: steps.append(one.done) if one.phase == "training" else None  # noqa: E731
    assert place.run(row_id, on_progress=told) == "succeeded"
    assert steps == [1, 2, 3, 4]
    assert not evaluation_checkpoints(place.settings, row_id).exists()


@pytest.mark.parametrize(("action", "kept"), [("pause", True), ("cancel", False)])
def test_what_is_not_wanted_any_more_is_let_go_of(
    place: Place, monkeypatch: pytest.MonkeyPatch, action: Action, kept: bool
) -> None:
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 0.01)
    row_id = place.queue(max_steps=100_000, epochs=100_000.0)
    asked = iter(range(1_000_000))

    def act() -> bool:
        if next(asked) == 5:
            place.act(row_id, action)
        return False

    assert place.run(row_id, act) == ("paused" if kept else "cancelled")
    assert evaluation_checkpoints(place.settings, row_id).exists() == kept
    assert 0 <= place.row(row_id).share < 1


@pytest.mark.parametrize(("action", "after"), [("pause", "paused"), ("cancel", "cancelled")])
def test_what_is_known_is_not_written_to_what_was_stopped(
    place: Place, monkeypatch: pytest.MonkeyPatch, action: Action, after: str
) -> None:
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 60.0)
    place.run(place.queue())
    row_id = place.queue()

    def act_then(
        spec: EvaluationSpec,
        on_task: Callable[[str], None],
        store: Store | None,
        reach: Reach,
    ) -> PreparedEvaluation:
        prepared = prepare_evaluation(spec, on_task, store, reach)
        place.act(row_id, action)
        return prepared

    monkeypatch.setattr(evaluation_run, "prepare_evaluation", act_then)
    assert place.run(row_id) == after
    assert place.row(row_id).metrics == {}
    monkeypatch.undo()
    if action == "pause":
        place.act(row_id, "resume")
        assert place.run(row_id) == "succeeded"


@pytest.mark.parametrize(
    ("actions", "status"),
    [(["pause"], "paused"), (["pause_now", "resume"], "queued"), (["cancel"], "cancelled")],
)
def test_what_is_stopped_at_its_last_moment_stays_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, actions: list[Action], status: str
) -> None:
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 60.0)
    row_id = place.queue()
    acted: list[str] = []

    def act(progress: FinetuneProgress) -> None:
        if progress.phase == "dev" and not acted:
            for action in actions:
                place.act(row_id, action)
            acted.append(progress.phase)

    assert place.run(row_id, on_progress=act) == place.row(row_id).status == status
    assert place.row(row_id).metrics == {}
    if status != "cancelled":
        if status == "paused":
            place.act(row_id, "resume")
        assert place.run(row_id) == "succeeded"
        assert place.row(row_id).metrics["steps"] == 4
    assert not evaluation_checkpoints(place.settings, row_id).exists()


def test_a_pause_that_is_taken_back_before_it_is_seen_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.jobs.lease.WATCH_SECONDS", 60.0)
    row_id = place.queue()
    acted: list[str] = []

    def act(progress: FinetuneProgress) -> None:
        if not acted:
            acted.append(progress.phase)
            place.act(row_id, "pause")
            place.act(row_id, "resume")

    assert place.run(row_id, on_progress=act) == "succeeded"
    assert acted


@pytest.mark.parametrize(
    ("action", "after", "waits"), [(None, "running", True), ("pause", "paused", False)]
)
def test_what_the_command_line_stops_goes_back_to_the_service(
    place: Place, action: Action | None, after: str, waits: bool
) -> None:
    row_id = place.queue()
    asked = iter(range(1000))
    assert place.run(row_id, lambda: next(asked) > 4) == "running"
    if action is not None:
        place.act(row_id, action)
    prepared = prepare_evaluation(place.spec())
    again = iter(range(1000))
    assert run_evaluation(
        prepared, place.database, place.settings, should_stop=lambda: next(again) > 1
    ).stopped
    assert place.row(row_id).status == after
    with place.database.read() as session:
        assert [row.id for row in evaluations.list_evaluations(session)] == [row_id]
        assert [one.job_id for one in claims.waiting(session, ["evaluation"])] == [row_id] * waits
    (pair,) = run_evaluation(prepared, place.database, place.settings).finished
    assert (pair.record.id, pair.record.status) == (row_id, "succeeded")


@pytest.mark.databases("sqlite", "postgresql")
def test_one_that_waits_for_anothers_grid_is_left_for_later(
    place: Place, database_url: str, prepared_grid: str
) -> None:
    """It goes back to be tried again, and is no process that died."""
    row_id = place.queue(grid=GRID)
    with place.database.write() as session:
        grids.open_grid(session, prepared_grid, model="m", task="SST-2")
        leases.acquire(session, Grid, prepared_grid, LeaseOwner.of_this_process("service"), 60.0)
        owner = LeaseOwner.of_this_process("service", "claim")
        assert claims.claim_next(session, ["evaluation"], owner, 60)
    settings = replace(place.settings, database_url=database_url)
    assert runner.run(row_id, "claim", settings, lambda: False) == 75
    row = place.row(row_id)
    assert (row.status, row.error) == ("running", None)
    *_, last = place.told("evaluation_preparing")
    assert str(last["text"]).startswith("waiting for room: ")
    with place.database.read() as session:
        assert session.get_one(Evaluation, row_id).phase == "waiting for room"


@pytest.mark.databases("sqlite", "postgresql")
@pytest.mark.parametrize("has_key", [True, False])
def test_of_two_that_are_the_same_the_younger_one_waits(
    place: Place, database_url: str, has_key: bool
) -> None:
    older, younger = place.queue(), place.queue()
    prepared = prepare_evaluation(place.spec())
    other, own = (LeaseOwner.of_this_process("service") for _ in range(2))
    with place.database.write() as session:
        for owner, row_id in ((other, older), (own, younger)):
            claim = claims.claim_next(session, ["evaluation"], owner, 60)
            assert claim is not None
            assert claim.job_id == row_id
        if has_key:
            about = prepared.what_decides(prepared.tasks[0], 0)
            evaluations.note_prepared(session, older, about)
    settings = replace(place.settings, database_url=database_url)
    assert runner.run(younger, own.token, settings, lambda: False) == 75
    row = place.row(younger)
    assert (row.status, row.error) == ("running", None)
    assert runner.run(older, other.token, settings, lambda: False) == 0
    assert place.run(younger) == "succeeded"
    assert place.row(younger).metrics == place.row(older).metrics
    assert not evaluation_folder(place.settings, younger).exists()


def test_a_failure_says_why(place: Place, tmp_path: Path) -> None:
    row_id = place.queue(data_dir=str(tmp_path / "gone"))
    with pytest.raises(TaskDataError):
        place.run(row_id)
    row = place.row(row_id)
    assert row.status == "failed"
    assert "gone' is not there" in (row.error or "")


def test_it_says_for_whom_it_waits_and_stops_while_it_does(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))
    row_id = place.queue()
    told: list[FinetuneProgress] = []
    waited: list[str] = []

    def note(progress: FinetuneProgress) -> None:
        told.append(progress)
        waited.extend([progress.phase] if progress.waits else [])

    with measuring_lock():  # its note is of this process
        assert place.run(row_id, lambda: bool(waited), note) == "running"
    assert len(waited) == 1
    assert waited[0].startswith("waiting for a latency measurement on this machine to end: ")
    assert f"(process {os.getpid()}), since " in waited[0]
    assert place.told("evaluation_progress")[-1]["phase"] == waited[0]
    assert "training" not in [progress.phase for progress in told]
    assert place.run(row_id) == "succeeded"
