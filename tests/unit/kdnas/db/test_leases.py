"""Leases: one owner at a time, dead ones are replaced."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace

import psutil
import pytest

from kdnas.architecture import Architecture
from kdnas.db.engine import Database
from kdnas.db.models import Distillation, Search
from kdnas.db.queue import leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import LeaseHolder
from kdnas.db.repository import distillations, searches
from kdnas.errors import ConflictError, NotFoundError


@pytest.fixture
def search_id(database: Database) -> str:
    with database.write() as session:
        return searches.create_search(session, {}).id


def acquire(database: Database, search_id: str, owner: LeaseOwner, seconds: float = 60) -> None:
    with database.write() as session:
        leases.acquire(session, Search, search_id, owner, seconds)


def test_one_holds_it_until_it_is_released(database: Database, search_id: str) -> None:
    mine, other = LeaseOwner.of_this_process("cli"), LeaseOwner.of_this_process("service")
    acquire(database, search_id, mine)
    acquire(database, search_id, mine)
    with pytest.raises(ConflictError, match=rf"by the cli in process {mine.pid} on .* until"):
        acquire(database, search_id, other)
    with database.write() as session:
        leases.release(session, Search, search_id, other)
        leases.renew(session, Search, search_id, mine, 60)
        leases.release(session, Search, search_id, mine)
    acquire(database, search_id, other)
    with pytest.raises(ConflictError, match="is lost"), database.write() as session:
        leases.renew(session, Search, search_id, mine, 60)


def test_it_runs_out_on_the_databases_clock(database: Database, search_id: str) -> None:
    mine = replace(LeaseOwner.of_this_process("service"), host="elsewhere")
    acquire(database, search_id, mine)
    other = LeaseOwner.of_this_process("service")
    with pytest.raises(ConflictError, match="on elsewhere"):
        acquire(database, search_id, other)
    acquire(database, search_id, mine, 0.2)
    time.sleep(0.25)
    acquire(database, search_id, other)


def test_a_dead_process_of_this_host_is_replaced_at_once(
    database: Database, search_id: str
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = LeaseOwner.of_this_process("cli")
    started = psutil.Process(process.pid).create_time() - psutil.boot_time()
    theirs = replace(owner, pid=process.pid, process_started=started, token="theirs")
    acquire(database, search_id, theirs)
    with pytest.raises(ConflictError):
        acquire(database, search_id, owner)
    process.communicate(b"\n")
    acquire(database, search_id, owner)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what differs there is Linux's")
def test_a_process_of_a_copy_of_this_machine_is_not_looked_for_here(
    database: Database, search_id: str
) -> None:
    owner = LeaseOwner.of_this_process("service")
    machine, _, boot = owner.host.rpartition("/")
    assert len(boot) == 8
    copied = replace(owner, host=f"{machine}/00000000", pid=2**22 + 1, token="theirs")
    acquire(database, search_id, copied)
    with pytest.raises(ConflictError):
        acquire(database, search_id, owner)


def test_a_process_number_that_was_given_out_again_is_dead(
    database: Database, search_id: str
) -> None:
    owner = LeaseOwner.of_this_process("cli")
    before = replace(owner, process_started=owner.process_started - 3600, token="before")
    acquire(database, search_id, before)
    acquire(database, search_id, owner)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is set here is Linux's")
@pytest.mark.parametrize("seconds", [-7200, 30, 3 * 24 * 3600])
def test_who_lives_is_alive_whatever_the_clock_is_set_to(
    database: Database, search_id: str, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(process.pid).create_time() - psutil.boot_time()
    owner = LeaseOwner.of_this_process("cli")
    theirs = replace(owner, pid=process.pid, process_started=started, token="theirs")
    acquire(database, search_id, theirs)
    # What /proc/stat says of the boot moves with the clock, and with it when processes began.
    boot = psutil.boot_time()
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: boot + seconds)
    with pytest.raises(ConflictError):
        acquire(database, search_id, owner)
    process.communicate(b"\n")
    acquire(database, search_id, owner)


def test_a_dead_process_of_another_host_is_waited_for(database: Database, search_id: str) -> None:
    owner = LeaseOwner.of_this_process("cli")
    acquire(database, search_id, replace(owner, host="elsewhere", pid=2**22 + 1, token="t"))
    with pytest.raises(ConflictError):
        acquire(database, search_id, owner)


def test_exactly_one_of_many_gets_it(database: Database, search_id: str) -> None:
    barrier, won = threading.Barrier(6), []

    def race() -> None:
        owner = LeaseOwner.of_this_process("service")
        barrier.wait()
        try:
            acquire(database, search_id, owner)
        except ConflictError:
            return
        won.append(owner)

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    with database.write() as session:
        leases.renew(session, Search, search_id, won[0], 60)


def test_distillations_have_them_too(database: Database) -> None:
    owner = LeaseOwner.of_this_process("cli")
    with database.write() as session:
        row = distillations.create_distillation(session, {}, Architecture(3, 2, 288, 384))
        leases.acquire(session, Distillation, row.id, owner, 60)
        with pytest.raises(ConflictError, match=f"distillation '{row.name}' is being worked on"):
            leases.acquire(session, Distillation, row.id, LeaseOwner.of_this_process("service"), 60)
        with pytest.raises(NotFoundError, match="no distillation 'nothing'"):
            leases.acquire(session, Distillation, "nothing", owner, 60)


def test_who_holds_it_can_be_seen(database: Database, search_id: str) -> None:
    mine = LeaseOwner.of_this_process("service")

    def seen() -> LeaseHolder | None:
        with database.read() as session:
            return leases.holder(session, Search, search_id)

    assert seen() is None
    acquire(database, search_id, mine, 60)
    assert seen() == LeaseHolder("service", mine.host.split("/")[0], mine.pid)
    acquire(database, search_id, mine, -1)
    assert seen() is None
    dead = replace(mine, pid=2**22 + 1, token="dead")
    acquire(database, search_id, dead, 60)
    assert seen() is None
    with database.read() as session, pytest.raises(NotFoundError, match="no search 'nothing'"):
        leases.holder(session, Search, "nothing")
