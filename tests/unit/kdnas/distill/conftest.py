from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kdnas.distill.numerics import num_threads
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Equal threads are part of the engine's contract; one is fastest for tiny students."""
    before = torch.get_rng_state()
    with num_threads(1):
        yield
    torch.set_rng_state(before)
