"""Folders in use are left where they are, those that are not go in one step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kdnas import in_use
from kdnas.in_use import REMOVED_PREFIX, is_held, note_use, take_away

HOLDS = """
import sys, time
from pathlib import Path
from kdnas.in_use import note_use
print(note_use(Path(sys.argv[1]), hold=True), flush=True)
time.sleep(600)
"""
LONG_AGO = time.time() - 1e6


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    """The sign of a folder that nobody has used for long."""
    return old_folder(tmp_path / "kind" / "one")


def old_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "weights").write_text("w", "utf-8")
    (folder / "sign").write_text("s", "utf-8")
    os.utime(folder / "sign", (LONG_AGO, LONG_AGO))
    return folder / "sign"


def test_what_nobody_uses_goes_in_one_step(sign: Path) -> None:
    aside = take_away(sign, LONG_AGO + 1)
    assert aside is not None
    assert aside.name.startswith(REMOVED_PREFIX)
    assert (aside / "weights").read_text("utf-8") == "w"
    assert not sign.parent.exists()
    assert not note_use(sign)
    assert take_away(sign, LONG_AGO + 1) is None
    assert not is_held(sign)


def test_what_was_used_lately_stays(sign: Path) -> None:
    assert note_use(sign)
    assert sign.stat().st_mtime > time.time() - 60
    assert take_away(sign, time.time() - 60) is None
    assert sign.exists()


def test_what_a_living_process_holds_stays_until_it_is_dead(sign: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(sign)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert is_held(sign)
        assert take_away(sign, time.time() + 60) is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not is_held(sign)
    assert take_away(sign, time.time() + 60) is not None


def test_who_comes_during_the_removal_finds_nothing_or_keeps_it(tmp_path: Path) -> None:
    """Whoever is told that a folder is there finds all of it afterwards."""
    lost: list[Path] = []
    told: list[bool] = []

    def use(sign: Path, begin: threading.Barrier) -> None:
        begin.wait()
        told.append(note_use(sign))
        if told[-1] and not (sign.parent / "weights").exists():
            lost.append(sign)

    for number in range(200):
        sign = old_folder(tmp_path / str(number))
        begin = threading.Barrier(2)
        user = threading.Thread(target=use, args=(sign, begin))
        user.start()
        begin.wait()
        aside = take_away(sign, LONG_AGO + 1)
        user.join()
        assert told[-1] == (aside is None)
    assert lost == []


def num_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_process_keeps_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_use, "_MOST_HELD", 3)
    monkeypatch.setattr(in_use, "_held", type(in_use._held)())
    before = num_open()
    signs = [old_folder(tmp_path / str(number)) for number in range(6)]
    for sign in [*signs, *signs]:
        assert note_use(sign, hold=True)
    assert num_open() == before + 3
    assert [is_held(sign) for sign in signs] == [False] * 3 + [True] * 3
    for descriptor in in_use._held.values():
        os.close(descriptor)


def test_a_folder_that_cannot_be_written_is_used_all_the_same(sign: Path) -> None:
    sign.chmod(0o400)
    assert note_use(sign)
