"""Writing logs: several runs and machines, a store out of reach, a full disk, a deleted job."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from api.logs import writer as log_writer
from api.logs.job_log import JobLog, log_so_far
from api.logs.text import HEAD_BYTES, LONGEST_BYTES
from api.logs.writer import LogWriter, publish_what_was_left
from kdnas.db.engine import Database
from kdnas.db.repository import jobs, searches
from kdnas.errors import NotFoundError, StoreError
from kdnas.settings import Settings

JOB = "01job"
MACHINES = ("a", "b")


@pytest.fixture(params=["local", "memory"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "local": f"file://{tmp_path}/store",
        "memory": f"memory://{uuid.uuid4().hex}/store",
    }[request.param]


Machine = Callable[[str], Settings]


@pytest.fixture
def machine(tmp_path: Path, store_url: str) -> Machine:
    """Settings of machines, each with a home of its own, and one store."""

    def settings(name: str) -> Settings:
        return Settings.from_environment(
            {"KDNAS_HOME": str(tmp_path / name), "KDNAS_STORE": store_url}
        )

    return settings


def begin(settings: Settings, who: str = "host, process 1") -> LogWriter:
    return LogWriter(JobLog.of(settings, JOB), who, {"search": JOB})


def run(settings: Settings, *lines: str, who: str = "host, process 1") -> None:
    writer = begin(settings, who)
    for line in lines:
        writer.add(f"{line}\n".encode())
    writer.end("ended with exit code 0")
    assert writer.wait(30)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def read_log(settings: Settings, job_id: str, tail: int) -> str:
    return log_so_far(settings, job_id, has_ended=True).newest(tail).decode()


def log_of(settings: Settings) -> list[str]:
    try:
        return read_log(settings, JOB, 10_000).splitlines()
    except (NotFoundError, StoreError):
        return []


def test_several_runs_on_several_machines_are_one_log(machine: Machine) -> None:
    run(machine("a"), "one", "two", who="a, process 1")
    run(machine("b"), "three", who="b, process 2")
    run(machine("a"), "four", who="a, process 3")
    for name in ("a", "b", "c"):
        lines = log_of(machine(name))
        heads = [line.split(" began ")[0] for line in lines if line.startswith("=== run")]
        assert heads == ["=== run 1", "=== run 2", "=== run 3"]
        assert [line for line in lines if "===" not in line] == ["one", "two", "three", "four"]
        assert lines[0].endswith(" on a, process 1 ===")
        assert lines[3].startswith("=== ended with exit code 0 at ")
    assert not any(
        (machine(name).home / "jobs").exists() and list((machine(name).home / "jobs").iterdir())
        for name in MACHINES
    )
    assert read_log(machine("c"), JOB, 2).splitlines()[0] == "four"


def test_it_is_read_while_it_grows_here_at_once_elsewhere_soon(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PUBLISH_SECONDS", 1.0)
    writer = begin(machine("a"))
    writer.add(b"first\n")
    wait_until(lambda: "first" in log_of(machine("a")))
    wait_until(lambda: "first" in log_of(machine("b")))
    writer.add(b"second\n")
    wait_until(lambda: "second" in log_of(machine("a")))
    wait_until(lambda: "second" in log_of(machine("b")))
    writer.end("ended")
    assert writer.wait(30)


def test_it_stays_bounded(machine: Machine) -> None:
    settings, writer = machine("a"), begin(machine("a"))
    wait_until(JobLog.of(settings, JOB).path.exists)
    for round_ in range(40):
        for number in range(1000):
            writer.add(b"%03d %05d %s\n" % (round_, number, b"." * 100))
        wait_until(lambda: writer._num_bytes < HEAD_BYTES)
        assert JobLog.of(settings, JOB).path.stat().st_size < LONGEST_BYTES + 2 * HEAD_BYTES
    writer.end("ended")
    assert writer.wait(30)
    data = read_log(machine("b"), JOB, 100_000)
    assert len(data) < LONGEST_BYTES + 100
    assert "000 00000" in data
    assert "039 00999" in data
    assert "020 00000" not in data
    assert data.count("bytes were left out here; what follows is of run 1 ---") == 1


def test_what_waits_too_long_is_dropped_and_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that cannot write yet: somebody else holds the log."""
    monkeypatch.setattr(log_writer, "MOST_WAITING_BYTES", 100)
    job_log = JobLog.of(machine("a"), JOB)
    job_log.path.parent.mkdir(parents=True)
    with job_log.lock():
        writer = begin(machine("a"))
        for number in range(20):
            writer.add(b"number %02d\n" % number)
    writer.end("ended")
    assert writer.wait(30)
    lines = log_of(machine("a"))
    assert lines[1:3] == ["=== 100 bytes were lost here ===", "number 10"]
    assert lines[-2] == "number 19"


def test_a_killed_writer_is_gone_on_with(machine: Machine) -> None:
    """What was not published yet is on its machine; elsewhere what was published."""
    run(machine("a"), "published")
    job_log = JobLog.of(machine("a"), JOB)
    published = job_log.read_published()
    assert published is not None
    job_log.path.parent.mkdir(parents=True)
    left = published.dump() + b"=== run 2 began now on a, process 2 ===\nnot published\ntorn li"
    job_log.path.write_bytes(left)
    assert "not published" in log_of(machine("a"))
    assert "not published" not in log_of(machine("b"))
    run(machine("a"), "after")
    lines = log_of(machine("b"))
    assert lines[lines.index("not published") + 1] == "torn li"
    assert lines[lines.index("torn li") + 1].startswith("=== run 3 began")
    assert "after" in lines


