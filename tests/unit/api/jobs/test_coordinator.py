"""The coordinator with real runners that are killed before they get far."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from api.jobs import coordinator as module
from api.jobs.children import child_environment
from api.jobs.coordinator import Coordinator, default_max_running
from api.jobs.registry import kinds
from kdnas.architecture import Architecture
from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.exploration import candidates
from kdnas.db.models import Search, WebhookDelivery
from kdnas.db.queue import coordinators, leases
from kdnas.db.queue.transitions import apply_action
from kdnas.db.records import NewDelivery
from kdnas.db.repository import (
    distillations,
    evaluations,
    events,
    jobs,
    searches,
    webhook_deliveries,
)
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.errors import DatabaseError
from kdnas.records import NewCandidate, Proposal, SearchRecord
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec

SMALL = Architecture.parse("3,4,192,384,gelu")
SPEC = {"teacher": {"ref": "/nowhere"}, "backend": {"name": "local"}}


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    environment = {"KDNAS_HOME": str(tmp_path), "KDNAS_DATABASE_URL": database_url}
    return Settings.from_environment(environment)


@pytest.fixture
def coordinator(settings: Settings, database: Database) -> Iterator[Coordinator]:
    made = Coordinator(settings, database, max_running=1)
    assert not made.alive
    made.start()
    yield made
    made.stop(5)
    assert not made.alive
    assert made.running == 0


def queue(database: Database, name: str) -> str:
    with database.write() as session:
        return searches.create_search(session, SPEC, name=name, owner_kind="service").id


def read(database: Database, search_id: str) -> SearchRecord:
    with database.read() as session:
        return searches.get_search(session, search_id)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def runner_pid(coordinator: Coordinator) -> int:
    wait_until(lambda: coordinator.running == 1)
    return coordinator._children[0].process.pid


def test_a_runner_that_dies_again_and_again_fails_its_search(
    database: Database, coordinator: Coordinator
) -> None:
    search_id = queue(database, "deadly")
    for _ in range(3):
        pid = runner_pid(coordinator)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: pid not in [c.process.pid for c in coordinator._children])
    wait_until(lambda: read(database, search_id).status == "failed")
    assert "died 3 times without any progress" in (read(database, search_id).error or "")
    assert "killed by signal 9" in (read(database, search_id).error or "")
    with database.read() as session:
        found = [e for e in events.events_since(session) if e.type == "search_interrupted"]
    assert [e.payload["deaths"] for e in found] == [1, 2, 3]
    assert coordinator.alive


def test_what_cannot_be_done_at_present_is_tried_again_after_a_pause(
    database: Database, coordinator: Coordinator
) -> None:
    """A runner whose pipe closes ends as one does that finds no database, and no room."""
    search_id = queue(database, "later")
    for pause in (1.0, 2.0):
        pid = runner_pid(coordinator)
        pipe = coordinator._children[0].process.stdin
        assert pipe is not None
        pipe.close()
        wait_until(lambda: coordinator.running == 0)
        until, seconds = coordinator._pauses._until[search_id]
        assert seconds == pause
        wait_until(lambda pid=pid: coordinator.running and runner_pid(coordinator) != pid)
        assert time.monotonic() >= until
    assert read(database, search_id).status == "running"
    with database.read() as session:
        assert "search_interrupted" not in [e.type for e in events.events_since(session)]


def test_stopping_frees_the_row_at_once_and_blames_nobody(
    settings: Settings, database: Database
) -> None:
    search_id = queue(database, "given-back")
    made = Coordinator(settings, database, max_running=1)
    made.start()
    runner_pid(made)
    made.stop(5)
    assert read(database, search_id).status == "running"
    with database.read() as session:
        assert leases.holder(session, Search, search_id) is None
        types = [e.type for e in events.events_since(session)]
    assert "search_interrupted" not in types


@pytest.mark.ray
def test_stopping_does_not_wait_for_a_cluster_to_start(
    settings: Settings, database: Database, ray_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runners at work are asked to end, and what would have used the cluster is given back."""
    monkeypatch.setenv("HOME", str(ray_home))
    queue(database, "at-work")
    with database.write() as session:
        spec = SPEC | {"backend": {"name": "ray"}}
        searches.create_search(session, spec, name="waiting", owner_kind="service")
    made = Coordinator(settings, database, max_running=2)
    made.start()
    wait_until(lambda: made._cluster._process is not None)
    made.stop(5)
    assert not made._thread.is_alive()  # nor is it waited for in vain
    assert made.running == 0
    for name in ("at-work", "waiting"):
        found = read(database, name)
        assert found.status == "running"
        with database.read() as session:
            assert leases.holder(session, Search, found.id) is None
    with database.read() as session:
        assert "search_interrupted" not in [e.type for e in events.events_since(session)]


