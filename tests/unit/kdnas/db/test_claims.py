"""Who takes up which work: the oldest free row, never twice, and not for ever."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from kdnas.db.base import utc_now
from kdnas.db.engine import Database
from kdnas.db.models import Job, Search
from kdnas.db.queue import claims, leases
from kdnas.db.queue.claims import (
    Claim,
    claim_next,
    ended,
    kinds_in_question,
    note_death,
    waiting,
)
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.queue.transitions import apply_action
from kdnas.db.records import HeldOutReading
from kdnas.db.repository import distillations, evaluations, events, jobs
from kdnas.records import Losses, SearchStatus
from kdnas.testing.job_rows import KINDS, make_job, status_of

OVER: tuple[SearchStatus, ...] = ("succeeded", "cancelled")


def owner() -> LeaseOwner:
    return LeaseOwner.of_this_process("service")


def dead_owner() -> LeaseOwner:
    return replace(owner(), pid=2**22 + 1)


def claim(database: Database, kind: str, by: LeaseOwner | None = None) -> str | None:
    with database.write() as session:
        in_question = kinds_in_question(session)
        found = claim_next(session, [kind], by or owner(), 60)
    assert found is None or kind in in_question
    return None if found is None else found.job_id


@pytest.mark.parametrize("kind", KINDS)
def test_the_oldest_first_and_each_once(database: Database, kind: str) -> None:
    ids = [make_job(database, kind, name=f"number-{i}") for i in range(3)]
    with database.read() as session:
        assert [one.job_id for one in waiting(session, [kind])] == ids
        assert kinds_in_question(session) == {kind}
        assert kinds_in_question(session, ids) == frozenset()
    assert [claim(database, kind) for _ in range(4)] == [*ids, None]
    assert {status_of(database, job_id) for job_id in ids} == {"running"}


def test_what_is_not_for_a_coordinator(database: Database) -> None:
    make_job(database, "search", name="mine", owner_kind="cli")
    make_job(database, "distillation", name="of-another-kind")
    left: tuple[SearchStatus, ...] = ("paused", "cancelled", "failed", "succeeded")
    for status in left:
        make_job(database, "search", status)
    assert claim(database, "search") is None
    with database.read() as session:
        assert kinds_in_question(session) == {"distillation"}


def test_an_evaluation_of_the_command_line_is_its_own(database: Database) -> None:
    with database.write() as session:
        spec = {"key": "k", "model": {}, "data": "d", "settings": {}}
        made = evaluations.take_evaluation(
            session, spec, model="m", suite="glue", task="RTE", seed=0
        )
    assert made.owner_kind == "cli"
    assert claim(database, "evaluation") is None


def test_a_dead_owners_row_is_taken_up_as_it_is(database: Database) -> None:
    job_id = make_job(database, "search", name="cut-off")
    assert claim(database, "search", dead_owner()) == job_id
    with database.read() as session:
        before = events.last_event_id(session)
    with database.write() as session:
        found = claim_next(session, ["search"], owner(), 60)
    assert found is not None
    assert (found.job_id, found.taken_up) == (job_id, True)
    with database.read() as session:
        assert events.last_event_id(session) == before  # it was running, and runs
    assert claim(database, "search") is None


def test_a_lease_elsewhere_has_to_run_out(database: Database) -> None:
    job_id = make_job(database, "search", name="elsewhere")
    far = replace(owner(), host="far", token="far")
    with database.write() as session:
        claim_next(session, ["search"], far, 60)
    assert claim(database, "search") is None
    with database.write() as session:
        leases.renew(session, Search, job_id, far, -1)
    assert claim(database, "search") == job_id


def test_an_heir_of_the_token_takes_over(database: Database) -> None:
    job_id = make_job(database, "search", name="handed-over")
    first = owner()
    claim(database, "search", first)
    heir = LeaseOwner.of_this_process("service", first.token)
    with database.write() as session:
        leases.acquire(session, Search, job_id, heir, 60)
        leases.release(session, Search, job_id, heir)
    assert claim(database, "search") == job_id


CLAIMER = """
import sys
from kdnas.db.migrate import open_database
from kdnas.db.models import Search
from kdnas.db.queue.claims import claim_next
from kdnas.db.queue.leases import LeaseOwner
from kdnas.settings import Settings

environment = {"KDNAS_HOME": sys.argv[1], "KDNAS_DATABASE_URL": sys.argv[2]}
with open_database(Settings.from_environment(environment)) as database:
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        with database.write() as session:
            found = claim_next(session, ["search"], LeaseOwner.of_this_process("service"), 600)
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
        make_job(database, "search", name=name)
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


