"""Who takes up which work: the oldest free row, never twice, and not for ever."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Evaluation, LatencyBuild, Search
from kdnas.db.records import HeldOutReading
from kdnas.db.repository import claims, distillations, evaluations, events, jobs, leases, searches
from kdnas.db.repository.claims import QueueTable, claim_next, note_death, waiting
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.db.repository.latency_builds import create_build, get_build
from kdnas.db.repository.leases import LeaseOwner
from kdnas.db.repository.transitions import apply_action
from kdnas.records import Losses

SMALL = Architecture.parse("3,4,192,384,gelu")
TABLES: list[QueueTable] = [Search, Distillation, Evaluation, LatencyBuild]


def owner() -> LeaseOwner:
    return LeaseOwner.of_this_process("service")


def dead_owner() -> LeaseOwner:
    return replace(owner(), pid=2**22 + 1)


def queue(database: Database, table: QueueTable, name: str) -> str:
    with database.write() as session:
        if table is Search:
            return searches.create_search(session, {}, name=name, owner_kind="service").id
        if table is Distillation:
            return distillations.create_distillation(
                session, {}, SMALL, name=name, owner_kind="service"
            ).id
        if table is Evaluation:
            pair = NewEvaluation("glue", "RTE", 0, {})
            (row_id,) = evaluations.create_evaluations(session, [pair], model=name)
            return row_id
        return create_build(session, {}).id


def claim(database: Database, table: QueueTable, by: LeaseOwner | None = None) -> str | None:
    with database.write() as session:
        found = claim_next(session, table, by or owner(), 60)
    return None if found is None else found.row_id


def status_of(database: Database, table: QueueTable, row_id: str) -> str:
    with database.read() as session:
        return str(session.get_one(table, row_id).status)


@pytest.mark.parametrize("table", TABLES)
def test_the_oldest_first_and_each_once(database: Database, table: QueueTable) -> None:
    ids = [queue(database, table, f"number-{i}") for i in range(3)]
    with database.read() as session:
        assert waiting(session, table) == ids
    assert [claim(database, table) for _ in range(4)] == [*ids, None]
    assert {status_of(database, table, row_id) for row_id in ids} == {"running"}


def test_what_is_not_for_a_coordinator(database: Database) -> None:
    with database.write() as session:
        searches.create_search(session, {}, name="mine", owner_kind="cli")
        for status in ("paused", "cancelled", "failed", "succeeded"):
            row = searches.create_search(session, {}, name=status, owner_kind="service")
            jobs.set_status(session, row.id, status)  # type: ignore[arg-type]
    assert claim(database, Search) is None


def test_an_evaluation_of_the_command_line_is_its_own(database: Database) -> None:
    with database.write() as session:
        spec = {"key": "k", "model": {}, "data": "d", "settings": {}}
        made = evaluations.take_evaluation(
            session, spec, model="m", suite="glue", task="RTE", seed=0
        )
    assert made.owner_kind == "cli"
    assert claim(database, Evaluation) is None


def test_a_dead_owners_row_is_taken_up_as_it_is(database: Database) -> None:
    row_id = queue(database, Search, "cut-off")
    assert claim(database, Search, dead_owner()) == row_id
    with database.read() as session:
        before = events.last_event_id(session)
    with database.write() as session:
        found = claim_next(session, Search, owner(), 60)
    assert found is not None
    assert (found.row_id, found.taken_up) == (row_id, True)
    with database.read() as session:
        assert events.last_event_id(session) == before  # it was running, and runs
    assert claim(database, Search) is None


def test_a_lease_elsewhere_has_to_run_out(database: Database) -> None:
    row_id = queue(database, Search, "elsewhere")
    far = replace(owner(), host="far", token="far")
    with database.write() as session:
        claim_next(session, Search, far, 60)
    assert claim(database, Search) is None
    with database.write() as session:
        leases.renew(session, Search, row_id, far, -1)
    assert claim(database, Search) == row_id


def test_an_heir_of_the_token_takes_over(database: Database) -> None:
    row_id = queue(database, Search, "handed-over")
    first = owner()
    claim(database, Search, first)
    heir = LeaseOwner.of_this_process("service", first.token)
    with database.write() as session:
        leases.acquire(session, Search, row_id, heir, 60)
        leases.release(session, Search, row_id, heir)
    assert claim(database, Search) == row_id


CLAIMER = """
import sys
from kdnas.db.migrate import open_database
from kdnas.db.models import Search
from kdnas.db.repository.claims import claim_next
from kdnas.db.repository.leases import LeaseOwner
from kdnas.settings import Settings

