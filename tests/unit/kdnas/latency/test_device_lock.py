from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdnas.errors import LatencyError
from kdnas.latency import device_lock
from kdnas.latency.device_lock import measuring_lock, training_lock

HOLD = """
import sys
from kdnas.latency import device_lock
with getattr(device_lock, sys.argv[1])():
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


def test_who_waits_for_his_turn_says_so_once() -> None:
    messages: list[str] = []
    with (
        measuring_lock(),
        pytest.raises(LatencyError, match="still taken"),
        measuring_lock(0.1, messages.append),
    ):
        pass
    assert len(messages) == 1
