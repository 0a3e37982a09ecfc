from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from kdnas.child_process import end_with_parent

POOL = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from kdnas.child_process import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_of_a_pool_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL, "utf-8")
    done = subprocess.run((sys.executable, str(program)), stdout=subprocess.PIPE, check=False)
    assert done.returncode < 0
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(30)


def test_a_process_that_nobody_started_goes_on() -> None:
    end_with_parent()
