from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdnas.distill.numerics import num_threads


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Products of tiny matrices are slower on several threads."""
    with num_threads(1):
        yield
