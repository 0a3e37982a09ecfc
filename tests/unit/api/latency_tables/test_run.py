"""One build of a latency table for the service: done, refused, stopped and gone on with."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from api.jobs import lease
from api.jobs.work import do_job
from api.latency_tables import run as latency_run
from kdnas.db.engine import Database
from kdnas.db.models import LatencyBuild
from kdnas.db.queue import claims, leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import apply_action
from kdnas.db.repository import jobs
from kdnas.errors import SpecError, TeacherError
from kdnas.models.teacher import TeacherHandle
from kdnas.reach import Reach
from kdnas.records import SearchStatus
from kdnas.settings import Settings
from kdnas.specs.parts import TeacherSpec
from kdnas.store import Store
from kdnas.testing.tiny_teacher import make_tiny_teacher

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

AXES = {"layers": [1, 2], "heads": [2], "hidden": [24], "intermediate": [48]}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_teacher(tmp_path_factory.mktemp("teacher"))


class Place:
    """A database with a build in it; a claim is what a coordinator does."""

    def __init__(self, database: Database, teacher: Path, home: Path) -> None:
        self.database = database
        self.settings = Settings.from_environment({"KDNAS_HOME": str(home)})
        self.teacher = teacher

    def queue(self, length: int = 8) -> str:
        spec = {
            "teacher": str(self.teacher),
            "latency": {"length": length, "budget_seconds": 1},
            "space": {"kind": "custom", "axes": AXES},
        }
        with self.database.write() as session:
            return jobs.add_job(session, LatencyBuild, spec, stem="latency").id

    def run(self, build_id: str, should_stop: Callable[[], bool] = lambda: False) -> SearchStatus:
        owner = LeaseOwner.of_this_process("service")
        with self.database.write() as session:
            claim = claims.claim_next(session, ["latency_build"], owner, 60)
        assert claim is not None
        assert claim.job_id == build_id
        return do_job(
            build_id,
            self.database,
            self.settings,
            latency_run.run_in,
            claim=owner.token,
            should_stop=should_stop,
            stopped_status="running",
        )

    def row(self, build_id: str) -> LatencyBuild:
        with self.database.read() as session:
            assert leases.holder(session, LatencyBuild, build_id) is None
            return jobs.get_job(session, build_id, LatencyBuild)


@pytest.fixture
def place(database: Database, teacher: Path, tmp_path: Path) -> Place:
    return Place(database, teacher, tmp_path / "home")


def test_a_cancelled_build_stops(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.02)
    build_id = place.queue()

    def cancel_and_wait() -> bool:
        with place.database.write() as session:
            if jobs.get_job(session, build_id, LatencyBuild).status == "running":
                apply_action(session, build_id, "cancel")
        time.sleep(0.5)  # the watcher sees it
        return False

    assert place.run(build_id, cancel_and_wait) == "cancelled"
    record = place.row(build_id)
    assert (record.profile_id, record.error) == (None, None)


@pytest.mark.parametrize("fails", [False, True])
def test_a_build_that_is_cancelled_at_its_last_moment_stays_so(
    place: Place, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The table is there already, or the teacher is not, before anybody looks at the row again."""
    monkeypatch.setattr(lease, "WATCH_SECONDS", 60.0)
    place.run(place.queue())
    build_id, prepare = place.queue(), latency_run.prepare_teacher

    def cancel_first(spec: TeacherSpec, store: Store, reach: Reach) -> TeacherHandle:
        with place.database.write() as session:
            apply_action(session, build_id, "cancel")
        if fails:
            raise TeacherError("it is not there any more")
        return prepare(spec, store, reach)

    monkeypatch.setattr(latency_run, "prepare_teacher", cancel_first)
    if fails:
        with pytest.raises(TeacherError):
            place.run(build_id)
    else:
        assert place.run(build_id) == "cancelled"
    record = place.row(build_id)
    assert (record.status, record.profile_id, record.error) == ("cancelled", None, None)


@pytest.mark.databases("sqlite", "postgresql")
def test_a_drained_build_is_gone_on_with(place: Place) -> None:
    build_id = place.queue()
    assert place.run(build_id, lambda: True) == "running"
    assert place.row(build_id).profile_id is None
    assert place.run(build_id) == "succeeded"
    done = place.row(build_id)
    assert done.done == done.total == 100
    assert done.profile_id is not None
    again = place.queue()
    assert place.run(again) == "succeeded"
    assert place.row(again).profile_id == done.profile_id


def test_a_length_without_positions_fails_with_the_sentence(place: Place) -> None:
    build_id = place.queue(length=65)
    with pytest.raises(SpecError, match=r"latency.length \(65\)"):
        place.run(build_id)
    record = place.row(build_id)
    assert record.status == "failed"
    assert "latency.length (65) is above" in str(record.error)