@pytest.mark.parametrize("kind", KINDS)
def test_deaths_without_progress_end_it(database: Database, kind: str) -> None:
    job_id = make_job(database, kind, name="deadly")
    for death in range(1, claims.MAX_DEATHS + 1):
        by = owner()
        assert claim(database, kind, by) == job_id
        with database.write() as session:
            assert note_death(session, job_id, by, "killed by signal 9") == death
    assert status_of(database, job_id) == "failed"
    with database.read() as session:
        error = session.get_one(Job, job_id).error
    assert error is not None
    assert "died 3 times without any progress, the last time so: killed by signal 9" in error
    assert claim(database, kind) is None
    with database.write() as session:  # whoever resumes it starts the count anew
        apply_action(session, job_id, "resume")
    by = owner()
    assert claim(database, kind, by) == job_id
    with database.write() as session:
        assert note_death(session, job_id, by, "killed by signal 9") == 1


def test_progress_starts_the_count_anew(database: Database) -> None:
    job_id = make_job(database, "distillation", name="slow")
    for step, expected in ((None, 1), (None, 2), (100, 1), (None, 2), (200, 1)):
        by = owner()
        assert claim(database, "distillation", by) == job_id
        with database.write() as session:
            if step is not None:
                reading = HeldOutReading(step, Losses(1.0, 1.0, 1.0, 1.0))
                distillations.set_distillation_progress(session, job_id, step, 300, (), [reading])
            assert note_death(session, job_id, by, "gone") == expected


def test_a_death_leaves_other_peoples_rows_alone(database: Database) -> None:
    job_id = make_job(database, "search", name="lost")
    mine, other = dead_owner(), owner()
    claim(database, "search", mine)
    claim(database, "search", other)
    with database.write() as session:
        assert note_death(session, job_id, mine, "gone") == 0
        assert leases.holder(session, Search, job_id) is not None
        apply_action(session, job_id, "cancel")
    with database.write() as session:
        assert note_death(session, job_id, other, "gone") == 0
    assert status_of(database, job_id) == "cancelled"
    with database.read() as session:
        assert leases.holder(session, Search, job_id) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_rests_is_passed_over(database: Database, kind: str) -> None:
    first, second = (make_job(database, kind, name=name) for name in ("first", "second"))
    with database.write() as session:
        assert [one.job_id for one in waiting(session, [kind], {first})] == [second]
        found = claim_next(session, [kind], owner(), 60, resting={first})
        assert found is not None
        assert found.job_id == second
        assert claim_next(session, [kind], owner(), 60, resting={first}) is None
    assert claim(database, kind) == first


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_ended_is_cleaned_up_once_nobody_holds_it(database: Database, kind: str) -> None:
    over = [make_job(database, kind, status) for status in OVER]
    make_job(database, kind, "failed")
    make_job(database, kind, "paused")
    by = owner()
    held = make_job(database, kind)
    assert claim(database, kind, by) == held
    with database.write() as session:
        apply_action(session, held, "cancel")
        assert sorted(ended(session, kind)) == over
        leases.release(session, Job, held, by)
        assert sorted(ended(session, kind)) == [*over, held]
        jobs.locked_job(session, over[0]).finished_at = utc_now() - timedelta(days=2)
        session.flush()
        assert sorted(ended(session, kind)) == [over[1], held]


def test_of_what_has_ended_only_who_holds_it_is_read(database: Database) -> None:
    """These are all of a day, and looked at twice a minute."""
    made = make_job(database, "distillation", "succeeded")
    asked: list[str] = []
    with database.read() as session:

        @event.listens_for(session.connection(), "before_cursor_execute")
        def listen(_: Any, __: Any, statement: str, *more: Any) -> None:
            asked.append(statement)

        assert ended(session, "distillation") == [made]
    assert any("jobs.lease_token" in one for one in asked)
    assert not any("jobs.name" in one for one in asked)


def turns(database: Database, most_of_a_user: int | None = None) -> list[str]:
    with database.read() as session:
        kinds = kinds_in_question(session)
        found = waiting(session, kinds, most_of_a_user=most_of_a_user)
        rows = [jobs.get_job(session, one.job_id) for one in found]
    return [str(row.name) for row in rows]


