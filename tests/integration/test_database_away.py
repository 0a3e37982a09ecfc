"""Work of the command line and of the service whose PostgreSQL is stopped and started again."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from kdnas.db.engine import Database, parse_url
from kdnas.db.migrate import upgrade
from kdnas.db.models import Job
from kdnas.db.repository import jobs
from kdnas.testing.chaos import LONGEST_SECONDS, Ground
from kdnas.testing.commands import Program
from kdnas.testing.forked import Finished, Forked
from kdnas.testing.lost_connections import TOLD, lose_each_connection_once
from kdnas.testing.postgres import OwnServer, own_server

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

SEARCH = ("search", "--config", "tiny.yaml", "--no-reuse", "--steps", "150", "--json")
DISTILLATION = (
    *("full-distill", "--teacher", "teacher", "--corpus", "corpus.txt", "--max-length", "16"),
    *("--arch", "1,2,24,48,gelu", "--batch-size", "8", "--threads", "1", "--steps", "1500"),
)
GONE, BACK = "the database is out of reach (database ", "the database is back after "


class Place:
    """A server of our own, and the program that uses it."""

    def __init__(self, program: Program, server: OwnServer) -> None:
        self.program, self.server = program, server
        self.environment = {"KDNAS_DATABASE_URL": server.url}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url) as connection:
            return connection.execute(query).fetchall()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.05)

    def wait_until_noticed(self, process: Forked) -> None:
        """Wait until a command says that the server is away."""
        self.wait_for(lambda: process.has_ended or GONE in process.said)

    def num_trained(self, name: str) -> int:
        return len(self.attempts(name))

    def attempts(self, name: str) -> list[tuple[Any, ...]]:
        return self.rows(
            "select c.episode, c.position, a.outcome from attempts a"
            " join candidates c on c.id = a.candidate_id join jobs s on s.id = c.search_id"
            f" where s.name = '{name}' and a.outcome is not null"
        )

    def found(self, name: str) -> list[tuple[Any, ...]]:
        """All that an outage must not change."""
        return self.rows(
            "select c.episode, c.position, c.architecture, c.source, c.predicted_reward, c.reward"
            " from candidates c join jobs s on s.id = c.search_id"
            f" where s.name = '{name}' order by c.episode, c.position"
        )

    def events(self, name: str) -> Counter[str]:
        types = self.rows(
            f"select e.type from events e join jobs s on s.id = e.job_id where s.name = '{name}'"
        )
        return Counter(one for (one,) in types)

    def check_search(self, name: str) -> None:
        """It found what the undisturbed one did, and nothing stands there twice."""
        assert self.found(name) == self.found("undisturbed")
        trained = Counter((episode, position) for episode, position, _ in self.attempts(name))
        assert len(trained) == 12
        assert set(trained.values()) == {1}
        told = self.events(name)
        assert told["candidate_finished"] == 12
        assert told["episode_finished"] == told["episode_started"] == 3


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    program = Program.make(tmp_path_factory.mktemp("away"))
    with own_server() as server:
        upgrade(server.url)
        made = Place(program, server)
        done = program.run(*SEARCH, "--name", "undisturbed", **made.environment)
        assert done.code == 0, done.err
        yield made


@pytest.fixture(scope="module")
def ground(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("all kinds")
    with Ground(folder, place.server.url, seed=0, server=place.server) as made:
        yield made


@pytest.fixture(autouse=True)
def _started(place: Place) -> Iterator[None]:
    yield
    place.server.start()


def check_said(ended: Finished, *, back: bool = True) -> None:
    assert ended.err.count(GONE) == 1, ended.err
    assert ended.err.count(BACK) == back, ended.err
    assert "waiting, since " in ended.err


def test_a_search_goes_on_when_its_database_is_back(place: Place) -> None:
    process = place.program.fork(*SEARCH, "--name", "patient", **place.environment)
    place.wait_for(lambda: place.num_trained("patient") > 1)
    place.server.stop()
    place.wait_until_noticed(process)
    time.sleep(2)
    assert not process.has_ended, process.wait(0).err
    place.server.start()
    ended = process.wait(240)
    assert ended.code == 0, ended.err
    check_said(ended)
    place.check_search("patient")


def test_a_search_that_has_waited_in_vain_says_how_to_go_on(place: Place) -> None:
    name = "in-vain"
    short = {**place.environment, "KDNAS_DATABASE_PATIENCE_SECONDS": "2"}
    process = place.program.fork(*SEARCH, "--name", name, **short)
    place.wait_for(lambda: place.num_trained(name) > 1)
    place.server.stop()
    ended = process.wait(240)
    assert ended.code == 1
    check_said(ended, back=False)
    assert "for 2 s by now (KDNAS_DATABASE_PATIENCE_SECONDS); check that the server" in ended.err
    assert f"stopped; go on with: kdnas search --resume {name}" in ended.err
    refused = place.program.run("search", "--resume", name, **place.environment)
    assert (refused.code, GONE in refused.err) == (1, False)  # at its start it waits for nothing
    place.server.start()
    resumed = place.program.run("search", "--resume", name, "--json", **place.environment)
    assert resumed.code == 0, resumed.err
    assert place.found(name) == place.found("undisturbed")


def test_ctrl_c_ends_the_wait(place: Place) -> None:
    process = place.program.fork(*SEARCH, "--name", "hasty", **place.environment)
    place.wait_for(lambda: place.num_trained("hasty") > 1)
    place.server.stop()
    place.wait_until_noticed(process)
    process.send_signal(signal.SIGINT)
    ended = process.wait(120)
    assert ended.code == 130, ended.err
    assert "stopped; go on with: kdnas search --resume hasty" in ended.err


def test_a_distillation_trains_on_meanwhile_and_its_curve_is_whole(place: Place) -> None:
    output = place.program.folder / "student"
    command = (*DISTILLATION, "--name", "student", "--output", str(output))
    process = place.program.fork(*command, **place.environment)

    def steps() -> list[int]:
        query = (
            "select p.step from distillation_curves p join jobs d on d.id = p.distillation_id"
            " where d.name = 'student' order by p.step"
        )
        return [step for (step,) in place.rows(query)]

    place.wait_for(lambda: len(steps()) > 1)
    place.server.stop()
    place.wait_until_noticed(process)
    place.server.start()
    ended = process.wait(240)
    assert ended.code == 0, ended.err
    check_said(ended)
    found = steps()
    apart = {later - earlier for earlier, later in pairwise(found[1:])}
    assert len(apart) <= 2, found  # no hole: points are equally far from each other
    assert found[-1] == 1500


@pytest.mark.parametrize("kind", ["sweep", "task_distillation", "evaluation", "pipeline"])
def test_every_other_command_goes_on_as_well(place: Place, ground: Ground, kind: str) -> None:
    (work,) = [work for work in ground.works if work.label == kind]
    if kind == "evaluation":  # long enough to be met
        longer = list(work.command)
        longer[longer.index("--max-steps") + 1] = "1200"
        work = replace(work, command=tuple(longer))
    if kind == "sweep":
        work = replace(work, request={**work.request, "steps": [0, 60]})
    expected, _ = ground.expected(work, True)
    name = ground.new_name(work)

    def is_at_work() -> bool:
        with ground.database.read() as session:
            running = session.query(Job.id).filter(Job.kind == kind, Job.status == "running")
            return running.first() is not None

    process = ground.program.fork(*ground.command(work, name), **ground.environment)
    place.wait_for(lambda: process.has_ended or is_at_work())
    assert not process.has_ended
    place.server.stop()
    place.wait_until_noticed(process)
    time.sleep(2)
    assert not process.has_ended, process.wait(0).err
    place.server.start()
    ended = process.wait(LONGEST_SECONDS)
    assert ended.code == 0, ended.err
    check_said(ended)
    job_id = ground.find(work, name)
    assert job_id is not None
    assert ground.outcome(work, job_id) == expected


@pytest.mark.parametrize(
    "kind", ["search", "sweep", "distillation", "task_distillation", "evaluation", "pipeline"]
)
def test_no_place_lets_work_end_with_its_connection(ground: Ground, kind: str) -> None:
    (work,) = [work for work in ground.works if work.label == kind]
    expected, _ = ground.expected(work, True)
    name = ground.new_name(work)
    losing = replace(ground.program, first=lose_each_connection_once)
    ended = losing.fork(*ground.command(work, name), **ground.environment).wait(LONGEST_SECONDS)
    assert ended.code == 0, ended.err
    assert ended.err.count(TOLD) > 5, ended.err
    job_id = ground.find(work, name)
    assert job_id is not None
    assert ground.outcome(work, job_id) == expected


def test_a_job_of_the_service_goes_on_in_the_same_process(place: Place) -> None:
    with Database(parse_url(place.server.url)) as database, database.read() as session:
        request = dict(jobs.get_job(session, "undisturbed").spec)
    with Database(parse_url(place.server.url)) as database, database.write() as session:
        from kdnas.db.repository import searches

        searches.create_search(session, request, name="served", owner_kind="service")

    def worker() -> int:
        ((pid,),) = place.rows("select lease_pid from jobs where name = 'served'")
        return int(pid or 0)

    def said_in_logs() -> str:
        logs = (place.program.folder / "home" / "jobs").rglob("*")
        return "".join(log.read_text("utf-8", "replace") for log in logs if log.is_file())

    with place.program.coordinator(**place.environment):
        place.wait_for(lambda: place.num_trained("served") > 1)
        pid = worker()
        place.server.stop()
        time.sleep(10)  # each of them asks for something meanwhile
        place.server.start()
        trained = place.num_trained("served")
        place.wait_for(lambda: place.num_trained("served") > trained)
        assert worker() == pid
        # In the log of the job stands what a command says, soon after the database has answered.
        place.wait_for(lambda: BACK in said_in_logs())
        said = said_in_logs()
        assert (said.count(GONE), said.count(BACK)) == (1, 1), said
        assert "waiting, since " in said
        place.wait_for(lambda: place.num_trained("served") == 12 and worker() == 0)
    place.check_search("served")
