"""Devices, number formats and seeds of the engine."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal

import torch

from kdnas.cpu import is_fast_at_bfloat16
from kdnas.errors import SpecError

Device = Literal["cpu", "cuda"]


def choose_device(wanted: str) -> Device:
    """Return ``cuda`` or ``cpu``; ``auto`` takes a GPU where there is one.

    Raises:
        SpecError: a GPU was asked for and there is none.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise SpecError("device cuda was asked for, but torch sees no GPU; take the device cpu")
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if wanted == "cuda" else "cpu"


def own_device(wanted: str) -> Device:
    """Return what this machine takes for a part of work whose rest goes to another one's device.

    Only ``cpu`` keeps it from a GPU of its own; it is never told ``cuda`` because others have one.
    """
    return choose_device("cpu" if wanted == "cpu" else "auto")


def choose_dtype(wanted: str, device: Device) -> Literal["float32", "bfloat16"]:
    """Return the format of training's forward passes; ``auto`` takes the fast one.

    A CPU is fast at bfloat16 with AVX-512-BF16 or AMX, a GPU from compute capability 8.0 on.
    """
    if wanted != "auto":
        return "bfloat16" if wanted == "bfloat16" else "float32"
    fast = is_gpu_fast_at_bfloat16() if device == "cuda" else is_fast_at_bfloat16()
    return "bfloat16" if fast else "float32"


def is_gpu_fast_at_bfloat16() -> bool:
    """Whether this machine's GPU multiplies in bfloat16 itself."""
    return torch.cuda.get_device_capability()[0] >= 8


def autocast(device: Device, dtype: str) -> AbstractContextManager[object]:
    """Run matrix products in ``dtype``; weights, losses and sums stay in float32."""
    return torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16")


def check_compiler() -> None:
    """Make sure that ``torch.compile`` finds what it builds its kernels with.

    Raises:
        SpecError: there is no C++ compiler, or no header files of Python, or torch lies in a folder
            whose path it cannot hand to the compiler.
    """
    folder = str(Path(torch.__file__).parent)
    if shlex.quote(folder) != folder:
        raise SpecError(
            "training.compile works only where the path of torch has no space, and it is "
            f"{folder}; install kdnas in another folder, or leave compile out"
        )
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise SpecError(
            f"training.compile needs a C++ compiler, and there is no {compiler} here; install one "
            "(on Debian the package g++), name yours in CXX, or leave compile out"
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        raise SpecError(
            f"training.compile needs Python's header files, and {header} is not there; install "
            "them (on Debian the package python3-dev), or leave compile out"
        )


def derived_seed(*parts: object) -> int:
    """Return a 63-bit seed from any printable parts, equal on every machine."""
    digest = hashlib.sha256("|".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@contextmanager
def num_threads(threads: int) -> Iterator[None]:
    """Use this many intra-op threads, and the former number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
