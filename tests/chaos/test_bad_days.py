"""Disks that fill up, and stores that answer errors or late, while work is done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kdnas.db.migrate import upgrade
from kdnas.testing.chaos import Ground, Work
from kdnas.testing.troubles import (
    FullDisk,
    StoreInTrouble,
    suffer_by_command,
    suffer_by_service,
)
from kdnas.testing.webhdfs_server import StoreServer, store_server

pytestmark = pytest.mark.slow


def made(folder: Path, seed: int, **more: str) -> Ground:
    (folder / "home").mkdir(parents=True)
    url = f"sqlite:///{folder / 'home' / 'kdnas.db'}"
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


@pytest.mark.parametrize("label", ["distillation", "pipeline"])
def test_a_disk_that_fills_up_ends_a_command_in_a_sentence(
    on_disk: Ground, disk: FullDisk, label: str
) -> None:
    said = [suffer_by_command(on_disk, called(on_disk, label), disk) for _ in range(2)]
    assert any("No space left on device" in one or "the disk is full" in one for one in said), said
    assert all(not one or "free" in one for one in said)


def test_a_disk_that_fills_up_ends_a_job_of_the_service_in_a_sentence(
    on_disk: Ground, disk: FullDisk
) -> None:
    said = [suffer_by_service(on_disk, called(on_disk, "distillation"), disk) for _ in range(2)]
    assert any("No space left on device" in one for one in said), said


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
