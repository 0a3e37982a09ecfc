"""Coordinators and runners as processes: shared work, kills, pauses, and an end in good order."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from kdnas.db.engine import Database
from kdnas.db.exploration import candidates
from kdnas.db.lists import job_pages
from kdnas.db.migrate import open_database, upgrade
from kdnas.db.models import Attempt, Candidate, LatencyBuild, Search
from kdnas.db.queue import leases
from kdnas.db.queue.transitions import apply_action
from kdnas.db.repository import distillations, events, jobs, searches
from kdnas.errors import ConflictError
from kdnas.settings import Settings
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.search import SearchSpec
from kdnas.testing.commands import Program
from kdnas.testing.forked import Forked
from kdnas.testing.forked_runners import RUNNER

pytestmark = pytest.mark.slow

STEPS = 1200
"""Of trainings that are paused in the middle: they outlast a pause and its way back."""
ENDLESS_STEPS = 20 * STEPS
"""Of one that is paused at once, and never comes to its end."""

Outcome = list[tuple[int, int, str, float | None, float | None]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program.make(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def spec(program: Program) -> dict[str, Any]:
    """A search of a few seconds: twelve trainings, nothing looked up."""
    data = yaml.safe_load((program.folder / "tiny.yaml").read_text("utf-8"))
    data["teacher"] = str(program.folder / "teacher")
    data["corpus"]["source"] = str(program.folder / "corpus.txt")
    data["proxy"] |= {"steps": 16, "reuse": False}
    return SearchSpec.read(data, "test").to_json()


class Place:
    """A database with the latency table in it, and the outcome of an undisturbed search."""

    def __init__(self, program: Program, url: str, spec: dict[str, Any]) -> None:
        self.program, self.url, self.spec = program, url, spec
        environment = program.environment | {"KDNAS_DATABASE_URL": url}
        self.settings = Settings.from_environment(environment)
        self.environment = {"KDNAS_DATABASE_URL": url}
        self.database: Database = open_database(self.settings)
        self.expected: Outcome = []

    def run_undisturbed(self) -> None:
        from api.searches.run import run_stored_search

        with self.database.write() as session:
            made = searches.create_search(session, self.spec, name="undisturbed")
        assert run_stored_search(made.id, self.database, self.settings) == "succeeded"
        self.expected = self.outcome(made.id)
        assert len(self.expected) == 12

    def queue(self, name: str, **changes: Any) -> str:
        with self.database.write() as session:
            return searches.create_search(
                session, self.spec | changes, name=name, owner_kind="service"
            ).id

    def act(self, search_id: str, action: Any) -> None:
        with self.database.write() as session:
            apply_action(session, search_id, action)

    def status(self, search_id: str) -> str:
        with self.database.read() as session:
            record = searches.get_search(session, search_id)
        assert record.status != "failed", record.error
        return record.status

    def wait_for(self, condition: Callable[[], bool], seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.05)

    def outcome(self, search_id: str) -> Outcome:
        with self.database.read() as session:
            episodes = candidates.list_episodes(session, search_id)
        return [
            (
                episode.number,
                candidate.position,
                str(candidate.architecture),
                candidate.reward,
                None if candidate.losses is None else candidate.losses.relative,
            )
            for episode in episodes
            for candidate in episode.candidates
        ]

    def num_finished(self, search_id: str) -> int:
        return sum(reward is not None for *_, reward, _ in self.outcome(search_id))

    def holder_pid(self, search_id: str) -> int | None:
        with self.database.read() as session:
            holder = leases.holder(session, Search, search_id)
        return None if holder is None else holder.pid

    def check_attempts(self, search_id: str) -> Counter[str | None]:
        """Every candidate was trained to its end once, and nothing is open."""
        from sqlalchemy import select

        with self.database.read() as session:
            rows = session.execute(
                select(Attempt.candidate_id, Attempt.outcome)
                .join(Candidate, Candidate.id == Attempt.candidate_id)
                .where(Candidate.search_id == search_id)
            ).all()
        assert Counter(outcome for _, outcome in rows)[None] == 0
        ended = Counter(candidate for candidate, outcome in rows if outcome == "succeeded")
        assert set(ended.values()) == {1}
        return Counter(outcome for _, outcome in rows)

    def coordinator(self, *options: str, **more: str) -> AbstractContextManager[Forked]:
        return self.program.coordinator(*options, **self.environment, **more)


@contextmanager
def place(program: Program, url: str, spec: dict[str, Any]) -> Iterator[Place]:
    os.environ["KDNAS_HOME"] = str(program.folder / "home")  # workers look there for caches
    made = Place(program, url, spec)
    try:
        made.run_undisturbed()
        yield made
    finally:
        made.database.close()
        del os.environ["KDNAS_HOME"]


@pytest.fixture(scope="module")
def sqlite_place(program: Program, spec: dict[str, Any]) -> Iterator[Place]:
    path = program.folder / "home" / "kdnas.db"
    path.parent.mkdir(exist_ok=True)
    upgrade(f"sqlite:///{path}")
    with place(program, f"sqlite:///{path}", spec) as made:
        yield made


@pytest.fixture
def postgres_place(program: Program, postgres_url: str, spec: dict[str, Any]) -> Iterator[Place]:
    upgrade(postgres_url)
    with place(program, postgres_url, spec) as made:
        yield made


@pytest.mark.postgres
def test_two_coordinators_share_the_work_and_a_kill_loses_nothing(postgres_place: Place) -> None:
    here = postgres_place
    ids = [here.queue(f"shared-{i}") for i in range(3)]

    def parents() -> dict[str, int]:
        """Which coordinator has which search at work."""
        found = {}
        for search_id in ids:
            pid = here.holder_pid(search_id)
            with suppress(psutil.NoSuchProcess):
                if pid is not None:
                    found[search_id] = psutil.Process(pid).ppid()
        return found

    with (
        here.coordinator("--max-running", "2") as one,
        here.coordinator("--max-running", "2") as two,
    ):
        here.wait_for(lambda: {one.pid, two.pid} <= set(parents().values()))

        def mine() -> list[str]:
            return [
                search_id
                for search_id, parent in parents().items()
                if parent == one.pid and 0 < here.num_finished(search_id) < 8
            ]

        here.wait_for(lambda: bool(mine()))
        runners = psutil.Process(one.pid).children(recursive=True)
        one.send_signal(signal.SIGKILL)
        psutil.wait_procs(runners, timeout=60)
        assert not [r for r in runners if r.is_running() and r.status() != "zombie"]
        here.wait_for(lambda: all(here.status(i) == "succeeded" for i in ids))
    for search_id in ids:
        assert here.outcome(search_id) == here.expected
    outcomes = sum((here.check_attempts(search_id) for search_id in ids), Counter[str | None]())
    assert outcomes["succeeded"] == 12 * len(ids)
    assert outcomes["interrupted"] <= 2 * 4  # at most what one coordinator had at work
    with here.database.read() as session:
        types = Counter(e.type for e in events.events_since(session, limit=10_000))
    assert types["search_interrupted"] == 0  # a coordinator's own death is nobody's fault


def names_below(process: Forked) -> list[str]:
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(child.name())
    return found


@pytest.mark.ray
def test_six_at_once_one_cancelled_one_paused_and_resumed(
    sqlite_place: Place, ray_home: Path
) -> None:
    """Two of the six train on Ray, on one local cluster that they share."""
    here = sqlite_place
    on_ray = {"backend": {"name": "ray", "threads": 1, "group_size": 4, "num_workers": 1}}
    ids = [here.queue(f"six-{i}", **(on_ray if i > 3 else {})) for i in range(6)]
    cancelled, paused = ids[1], ids[3]
    with here.coordinator("--max-running", "6", HOME=str(ray_home)) as coordinator:
        here.wait_for(lambda: here.num_finished(paused) > 0)
        here.act(paused, "pause")
        here.wait_for(lambda: here.num_finished(cancelled) > 0)
        here.act(cancelled, "cancel")
        here.wait_for(lambda: here.holder_pid(cancelled) is None)
        here.wait_for(lambda: here.holder_pid(paused) is None)
        assert here.status(paused) == "paused"
        at_pause = here.num_finished(paused)
        assert RUNNER in names_below(coordinator)
        here.act(paused, "resume")
        others = [i for i in ids if i != cancelled]
        here.wait_for(lambda: all(here.status(i) == "succeeded" for i in others))
        assert names_below(coordinator).count("raylet") == 1  # which those on Ray share
        assert 0 < at_pause < 12
        assert here.status(cancelled) == "cancelled"
        here.wait_for(lambda: RUNNER not in names_below(coordinator))
    assert coordinator.wait(0).code == 0
    for search_id in others:
        assert here.outcome(search_id) == here.expected
        assert here.check_attempts(search_id)["succeeded"] == 12
    here.check_attempts(cancelled)
    assert here.num_finished(cancelled) < 12


class Longer:
    """Searches of three groups, whose trainings take long enough to be paused in the middle."""

    def __init__(self, here: Place, steps: int = STEPS) -> None:
        self.here, self.steps = here, steps
        self.changes = {
            "proxy": here.spec["proxy"] | {"steps": steps},
            "controller": here.spec["controller"] | {"episodes": 3, "candidates": 2},
            "backend": here.spec["backend"] | {"group_size": 2},
        }

    def run_undisturbed(self) -> Outcome:
        from api.searches.run import run_stored_search

        here = self.here
        with here.database.write() as session:
            made = searches.create_search(session, here.spec | self.changes, name="in-one-go")
        assert run_stored_search(made.id, here.database, here.settings) == "succeeded"
        return here.outcome(made.id)

    def standing(self, search_id: str) -> str:
        with self.here.database.read() as session:
            return str(job_pages.read_jobs(session, [search_id])[0]["standing"])

    def pause(self, search_id: str, num_finished: int) -> None:
        """Pause it in the middle of the group after those that have finished."""

        def is_in_training() -> bool:
            found = re.search(rf"students at step (\d+) of {self.steps}", self.standing(search_id))
            begun = found is not None and 0 < int(found[1]) < self.steps // 2
            return begun and self.here.num_finished(search_id) == num_finished

        self.here.wait_for(is_in_training)
        self.here.act(search_id, "pause")
        self.here.wait_for(lambda: self.standing(search_id).startswith("pausing: 2 students at"))


def test_a_pause_in_the_middle_of_a_group_loses_nothing(sqlite_place: Place) -> None:
    here = sqlite_place
    longer = Longer(here)
    expected = longer.run_undisturbed()
    with here.coordinator("--max-running", "1"):
        search_id = here.queue("mid-group", **longer.changes)
        longer.pause(search_id, 0)  # and take that back while the group comes to its end
        pid = here.holder_pid(search_id)
        here.act(search_id, "resume")
        here.wait_for(lambda: longer.standing(search_id).startswith("training"))
        assert (here.status(search_id), here.holder_pid(search_id)) == ("running", pid)

        longer.pause(search_id, 2)
        seen = set()

        def has_stopped() -> bool:
            seen.add(longer.standing(search_id))
            return here.holder_pid(search_id) is None

        here.wait_for(has_stopped)
        assert [text for text in seen if text.endswith(" left")], seen
        assert longer.standing(search_id) == "paused"
        assert here.num_finished(search_id) == 4  # the group at work, and no other
        assert here.check_attempts(search_id) == {"succeeded": 4}
        here.act(search_id, "resume")
        here.wait_for(lambda: here.status(search_id) == "succeeded")
        assert here.outcome(search_id) == expected
        assert here.check_attempts(search_id) == {"succeeded": 6}

        endless = Longer(here, ENDLESS_STEPS)
        hasty = here.queue("hasty", **endless.changes)
        endless.pause(hasty, 0)
        here.act(hasty, "pause_now")
        here.wait_for(lambda: here.holder_pid(hasty) is None)
        assert here.num_finished(hasty) == 0
        with here.database.read() as session:
            types = [e.type for e in events.events_since(session, job_id=hasty)]
        assert types.count("attempts_interrupted") == 1


def test_sigterm_gives_work_back(sqlite_place: Place) -> None:
    here = sqlite_place
    spec = DistillationSpec.read(
        {
            "teacher": here.spec["teacher"],
            "corpus": here.spec["corpus"],
            "architecture": "1,2,24,48,gelu",
            "training": {"steps": 9000, "batch_size": 8, "threads": 1, "checkpoint_every": 9000},
        },
        "test",
    )
    with here.database.write() as session:
        distillation_id = distillations.create_distillation(
            session, spec.to_json(), spec.arch, name="given-back", owner_kind="service"
        ).id

    def step() -> int:
        with here.database.read() as session:
            return distillations.get_distillation(session, distillation_id).step

    with here.coordinator("--max-running", "2") as coordinator:
        here.wait_for(lambda: step() > 50)
        search_id = here.queue("given-back")  # the shorter of the two
        here.wait_for(lambda: here.num_finished(search_id) > 0)
        coordinator.send_signal(signal.SIGTERM)
        assert coordinator.wait(60).code == 0
    assert here.status(search_id) == "running"  # not paused: nobody asked for that
    assert here.holder_pid(search_id) is None
    with here.database.read() as session:
        record = distillations.get_distillation(session, distillation_id)
    assert record.status == "running"
    stored = DistillationSpec.read(dict(record.spec), "stored")
    assert stored.teacher.fingerprint  # a resume is pinned to what was prepared
    assert stored.corpus.fingerprint
    checkpoints = here.settings.home / "distillations" / distillation_id / "checkpoints"
    (made,) = checkpoints.glob("step-*")
    assert int(made.name.partition("-")[2]) == record.step
    with here.coordinator("--max-running", "2"):
        here.wait_for(lambda: here.status(search_id) == "succeeded" and step() > record.step)
        with here.database.write() as session:
            apply_action(session, distillation_id, "cancel")
        here.wait_for(lambda: not checkpoints.parent.exists())
    assert here.outcome(search_id) == here.expected


def test_a_request_that_cannot_be_done_fails_with_the_sentence(sqlite_place: Place) -> None:
    here = sqlite_place
    missing = str(here.program.folder / "no-such-teacher")
    search_id = here.queue("no-teacher", teacher={"ref": missing})
    with here.database.write() as session:
        build_id = jobs.add_job(
            session, LatencyBuild, {key: here.spec[key] for key in ("teacher", "latency", "space")}
        ).id

    def build_status() -> str:
        with here.database.read() as session:
            build = jobs.get_job(session, build_id, LatencyBuild)
        assert build.status != "failed", build.error
        return build.status

    def record() -> Any:
        with here.database.read() as session:
            return searches.get_search(session, search_id)

    with here.coordinator():
        here.wait_for(lambda: record().status == "failed")
        here.wait_for(lambda: build_status() == "succeeded")
    assert "no-such-teacher" in record().error
    with here.database.read() as session:
        build = jobs.get_job(session, build_id, LatencyBuild)
    assert build.profile_id is not None
    assert build.done == build.total == 100


def test_what_the_command_line_runs_is_paused_here_and_resumed_there(sqlite_place: Place) -> None:
    here = sqlite_place
    config = here.program.folder / "cli.json"
    config.write_text(json.dumps(here.spec | {"name": "by-hand"}), "utf-8")
    process = here.program.fork("search", "--config", str(config), **here.environment)

    def search_id() -> str:
        with here.database.read() as session:
            return searches.get_search(session, "by-hand").id

    def is_at_work() -> bool:
        with here.database.read() as session:
            names = [record.name for record in jobs.newest_jobs(session, Search)]
        return "by-hand" in names and here.num_finished(search_id()) > 0

    here.wait_for(is_at_work)
    here.act(search_id(), "pause")
    ended = process.wait(120)
    assert ended.code == 130, ended.err
    assert "paused; go on with: kdnas search --resume by-hand" in ended.err
    assert here.status(search_id()) == "paused"
    with pytest.raises(ConflictError, match="kdnas search --resume by-hand"):
        here.act(search_id(), "resume")
    finished = here.program.run("search", "--resume", "by-hand", **here.environment)
    assert finished.code == 0, finished.err
    assert here.outcome(search_id()) == here.expected