def test_a_runner_that_does_not_see_a_pause_is_killed(
    database: Database, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    search_id = queue(database, "paused")
    os.kill(runner_pid(coordinator), signal.SIGSTOP)
    with database.write() as session:
        apply_action(session, search_id, "pause")
    wait_until(lambda: coordinator.running == 0)
    assert read(database, search_id).status == "paused"
    with database.read() as session:
        assert leases.holder(session, Search, search_id) is None


@pytest.mark.parametrize(("seconds", "killed"), [(-1.0, True), (600.0, False)])
def test_a_runner_that_lets_trainings_end_is_killed_if_these_come_no_further(
    database: Database,
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    killed: bool,
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "STILL_SECONDS", seconds)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    search_id = queue(database, "ending")
    os.kill(runner_pid(coordinator), signal.SIGSTOP)
    with database.write() as session:
        apply_action(session, search_id, "pause")
        jobs.note_ending(session, search_id, "pausing: 2 students at step 3 of 9", 3, 9)
    if killed:
        wait_until(lambda: coordinator.running == 0)
        return
    (child,) = coordinator._children
    wait_until(lambda: child.lets_end is not None)
    time.sleep(6 * 0.2)
    assert coordinator.running == 1
    with database.write() as session:
        apply_action(session, search_id, "pause_now")
    wait_until(lambda: coordinator.running == 0)


def test_it_says_what_its_webhook_is_and_forgets_old_messages(
    settings: Settings, database: Database
) -> None:
    long_ago = utc_now() - timedelta(days=40)
    with database.write() as session:
        for number in (1, 2):
            new = NewDelivery(
                number, "search_status", "search", "job", "name", "failed", "{}", long_ago
            )
            webhook_deliveries.add_deliveries(session, [new], "https://example.org/hook")
        session.query(WebhookDelivery).update({"finished_at": long_ago})
    told = {
        "webhook_url": "https://user:password@example.org/hook?token=1",
        "webhook_secret": "whsec_" + "A" * 32,
    }
    made = Coordinator(replace(settings, **told), database, max_running=1)  # type: ignore[arg-type]
    made.start()

    def has_looked() -> bool:
        with database.read() as session:
            urls = coordinators.webhook_urls(session)
            return urls == ["https://example.org/hook"] and not webhook_deliveries.any_old(session)

    try:
        wait_until(has_looked)
    finally:
        made.stop(5)
    with database.read() as session:
        assert [row.event_id for row in session.query(WebhookDelivery)] == [2]
        assert coordinators.webhook_urls(session) == []


def test_no_more_at_a_time_than_there_is_room_for(
    database: Database, coordinator: Coordinator
) -> None:
    first, second = queue(database, "first"), queue(database, "second")
    os.kill(runner_pid(coordinator), signal.SIGSTOP)
    time.sleep(4 * module.POLL_SECONDS)
    assert (read(database, first).status, read(database, second).status) == ("running", "queued")


def test_no_user_has_more_at_work_than_the_setting_says(
    settings: Settings, database: Database
) -> None:
    environment = {
        "KDNAS_HOME": str(settings.home),
        "KDNAS_DATABASE_URL": settings.database_url,
        "KDNAS_MAX_RUNNING_PER_USER": "1",
    }
    made = Coordinator(Settings.from_environment(environment), database, max_running=3)
    of_ann, of_bob = [], []
    for found, owner, name in ((of_ann, "ann", "a0"), (of_ann, "ann", "a1"), (of_bob, "bob", "b0")):
        with database.write() as session:
            job = searches.create_search(session, SPEC, name=name, owner_kind="service")
            jobs.get_job(session, job.id).owner = owner
        found.append(job.id)
    made.start()
    try:
        stopped: set[int] = set()

        def both_stand_still() -> bool:
            for child in list(made._children):
                if child.process.pid not in stopped:
                    os.kill(child.process.pid, signal.SIGSTOP)
                    stopped.add(child.process.pid)
            return len(stopped) == 2

        wait_until(both_stand_still)
        time.sleep(4 * module.POLL_SECONDS)
        assert len(made._children) == 2  # of three places
        standing = [read(database, search_id).status for search_id in (*of_ann, *of_bob)]
        assert standing == ["running", "queued", "running"]
    finally:
        made.stop(5)


def test_children_get_the_settings_and_no_secret(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_webhook = ("KDNAS_WEBHOOK_SECRET", "KDNAS_WEBHOOK_URL")
    for name in ("KDNAS_OPERATOR_TOKEN", "KDNAS_VIEWER_TOKEN", *of_webhook):
        monkeypatch.setenv(name, "secret")
    found = child_environment(replace(settings, ray_address="10.0.0.5:6379"))
    assert "secret" not in found.values()
    assert found["KDNAS_DATABASE_URL"] == settings.database_url
    assert found["KDNAS_RAY_ADDRESS"] == "10.0.0.5:6379"


@pytest.mark.parametrize(
    ("kind", "request_", "needs"),
    [
        ("search", {}, True),
        ("search", {"backend": {"name": "local"}}, False),
        ("search", {"backend": {"name": "ray", "address": "auto"}}, False),
        ("distillation", {}, False),
        ("distillation", {"training": {"num_workers": 1}}, False),
        ("distillation", {"training": {"num_workers": 2}}, True),
        ("distillation", {"training": {"num_workers": 2, "address": "auto"}}, False),
        ("evaluation", {}, False),
        ("evaluation", {"grid": "paper"}, True),
        ("latency_build", {}, False),
        ("pipeline", {}, False),
    ],
)
def test_what_needs_the_cluster(kind: str, request_: dict[str, Any], needs: bool) -> None:
    assert kinds()[kind].needs_cluster(request_) is needs


def test_cores_bound_what_trains_here_and_not_what_a_cluster_does(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=64e9))
    elsewhere = replace(settings, ray_address="10.0.0.5:6379")
    assert Coordinator(settings, database).max_running == 3
    assert Coordinator(elsewhere, database).max_running == 8
    assert Coordinator(elsewhere, database, max_running=5).max_running == 5
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=5e9))
    assert default_max_running("10.0.0.5:6379") == 4
    assert default_max_running() == 3


