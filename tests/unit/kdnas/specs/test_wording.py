"""What is wrong with a value, in words that need no Python."""

from __future__ import annotations

from typing import Any

import pytest

from kdnas.errors import SpecError
from kdnas.specs.search import SearchSpec
from kdnas.specs.task_distillation import TaskDistillationSpec
from kdnas.specs.wording import shown

RELATIONS = "qq, qk, qv, kq, kk, kv, vq, vk, vv"
A_NAME = "give letters and digits of any script, and any of . _ -, at most 100 characters"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"methods": []},
            "methods: give a list of at least 1, each one of none, vanilla-kd, pkd, mhkd, alp-kd, "
            "takd, dih, annealing-kd, universal-kd-il, universal-kd-cg, universal-kd-ca, "
            "universal-kd-weighted, not none",
        ),
        ({"seeds": [-1]}, "seeds.0: give a whole number from 0 to 2147483647, not -1"),
        (
            {"seeds": list(range(1001))},
            "seeds: give a list of 1 to 1000, each a whole number from 0 to 2147483647, not 1001",
        ),
        (
            {"seeds": "0,4"},
            "seeds: give a list of 1 to 1000, each a whole number from 0 to 2147483647, not '0,4'",
        ),
        (
            {"grid": {"betas": []}},
            "grid.betas: give a list of at least 1, each a number from 0 to 1, not none",
        ),
        ({"name": "a b"}, f"name: name 'a b' has a space in it; {A_NAME}"),
        (
            {"task": "a\nb"},
            "task: give one line of text without control characters, at most 100 characters, not "
            "'a\\nb'",
        ),
        ({"device": "tpu"}, "device: give one of auto, cpu, cuda, not 'tpu'; did you mean 'cpu'?"),
        ({"beta": None, "dropout": "much"}, "dropout: give a number of at least 0 and below 1, "
         "not 'much'"),
        ({"max_steps": None, "cache": True}, "cache: give one of auto, always, never, not true"),
        ({"max_steps": True}, "max_steps: give a whole number from 1 to 1000000000, not true"),
        ({"dropout": False}, "dropout: give a number of at least 0 and below 1, not false"),
        (
            {"seeds": [1, True]},
            "seeds: give a list of 1 to 1000, each a whole number from 0 to 2147483647, not [1, "
            "true]",
        ),
        ({"lr": 1}, "unknown key 'lr'. Known: "),
        ({"grid": {"beta": [1]}}, "unknown key 'grid.beta', did you mean 'grid.betas'? Known: "),
    ],
)  # fmt: skip
def test_each_problem_says_the_value_and_what_would_be_right(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        TaskDistillationSpec.read({"task": "RTE", **given}, "mine")
    assert str(caught.value).startswith(f"mine: {said}")


@pytest.mark.parametrize(
    ("objective", "path", "said"),
    [
        ({"mapping": "unifrom"}, "mapping", "give one of single, last, uniform, "),
        ({"mapping": {"a": [1]}}, "mapping.a", "give as key a whole number of at least 1, not 'a'"),
        ({"mapping": {"1": ["x"]}}, "mapping.1.0", "give a whole number from 1 to 1000, not 'x'"),
        ({"name": "minilmv2", "relations": {"xx": 1}}, "relations.xx",
         f"give as key one of {RELATIONS}, not 'xx'"),
        ({"name": "minilmv2", "relations": ["xx"]}, "relations.0",
         f"give one of {RELATIONS}, not 'xx'"),
        ({"name": "minilmv2", "teacher_layer": "serch"}, "teacher_layer",
         "give a whole number from 1 to 1000, or one of auto, search, not 'serch'; did you mean "
         "'search'?"),
    ],
)  # fmt: skip
def test_readings_and_tags_of_unions_are_no_part_of_a_path(
    objective: dict[str, Any], path: str, said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        SearchSpec.read({"objective": objective}, "")
    (field,) = caught.value.fields
    assert field.field == f"objective.{path}"
    assert field.message.startswith(said)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        ("a\0", "'a\\x00'"),
        ([None, {"a": False}], "[null, {'a': false}]"),
        ("x" * 100, "'" + "x" * 27 + "..." + "x" * 28 + "'"),
        (10**50, "a number of 51 digits or so"),
        (float("nan"), "nan"),
    ],
)
def test_values_are_shown_as_in_json_and_short(value: object, words: str) -> None:
    assert shown(value) == words


def test_of_very_many_problems_the_first_are_told() -> None:
    """In time that grows with their number, not with its square."""
    with pytest.raises(SpecError) as caught:
        TaskDistillationSpec.read({"task": "RTE", "grid": {"betas": ["x"] * 30_000}}, "mine")
    assert len(caught.value.fields) == 100
    assert str(caught.value).startswith("mine: at least 100 problems:\n  - grid.betas.0: give a ")
    assert caught.value.fields[-1].field == "grid.betas.99"