environment = {"KDNAS_HOME": sys.argv[1], "KDNAS_DATABASE_URL": sys.argv[2]}
with open_database(Settings.from_environment(environment)) as database:
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        with database.write() as session:
            found = claim_next(session, Search, LeaseOwner.of_this_process("service"), 600)
        if found is None:
            break
        print(found.name, flush=True)
    print("none left", flush=True)
    sys.stdin.readline()  # its leases live as long as this process
"""


@contextmanager
def claimer(home: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CLAIMER, str(home), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_two_processes_never_claim_the_same(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    names = {f"search-{i}" for i in range(40)}
    for name in sorted(names):
        queue(database, Search, name)
    with claimer(tmp_path, database_url) as one, claimer(tmp_path, database_url) as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found: list[str] = []
        for process in (one, two):  # both live until neither finds any: a dead one's are free
            assert process.stdout is not None
            for line in process.stdout:
                if line == "none left\n":
                    break
                found.append(line.strip())
            else:
                pytest.fail("a claimer ended before it was done")
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("table", [Search, Distillation, Evaluation])
def test_deaths_without_progress_end_it(database: Database, table: QueueTable) -> None:
    row_id = queue(database, table, "deadly")
    for death in range(1, claims.MAX_DEATHS + 1):
        by = owner()
        assert claim(database, table, by) == row_id
        with database.write() as session:
            assert note_death(session, table, row_id, by, "killed by signal 9") == death
    assert status_of(database, table, row_id) == "failed"
    with database.read() as session:
        error = session.get_one(table, row_id).error
    assert error is not None
    assert "died 3 times without any progress, the last time so: killed by signal 9" in error
    assert claim(database, table) is None
    with database.write() as session:  # whoever resumes it starts the count anew
        apply_action(session, table, row_id, "resume")  # type: ignore[arg-type]
    by = owner()
    assert claim(database, table, by) == row_id
    with database.write() as session:
        assert note_death(session, table, row_id, by, "killed by signal 9") == 1


def test_progress_starts_the_count_anew(database: Database) -> None:
    row_id = queue(database, Distillation, "slow")
    for step, expected in ((None, 1), (None, 2), (100, 1), (None, 2), (200, 1)):
        by = owner()
        assert claim(database, Distillation, by) == row_id
        with database.write() as session:
            if step is not None:
                reading = HeldOutReading(step, Losses(1.0, 1.0, 1.0, 1.0))
                distillations.set_distillation_progress(session, row_id, step, 300, (), [reading])
            assert note_death(session, Distillation, row_id, by, "gone") == expected


def test_a_death_leaves_other_peoples_rows_alone(database: Database) -> None:
    row_id = queue(database, Search, "lost")
    mine, other = dead_owner(), owner()
    claim(database, Search, mine)
    claim(database, Search, other)
    with database.write() as session:
        assert note_death(session, Search, row_id, mine, "gone") == 0
        assert leases.holder(session, Search, row_id) is not None
        apply_action(session, row_id, "cancel")
    with database.write() as session:
        assert note_death(session, Search, row_id, other, "gone") == 0
    assert status_of(database, Search, row_id) == "cancelled"
    with database.read() as session:
        assert leases.holder(session, Search, row_id) is None


def test_a_latency_build_fails_at_once(database: Database) -> None:
    row_id = queue(database, LatencyBuild, "")
    by = owner()
    assert claim(database, LatencyBuild, by) == row_id
    with database.write() as session:
        note_death(session, LatencyBuild, row_id, by, "killed by signal 9")
    with database.read() as session:
        build = get_build(session, row_id)
        assert (build.status, build.error) == (
            "failed",
            "killed by signal 9; look at the log, and ask for it again",
        )


@pytest.mark.parametrize("table", TABLES)
def test_what_rests_is_passed_over(database: Database, table: QueueTable) -> None:
    first, second = (queue(database, table, name) for name in ("first", "second"))
    with database.write() as session:
        assert waiting(session, table, {first}) == [second]
        found = claim_next(session, table, owner(), 60, resting={first})
        assert found is not None
        assert found.row_id == second
        assert claim_next(session, table, owner(), 60, resting={first}) is None
    assert claim(database, table) == first
