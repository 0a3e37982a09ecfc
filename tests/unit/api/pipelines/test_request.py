"""What a request for a pipeline becomes before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.pipelines.request import checked_pipeline
from kdnas.specs.pipeline import PipelineSpec
from kdnas.testing.tiny_tasks import write_sst2


@pytest.mark.parametrize(
    ("choose", "limits", "expected"),
    [
        ({"latency_budgets_ms": [3, 9, 6]}, {}, (9, None)),
        ({"latency_budgets_ratio": [0.5, 0.25]}, {}, (None, 0.5)),
        ({"latency_budgets_ratio": [0.5]}, {"max_latency_ms": 20}, (20, None)),
        ({"latency_budgets_ms": [3]}, {"max_latency_ratio": 0.9}, (None, 0.9)),
        ({"latency_budgets_ms": [3]}, {"max_params_millions": 9}, (3, None)),
        ({"top": 2}, {}, (None, None)),
    ],
)
def test_the_search_keeps_to_what_a_budget_could_choose(
    choose: dict[str, Any],
    limits: dict[str, Any],
    expected: tuple[float | None, float | None],
    tmp_path: Path,
) -> None:
    write_sst2(tmp_path)
    asked = {
        "search": {"limits": limits},
        "choose": choose,
        "evaluation": {"suite": "glue", "tasks": ["SST-2"], "data_dir": str(tmp_path)},
    }
    found = checked_pipeline(PipelineSpec.read(asked, "a pipeline")).search.limits
    assert (found.max_latency_ms, found.max_latency_ratio) == expected
    assert found.max_params_millions == limits.get("max_params_millions")
