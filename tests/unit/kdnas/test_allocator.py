from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from kdnas.allocator import FEW_ARENAS

FAULTS = """
import resource, sys
import numpy as np
from kdnas.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
np.ones(2**23)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    np.ones(2**23)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Page faults of five times 64 MiB after the first."""


ARENAS = """
import sys, threading
from kdnas.allocator import share_freed_memory

if sys.argv[1] == "shared":
    share_freed_memory()
together = threading.Barrier(8)


def work():
    together.wait()
    held = [bytes(2**14) for _ in range(2**8)]
    together.wait()


threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads:
    one.start()
for one in threads:
    one.join()
found, whole = 0, []
for line in open("/proc/self/maps"):
    place, mode, *_, inode = line.split()[:5]
    begin, end = (int(number, 16) for number in place.split("-"))
    if mode.startswith("---") and whole and whole[-1] == begin:
        found += inode == "0" and end % 2**26 == 0
    whole = [end] if mode.startswith("rw") and inode == "0" and begin % 2**26 == 0 else []
print(found)
"""
"""Arenas beside the heap: they begin at a multiple of 64 MiB, and the rest is set aside."""

PIECES = """
import sys, time
import psutil
from kdnas import allocator

allocator.GIVE_BACK_SECONDS = 0.05
if sys.argv[1] == "given back":
    allocator.give_back_freed_memory()
held = [bytes(2000) for _ in range(100_000)]
held = held[::100]
time.sleep(1)
print(psutil.Process().memory_info().rss)
"""
"""Memory of a process that has let go of 198 of 200 MB, in pieces."""

glibc_only = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other allocators are left as is"
)


@glibc_only
def test_threads_share_two_arenas() -> None:
    shared, as_is = (
        int(subprocess.check_output([sys.executable, "-c", ARENAS, how], text=True))
        for how in ("shared", "as is")
    )
    assert shared < FEW_ARENAS < as_is


@glibc_only
def test_what_is_freed_is_taken_again_without_a_page_fault() -> None:
    kept, as_is = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS, how], text=True))
        for how in ("kept", "as is")
    )
    assert 10 * kept < as_is


@glibc_only
def test_what_is_freed_in_pieces_is_given_back() -> None:
    given_back, as_is = (
        int(subprocess.check_output([sys.executable, "-c", PIECES, how], text=True))
        for how in ("given back", "as is")
    )
    assert given_back < as_is - 100e6
