from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.adapters.rounds import StudentSearch
from kdnas.search_space import SearchSpace
from kdnas.specs.search import SearchSpec
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    TEACHER,
    benchmark_ms,
    benchmark_params,
)

MakeSearch = Callable[..., StudentSearch]


@pytest.fixture
def make_search() -> MakeSearch:
    """Searches of the space of formulas, in episodes of 4."""

    def make(
        strategy: str = "controller", space: SearchSpace = BENCHMARK_SPACE, **spec: Any
    ) -> StudentSearch:
        wanted = {"controller": {"strategy": strategy, "candidates": 4}, **spec}
        return StudentSearch(
            space,
            benchmark_ms,
            benchmark_ms(TEACHER),
            benchmark_params,
            SearchSpec.read(wanted, "test"),
        )

    return make
