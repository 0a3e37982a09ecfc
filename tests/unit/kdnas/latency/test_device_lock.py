from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from kdnas.errors import LatencyError
from kdnas.latency import device_lock
from kdnas.latency.device_lock import (
    measured_by,
    measuring_lock,
    training_lock,
    training_turn,
)

HOLD = """
import sys
from kdnas.latency import device_lock
lock = sys.argv[1]
sys.argv = ["/somewhere/kdnas", "latency", "build", "--teacher", "secret"]
with getattr(device_lock, lock)():
    print("held", flush=True)
    sys.stdin.read()
print("freed", flush=True)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))


@contextmanager
def process(lock: str, wait_until_held: bool = True) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, lock]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            if wait_until_held:
                assert child.stdout is not None
                assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()


def test_trainings_share_the_machine() -> None:
    with process("training_lock"), training_lock(wait_seconds=0):
        pass


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("training_lock", measuring_lock),
        ("measuring_lock", measuring_lock),
        ("measuring_lock", training_lock),
    ],
)
def test_measuring_shares_with_nobody_and_a_kill_frees(theirs, ours) -> None:  # type: ignore[no-untyped-def]
    messages: list[str] = []
    with process(theirs) as child:
        with pytest.raises(LatencyError, match="still taken"), ours(0.2, messages.append):
            pass
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with ours(wait_seconds=0):
            pass
    assert len(messages) == 1
    assert messages[0].startswith("waiting for")


def test_a_waiting_measurement_goes_before_new_trainings() -> None:
    with training_lock(), process("measuring_lock", wait_until_held=False) as child:
        # The measurement has the gate as soon as nobody else can have it.
        for _ in range(600):
            try:
                with training_lock(wait_seconds=0):
                    pass
            except LatencyError:
                break
            device_lock.time.sleep(device_lock.POLL_SECONDS)
        else:
            pytest.fail("the measurement never stood in the gate")
        assert child.poll() is None


def test_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    device_lock.lock_folder().write_text("a file, not a folder")
    with (
        pytest.raises(LatencyError, match="cannot be opened"),
        training_lock(),
    ):
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_somebody_else_is_no_place_for_locks(tmp_path: Path) -> None:
    folder = device_lock.lock_folder()
    folder.mkdir()
    os.chown(folder, 54_321, -1)
    with training_lock():  # where only its owner could have made it, it is meant to be shared
        pass
    tmp_path.chmod(0o1777)
    with pytest.raises(LatencyError, match=r"was made by another user \(54321\)"), training_lock():
        pass
    os.chown(folder, 0, -1)
    with training_lock():
        pass


def test_who_waits_for_his_turn_says_so_once() -> None:
    messages: list[str] = []
    with (
        measuring_lock(),
        pytest.raises(LatencyError, match="still taken"),
        measuring_lock(0.1, messages.append),
    ):
        pass
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("measuring_lock", training_lock), ("training_lock", measuring_lock)],
)
def test_who_waits_says_for_whom_and_since_when(theirs, ours) -> None:  # type: ignore[no-untyped-def]
    messages: list[str] = []
    began = datetime.now().replace(microsecond=0)
    with (
        process(theirs) as child,
        pytest.raises(LatencyError) as refused,
        ours(0.2, messages.append),
    ):
        pass
    (told,) = messages
    who, _, since = told.partition(": ")[2].rpartition(", since ")
    assert who == f"kdnas latency (process {child.pid})"
    at = datetime.strptime(since, "%H:%M:%S").time()
    assert began.time() <= at <= datetime.now().time()
    assert f"{who}, since" in str(refused.value)


def test_notes_go_with_their_locks_and_those_of_the_dead_are_swept_away() -> None:
    notes = device_lock.lock_folder() / device_lock.NOTES
    with process("measuring_lock") as child:
        assert len(list(notes.iterdir())) == 1
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert len(list(notes.iterdir())) == 1
    messages: list[str] = []
    with (
        process("training_lock") as alive,
        pytest.raises(LatencyError),
        measuring_lock(0.2, messages.append),
    ):
        pass
    assert f"process {alive.pid}" in messages[0]
    assert f"process {child.pid}" not in messages[0]
    with measuring_lock():
        assert len(list(notes.glob(f"{os.getpid()}-*.json"))) == 1
    assert not list(notes.glob(f"{os.getpid()}-*.json"))


def test_who_has_no_number_here_is_told_of_as_well() -> None:
    """A process of another container, whose number here is nobody's or somebody else's."""
    notes = device_lock.lock_folder() / device_lock.NOTES
    messages: list[str] = []
    with process("measuring_lock") as child:
        (note,) = notes.iterdir()
        note.rename(notes / "2147483647-0123abcd.json")
        with pytest.raises(LatencyError), training_lock(0.2, messages.append):
            pass
        assert "kdnas latency (process 2147483647), since" in messages[0]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    (notes / "2147483647-0123abcd.json").rename(notes / f"{os.getpid()}-0123abcd.json")
    assert device_lock.measured_by() is None  # though there is a process of that number
    assert not list(notes.iterdir())


def test_one_waits_without_notes_too() -> None:
    messages: list[str] = []
    with process("measuring_lock"):
        for note in (device_lock.lock_folder() / device_lock.NOTES).iterdir():
            note.write_text("torn")
        with pytest.raises(LatencyError), training_lock(0.2, messages.append):
            pass
    assert messages == ["waiting for a latency measurement on this machine to end"]


def test_a_wait_ends_as_soon_as_it_is_asked_to() -> None:
    class EnoughError(Exception):
        pass

    def check() -> None:
        raise EnoughError

    with process("measuring_lock"), pytest.raises(EnoughError), training_lock(check=check):
        pass


def test_who_waits_may_come_up_for_air() -> None:
    said: list[str] = []
    with process("measuring_lock") as child, ExitStack() as machine:
        for text in training_turn(machine, patience=0.2):
            said.append(text)
            assert measured_by() == text
            if len(said) == 2:
                child.kill()
                child.wait()
        assert len(said) == 2
        assert "measurement on this machine to end: kdnas latency (process" in said[0]
        with pytest.raises(LatencyError), measuring_lock(wait_seconds=0):
            pass
        assert measured_by() is None
    with measuring_lock(wait_seconds=0):
        pass