def test_on_a_cluster_evaluations_leave_room_for_what_runs_there(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, evaluations would be as many as searches, and each would want all cores."""
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=64e9))
    started: list[str] = []

    def start(kind: str, claim: Any, environment: Mapping[str, str], _: Settings) -> Any:
        started.append(kind)
        process = SimpleNamespace(pid=0, poll=lambda: None)
        return SimpleNamespace(kind=kind, claim=claim, process=process)

    monkeypatch.setattr(module.Child, "start", start)
    with database.write() as session:
        wanted = [NewEvaluation("glue", "RTE", seed, {}) for seed in range(5)]
        evaluations.create_evaluations(session, wanted, model="m", owner_kind="service")
        for number in range(3):
            searches.create_search(session, SPEC, name=f"s{number}", owner_kind="service")
    Coordinator(replace(settings, ray_address="10.0.0.5:6379"), database)._start_what_waits()
    assert sorted(started) == 2 * ["evaluation"] + 3 * ["search"]


def test_old_events_are_removed_if_a_setting_wants_that(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = queue(database, "old")
    with database.write() as session:
        jobs.set_status(session, search, "cancelled")
        session.execute(text("UPDATE events SET created_at = '2020-01-01 00:00:00'"))

    def count() -> int:
        with database.read() as session:
            return len(events.events_since(session))

    monkeypatch.setattr(module, "CLEAN_SECONDS", 0.05)
    monkeypatch.setattr(module, "FORGET_SECONDS", 0.05)
    for days, left in ((None, 2), (30, 1)):
        made = Coordinator(replace(settings, keep_events_days=days), database, max_running=1)
        made.start()
        if days is None:
            time.sleep(1)
        else:
            wait_until(lambda: count() == 1)
        made.stop(5)
        assert count() == left


def test_removing_old_events_holds_up_nothing(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing = threading.Event()

    def remove(_: Database, __: datetime, should_stop: Callable[[], bool]) -> int:
        removing.set()
        wait_until(should_stop)
        return 0

    monkeypatch.setattr(module, "remove_old_events", remove)
    made = Coordinator(replace(settings, keep_events_days=30), database, max_running=1)
    made.start()
    assert removing.wait(30)
    queue(database, "meanwhile")
    wait_until(lambda: made.running == 1)
    made.stop(5)
    assert not made._forgetting.is_alive()


def test_a_kind_that_cannot_move_on_or_clean_up_holds_up_no_other(
    settings: Settings,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError("an odd row")

    odd = replace(kinds()["pipeline"], move_on=fail, tidy=fail)
    monkeypatch.setattr(module, "kinds", lambda: {"pipeline": odd, **others})
    others = {name: kind for name, kind in kinds().items() if name != "pipeline"}
    cleaned: list[str] = []
    others["search"] = replace(others["search"], tidy=lambda *_: cleaned.append("search"))
    queue(database, "meanwhile")
    made = Coordinator(settings, database, max_running=1)
    with capture_logs() as lines:
        made.start()
        wait_until(lambda: made.running == 1 and bool(cleaned))
        made.stop(5)
    told = [one for one in lines if one["event"] == "the coordinator goes on without a kind"]
    assert {one["kind"] for one in told} == {"pipeline"}


def test_a_database_that_is_away_lengthens_no_pause(
    database: Database, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at a runner that has ended does all of it again until it can be written down."""
    search_id = queue(database, "later")
    runner_pid(coordinator)
    release, tries = leases.release, []

    def away(*given: Any) -> None:
        tries.append(given)
        if len(tries) < 4:
            raise DatabaseError("the database is out of reach")
        release(*given)

    monkeypatch.setattr(leases, "release", away)
    monkeypatch.setattr(module, "TROUBLE_SECONDS", 0.01)
    pipe = coordinator._children[0].process.stdin
    assert pipe is not None
    pipe.close()
    wait_until(lambda: coordinator.running == 0)
    assert len(tries) == 4
    assert coordinator._pauses._until[search_id][1] == 1.0


def test_what_the_killed_left_is_cleaned_up(settings: Settings, database: Database) -> None:
    new = NewCandidate(Proposal(0, "random"), SMALL, 1.0, 0.5, 10.0)
    with database.write() as session:
        search = searches.create_search(session, SPEC, name="left")
        jobs.set_status(session, search.id, "running")
        episode = candidates.begin_episode(session, search.id, 1, None, None, None, [new])
        candidates.start_attempts(session, [episode.candidates[0].id], "gone")
        spec = DistillationSpec.read({"architecture": str(SMALL)}, "test")
        unknown = spec.to_json() | {"objective": {"name": "of-a-package-since-removed"}}
        other = distillations.create_distillation(session, unknown, SMALL)
        jobs.set_status(session, other.id, "cancelled")
        made = distillations.create_distillation(session, spec.to_json(), SMALL)
        jobs.set_status(session, made.id, "cancelled")
        training = {"checkpoints": str(settings.home / "elsewhere")}
        spec = DistillationSpec.read(spec.to_json() | {"training": training}, "test")
        done = distillations.create_distillation(session, spec.to_json(), SMALL)
        jobs.set_status(session, done.id, "succeeded")
        at_work = distillations.create_distillation(session, spec.to_json(), SMALL)
    folder = settings.home / "distillations" / made.id / "checkpoints" / "step-000000001"
    ended, kept = (settings.home / "elsewhere" / row.id / folder.name for row in (done, at_work))
    for checkpoint in (folder, ended, kept):
        checkpoint.mkdir(parents=True)
    coordinator = Coordinator(settings, database)
    coordinator._clean_up()
    with database.read() as session:  # the search may be taken up, and then closes its own
        assert candidates.list_episodes(session, search.id)[0].candidates[0].status == "running"
    assert not folder.parent.parent.exists()
    assert not ended.parent.exists()
    assert kept.is_dir()
    with database.write() as session:
        apply_action(session, search.id, "cancel")
    coordinator._clean_up()
    with database.read() as session:
        (candidate,) = candidates.list_episodes(session, search.id)[0].candidates
    assert candidate.status == "proposed"
