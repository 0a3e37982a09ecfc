from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left as is")
def test_what_is_freed_is_taken_again_without_a_page_fault() -> None:
    kept, as_is = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS, how], text=True))
        for how in ("kept", "as is")
    )
    assert 10 * kept < as_is