def asked_for(database: Database, user: str | None, kind: str, *names: str) -> None:
    for name in names:
        job_id = make_job(database, kind, name=name)
        with database.write() as session:
            jobs.get_job(session, job_id).owner = user


def test_forty_searches_of_one_do_not_hold_up_an_evaluation_of_another(database: Database) -> None:
    asked_for(database, "ann", "search", *(f"ann-{n}" for n in range(40)))
    asked_for(database, "bob", "evaluation", "bob-0")
    assert turns(database)[:3] == ["ann-0", "bob-0", "ann-1"]
    assert claim(database, "search") is not None
    assert turns(database)[:3] == ["bob-0", "ann-1", "ann-2"]


def test_of_one_user_priority_counts_and_then_kinds_take_turns(database: Database) -> None:
    for user in (None, "ann"):
        asked_for(database, user, "search", *(f"{user}-s{n}" for n in range(3)))
        asked_for(database, user, "distillation", f"{user}-d")
    with database.write() as session:
        assert jobs.set_priority(session, jobs.id_of(session, "ann-s2"), 5)
    own = [name for name in turns(database) if name.startswith("ann")]
    assert own == ["ann-s2", "ann-d", "ann-s0", "ann-s1"]
    others = [name for name in turns(database) if name.startswith("None")]
    assert others == ["None-s0", "None-d", "None-s1", "None-s2"]


def test_so_many_of_a_user_are_at_work_at_a_time(database: Database) -> None:
    asked_for(database, "ann", "search", "a0", "a1", "a2")
    asked_for(database, None, "search", "n0", "n1", "n2")
    assert turns(database, 2) == ["a0", "n0", "a1", "n1", "n2"]
    by = owner()
    with database.write() as session:
        found = claim_next(session, ["search"], by, 60, most_of_a_user=1)
    assert found is not None
    assert found.name == "a0"
    assert turns(database, 1) == ["n0", "n1", "n2"]
    with database.read() as session:
        # One whose process is gone is free again, and in nobody's way.
        assert claims.at_work(session, leases.database_time(session)) == {("ann", "search"): 1}
    with database.write() as session:
        jobs.set_status(session, found.job_id, "paused")
    assert turns(database, 1) == ["n0", "n1", "n2"]  # a process works on it still
    with database.write() as session:
        jobs.set_status(session, found.job_id, "running")
        leases.release(session, Job, found.job_id, by)
    assert turns(database, 1) == ["a0", "n0", "n1", "n2"]


@pytest.mark.databases("postgresql")
def test_two_coordinators_do_not_each_take_the_last_job_that_a_user_may_have_at_work(
    database: Database,
) -> None:
    asked_for(database, "ann", "search", "a0", "a1")

    def second() -> Claim | None:
        with database.write() as session:
            return claim_next(session, ["search"], owner(), 60, most_of_a_user=1)

    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            assert claim_next(session, ["search"], owner(), 60, most_of_a_user=1)
            late = pool.submit(second)
            with pytest.raises(TimeoutError):  # it waits for what is not written yet
                late.result(1)
        assert late.result(60) is None


def test_a_job_that_waits_for_its_users_others_says_so(database: Database) -> None:
    from kdnas.db.lists.job_pages import read_jobs
    from kdnas.db.queue import coordinators

    asked_for(database, "ann", "search", "a0", "a1")
    asked_for(database, "bob", "search", "b0")
    with database.write() as session:
        coordinators.note_alive(session, owner(), 2, 1, max_of_a_user=1)
        assert claim_next(session, ["search"], owner(), 60, most_of_a_user=1)
    with database.read() as session:
        ids = [jobs.id_of(session, name) for name in ("a1", "b0")]
        standing = [row["standing"] for row in read_jobs(session, ids)]
    assert standing == [
        "waiting in the queue: ann has 1 of 1 jobs at work",
        "waiting in the queue",
    ]
    with database.write() as session:
        coordinators.note_alive(session, owner(), 2, 0)  # another one bounds nobody
    with database.read() as session:
        assert read_jobs(session, ids)[0]["standing"] == "waiting in the queue"


def test_parts_have_the_priority_of_who_asks_for_them(database: Database) -> None:
    parent = make_job(database, "search", name="parent")
    with database.write() as session:
        jobs.set_priority(session, parent, 7)
        part = jobs.add_job(session, Search, {}, parent_id=parent)
        assert part.priority == 7
        assert not jobs.set_priority(session, parent, 7)
        assert jobs.set_priority(session, parent, -3)
        assert part.priority == -3