def test_a_stale_file_gives_way_to_what_others_have_published(machine: Machine) -> None:
    job_log = JobLog.of(machine("a"), JOB)
    job_log.path.parent.mkdir(parents=True)
    job_log.path.write_bytes(b"=== run 1 began now on a, process 1 ===\n" + b"stale\n" * 100)
    run(machine("b"), "one")
    run(machine("b"), "two")
    assert "two" in log_of(machine("a"))
    run(machine("a"), "three")
    lines = log_of(machine("b"))
    assert [line for line in lines if "===" not in line] == ["one", "two", "three"]


def test_a_job_that_another_machine_goes_on_with_is_left_to_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PUBLISH_SECONDS", 0.0)
    slow = begin(machine("a"))
    slow.add(b"slow\n")
    wait_until(lambda: "slow" in log_of(machine("b")))
    run(machine("b"), "quick")
    slow.add(b"late\n")
    slow.end("ended")
    assert slow.wait(30)
    lines = log_of(machine("a"))
    assert "quick" in lines
    assert "slow" in lines
    assert "late" not in lines


def test_a_deleted_job_has_no_log_and_gets_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PUBLISH_SECONDS", 0.0)
    for deleted_by in MACHINES:
        writer = begin(machine("a"))
        writer.add(b"something\n")
        wait_until(lambda: "something" in log_of(machine("b")))
        JobLog.of(machine(deleted_by), JOB).remove()
        writer.add(b"more\n")
        writer.end("ended")
        assert writer.wait(30)
        with pytest.raises(NotFoundError, match=f"there is no log of job '{JOB}'"):
            read_log(machine("a"), JOB, 10)
        assert not (machine("a").home / "jobs" / JOB).exists()
    JobLog.of(machine("a"), JOB).remove()


def test_a_store_out_of_reach_is_told_once_and_tried_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PUBLISH_SECONDS", 0.0)
    run(machine("b"), "of another machine")

    def fail(self: JobLog, *_: object) -> None:
        raise StoreError("the store is away")

    with structlog.testing.capture_logs() as entries:
        with monkeypatch.context() as away:
            for method in ("read_published", "published_size", "publish"):
                away.setattr(JobLog, method, fail)
            writer = begin(machine("a"))
            writer.add(b"in the dark\n")
            wait_until(lambda: "in the dark" in log_of(machine("a")))
            time.sleep(3 * log_writer.WRITE_SECONDS)
        writer.add(b"in the light\n")
        writer.end("ended")
        assert writer.wait(30)
    assert [entry["reason"] for entry in entries] == ["the store is away"]
    lines = log_of(machine("c"))
    assert [line for line in lines if "===" not in line] == [
        *("of another machine", "in the dark", "in the light")
    ]
    assert sum(line.startswith("=== run 2 began") for line in lines) == 1


def test_what_never_reached_the_store_stays_here(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: JobLog, data: bytes) -> None:
        raise StoreError("the store is full")

    with monkeypatch.context() as full:
        full.setattr(JobLog, "publish", fail)
        run(machine("a"), "kept")
    assert "kept" in log_of(machine("a"))
    assert log_of(machine("b")) == []


def test_logs_that_a_killed_coordinator_left_are_published(
    machine: Machine, database: Database
) -> None:
    settings = machine("a")
    with database.write() as session:
        there = searches.create_search(session, {}, owner_kind="service").id
        gone = searches.create_search(session, {}, owner_kind="service").id
        jobs.delete_job(session, gone)
    for job_id in (there, gone):
        path = JobLog.of(settings, job_id).path
        path.parent.mkdir(parents=True)
        path.write_bytes(b"=== run 1 began now on a, process 1 ===\nlast words\n")
    at_work = begin(settings)
    at_work.add(b"at work\n")
    wait_until(lambda: "at work" in log_of(settings))
    publish_what_was_left(settings, database)
    assert "last words" in read_log(machine("b"), there, 10)
    with pytest.raises(NotFoundError):
        read_log(settings, gone, 10)
    assert [path.name for path in (settings.home / "jobs").iterdir()] == [JOB]
    at_work.end("ended")
    assert at_work.wait(30)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_log_and_nothing_else(machine: Machine, small_disk: Path) -> None:
    settings = replace(machine("a"), home=small_disk)
    with structlog.testing.capture_logs() as entries:
        writer = begin(settings)
        for number in range(10_000):
            writer.add(b"%05d %s\n" % (number, b"." * 100))
        wait_until(lambda: writer._given_up)
        writer.add(b"goes nowhere\n")
        writer.end("ended")
        assert writer.wait(30)
    given_up = [e for e in entries if e["event"] == "the log of a job is given up"]
    assert len(given_up) == 1
    assert "No space left on device" in given_up[0]["reason"]
    assert given_up[0]["search"] == JOB
    assert "=== run 1 began" in read_log(machine("b"), JOB, 10_000)


def test_a_disk_that_is_full_before_it_begins_ends_the_log(
    machine: Machine, small_disk: Path
) -> None:
    (small_disk / "filler").write_bytes(b"." * 256 * 1024)
    settings = replace(machine("a"), home=small_disk)
    with structlog.testing.capture_logs() as entries:
        run(settings, "something")
    assert [entry["event"] for entry in entries] == ["the log of a job is given up"]
