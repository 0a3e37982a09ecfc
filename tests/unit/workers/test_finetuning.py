"""How much room there is for fine-tunings; the workers themselves are in integration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.finetuning import finetunings_at_once
from workers.machine import Machine

GIB = 2**30
MACHINE = Machine("a machine", 8, 8, 0, 64 * GIB, 0, False, False)


@pytest.mark.parametrize(
    ("machine", "device", "threads", "weights", "wanted"),
    [
        (MACHINE, "cpu", 1, GIB // 8, 8),
        (MACHINE, "cpu", 3, GIB // 8, 2),
        (MACHINE, "cpu", 16, GIB // 8, 1),
        (replace(MACHINE, free_bytes=9 * GIB), "cpu", 1, GIB // 8, 3),
        (replace(MACHINE, free_bytes=GIB), "cpu", 1, GIB, 1),
        (replace(MACHINE, total_cores=16, free_bytes=9 * GIB), "cpu", 1, GIB // 8, 6),
        (replace(MACHINE, gpus=4), "cuda", 1, 2 * GIB, 4),
    ],
)
def test_fine_tunings_have_room_by_cores_and_memory(
    machine: Machine, device: str, threads: int, weights: int, wanted: int
) -> None:
    assert finetunings_at_once(machine, device, threads, weights) == wanted
