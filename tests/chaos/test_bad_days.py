"""Full disks, stores in trouble, clocks that jump, nodes and memory that go while work is done."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kdnas.db.exploration import candidates
from kdnas.db.migrate import upgrade
from kdnas.db.models import Job
from kdnas.testing.chaos import LONGEST_SECONDS, Ground, Work
from kdnas.testing.troubles import (
    FullDisk,
    StoreInTrouble,
    suffer_by_command,
    suffer_by_service,
)
from kdnas.testing.webhdfs_server import StoreServer, store_server

pytestmark = pytest.mark.slow  # works are done several times


def made(folder: Path, seed: int, database: Path | None = None, **more: str) -> Ground:
    (folder / "home").mkdir(parents=True)
    url = f"sqlite:///{database or folder / 'home' / 'kdnas.db'}"
    upgrade(url)
    return Ground(folder, url, seed, **more)


def called(ground: Ground, label: str) -> Work:
    (work,) = [work for work in ground.works if work.label == label]
    return work


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullDisk]:
    """A disk of its own, on which everything lies."""
    folder = tmp_path_factory.mktemp("a small disk")
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    try:
        mounted = FullDisk(folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a disk cannot be mounted here: {error}")
    yield mounted
    mounted.unmount()


@pytest.fixture(scope="module")
def on_disk(disk: FullDisk) -> Iterator[Ground]:
    with made(disk.folder, seed=4) as ground:
        yield ground


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with store_server(tmp_path_factory.mktemp("remote")) as running:
        yield running


@pytest.fixture(scope="module")
def on_store(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("with a store")
    with made(folder, seed=4, KDNAS_STORE=server.url) as ground:
        yield ground


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with made(tmp_path_factory.mktemp("by the clock"), seed=4) as ground:
        yield ground


@pytest.mark.parametrize("label", ["distillation", "pipeline"])
def test_a_disk_that_fills_up_ends_a_command_in_a_sentence(
    on_disk: Ground, disk: FullDisk, label: str
) -> None:
    said = [suffer_by_command(on_disk, called(on_disk, label), disk) for _ in range(2)]
    assert any("No space left on device" in one or "the disk is full" in one for one in said), said
    assert all(not one or "free" in one for one in said), said


def test_a_disk_that_fills_up_ends_a_job_of_the_service_in_a_sentence(
    disk: FullDisk, tmp_path: Path
) -> None:
    """The database lies elsewhere: on the same disk it may be met first, and is waited for."""
    with made(disk.folder / "of the service", seed=4, database=tmp_path / "kdnas.db") as ground:

        def has_checkpoint(job_id: str) -> bool:
            folder = ground.settings.home / "distillations" / job_id / "checkpoints"
            return any(folder.glob("step-*/checkpoint.json"))

        said = suffer_by_service(ground, called(ground, "distillation"), disk, has_checkpoint)
    assert "No space left on device" in said
    assert "free" in said


def test_a_store_that_answers_errors_ends_a_command_in_a_sentence(
    on_store: Ground, server: StoreServer
) -> None:
    work, trouble = called(on_store, "search"), StoreInTrouble(server, status=503)
    with ExitStack() as stack:  # from the first moment on, for that is when it is asked most
        stack.callback(trouble.end)
        trouble.begin()
        name = on_store.new_name(work)
        ended = on_store.program.run(*on_store.command(work, name), **on_store.environment)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err, ended.err
    assert f"error: cannot reach the store {server.url}: 503" in ended.err
    suffer_by_command(on_store, work, trouble)


def test_a_store_that_answers_late_is_waited_for(on_store: Ground, server: StoreServer) -> None:
    trouble = StoreInTrouble(server, seconds_late=1.5)
    assert suffer_by_command(on_store, called(on_store, "distillation"), trouble) == ""


def test_a_store_that_answers_errors_ends_a_job_of_the_service_in_a_sentence(
    on_store: Ground, server: StoreServer
) -> None:
    trouble = StoreInTrouble(server, status=500)
    said = suffer_by_service(on_store, called(on_store, "distillation"), trouble)
    assert not said or "check the store" in said


@pytest.mark.parametrize(
    ("label", "jumps"),
    [
        ("search", ["+3d"]),
        ("distillation", ["-2h"]),
        ("task_distillation", ["+400d", "+0", "-3h"]),
    ],
)
def test_a_clock_that_jumps_changes_nothing(
    plain: Ground, tmp_path: Path, label: str, jumps: list[str]
) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("libfaketime, which sets the clock of one process, is not installed")
    work, clock = called(plain, label), tmp_path / "clock"
    expected, _ = plain.expected(work, True)
    clock.write_text("+0\n")
    name = plain.new_name(work)
    process = plain.program.start(
        *plain.command(work, name),
        **plain.environment,
        LD_PRELOAD=str(library),
        FAKETIME_TIMESTAMP_FILE=str(clock),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
        NO_FAKE_STAT="1",
    )
    wait_until(lambda: process.poll() is not None or is_at_work(plain, work, name))
    for jump in jumps:
        clock.write_text(f"{jump}\n")
        time.sleep(0.5)
    _, err = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 0, err
    job_id = plain.find(work, name)
    assert job_id is not None
    assert plain.outcome(work, job_id) == expected


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not begin"
        time.sleep(0.02)


def is_at_work(ground: Ground, work: Work, name: str) -> bool:
    with ground.database.read() as session:
        found = session.query(Job.status).filter(Job.kind == work.kind, Job.name == name)
        return found.scalar() == "running"


@pytest.mark.ray
def test_a_node_that_vanishes_and_comes_back_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    with ExitStack() as stack:
        stack.callback(cluster.shutdown)
        node = cluster.add_node(num_cpus=2)
        folder = tmp_path_factory.mktemp("on a cluster")
        ground = stack.enter_context(made(folder, 4, KDNAS_RAY_ADDRESS=cluster.address))
        work = called(ground, "search on Ray")
        expected, _ = ground.expected(work, True)
        name = ground.new_name(work)
        process = ground.program.fork(*ground.command(work, name), **ground.environment)
        wait_until(lambda: process.has_ended or num_trained(ground, work, name) > 0)
        assert not process.has_ended
        cluster.remove_node(node, allow_graceful=False)
        time.sleep(3)
        cluster.add_node(num_cpus=2)
        ended = process.wait(LONGEST_SECONDS)
        assert ended.code == 0, ended.err
        job_id = ground.find(work, name)
        assert job_id is not None
        assert ground.outcome(work, job_id) == expected


def num_trained(ground: Ground, work: Work, name: str) -> int:
    job_id = ground.find(work, name)
    if job_id is None:
        return 0
    with ground.database.read() as session:
        found = candidates.list_episodes(session, job_id)
    return sum(one.status == "succeeded" for episode in found for one in episode.candidates)


@pytest.mark.ray
def test_a_machine_without_memory_ends_a_search_in_a_sentence(plain: Ground) -> None:
    work = called(plain, "search on Ray")
    name = plain.new_name(work)
    # Ray's own watch, which kills workers where a node's memory is nearly used up.
    short = {"RAY_memory_usage_threshold": "0.0001", "RAY_memory_monitor_refresh_ms": "100"}
    ended = plain.program.run(*plain.command(work, name), **plain.environment, **short)
    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err, ended.err
    said = next(line for line in ended.err.splitlines() if line.startswith("error: "))
    assert said.startswith("error: the workers died with every one of the 4 candidates")
    assert "memory" in said
    expected, _ = plain.expected(work, True)
    ended = plain.program.run(*plain.command(work, name), **plain.environment)
    assert ended.code == 0, ended.err
    job_id = plain.find(work, name)
    assert job_id is not None
    assert plain.outcome(work, job_id) == expected
