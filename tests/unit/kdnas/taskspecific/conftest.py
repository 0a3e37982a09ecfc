"""Tasks whose teachers are ready, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdnas.distill.numerics import num_threads
from kdnas.testing.tiny_task_training import TinyTask


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums then come out the same, however many cores there are."""
    with num_threads(1):
        yield


@pytest.fixture(scope="session")
def classes() -> TinyTask:
    return TinyTask.make()


@pytest.fixture(scope="session")
def numbers() -> TinyTask:
    return TinyTask.make(numbers=True)
