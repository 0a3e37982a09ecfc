"""What is wrong with a value, in words that need no Python."""

from __future__ import annotations

from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.specs.wording import plain_words


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"methods": []}, "methods: give at least one"),
        ({"seeds": []}, "seeds: give at least one"),
        ({"seeds": [-1]}, "seeds.0: input should be greater than or equal to 0 (given: -1)"),
        ({"seeds": list(range(1001))}, "seeds: give at most 1000, not 1001"),
        ({"seeds": "0,4"}, "seeds: write a list (given: '0,4')"),
        ({"grid": {"betas": []}}, "grid.betas: give at least one"),
        (
            {"name": "a b"},
            "name: letters, digits, points, lines and underscores only (given: 'a b')",
        ),
        (
            {"task": "a\nb"},
            "task: one line of text only, without control characters (given: 'a\\nb')",
        ),
        ({"device": "tpu"}, "device: one of auto, cpu, cuda (given: 'tpu')"),
    ],
)
def test_neither_tuples_nor_regular_expressions_are_spoken_of(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        TaskDistillationSpec.read({"task": "RTE", **given}, "mine")
    assert str(caught.value) == f"mine: {said}"


def test_a_list_of_several_at_least_says_how_many() -> None:
    item = {"type": "too_short", "ctx": {"min_length": 2, "actual_length": 1}}
    assert plain_words(item) == "give at least 2, not 1"
