"""Options that say which place of a request they set."""

from __future__ import annotations

from operator import not_
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from kdnas.cli.evaluate import evaluate
from kdnas.cli.launch import launch
from kdnas.cli.main import error_sentence
from kdnas.cli.options.places import (
    At,
    nested,
    refuse_with_resume,
    request_of,
    with_options,
)
from kdnas.cli.search import search
from kdnas.errors import NotFoundError, SpecError

Steps = Annotated[int | None, typer.Option(help="How many."), At("proxy.steps")]


def command(
    steps: Annotated[Steps, At("training.steps")] = None,
    seed: Annotated[int | None, typer.Option(), At("training.seed")] = None,
    no_reuse: Annotated[bool, typer.Option("--no-reuse"), At("proxy.reuse", not_)] = False,
    output: Annotated[Path | None, typer.Option(), At("output", str)] = None,
    tasks: Annotated[list[str] | None, typer.Option(), At("tasks")] = None,
    resume: Annotated[str | None, typer.Option()] = None,
    compiled: Annotated[bool, typer.Option("--compile")] = False,
) -> dict[str, Any]:
    """A command that says what it was given."""
    return locals()


def test_what_is_given_goes_to_its_place() -> None:
    given = command(steps=3, seed=0, no_reuse=True, output=Path("here"), tasks=[], resume="one")
    assert request_of(command, given) == {
        "training": {"steps": 3, "seed": 0},
        "proxy": {"reuse": False},
        "output": "here",
    }
    assert request_of(command, command()) == {}


def test_beside_resume_every_other_option_is_refused_by_its_name() -> None:
    refuse_with_resume(command, command(resume="one", seed=4), {"resume", "seed"})
    with pytest.raises(SpecError, match="so --compile, --no-reuse, --seed cannot be given with it"):
        refuse_with_resume(
            command, command(resume="one", seed=0, no_reuse=True, compiled=True), {"resume"}
        )


def test_paths_are_taken_apart() -> None:
    assert nested({"a.b": 1, "a.c.d": 0, "e": None, "f": [], "g": False}) == {
        "a": {"b": 1, "c": {"d": 0}},
        "g": False,
    }


@pytest.mark.parametrize("names", [("a.b", "a"), ("a", "a.b")])
def test_a_mapping_is_laid_over_its_place(names: tuple[str, str]) -> None:
    values: dict[str, Any] = {"a.b": 1, "a": {"c": 2}}
    assert nested({name: values[name] for name in names}) == {"a": {"b": 1, "c": 2}}
    values["a"] = 3
    assert nested({name: values[name] for name in names}) == {
        "a": 3 if names[-1] == "a" else {"b": 1}
    }


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("add `proxy.steps`", "add `proxy.steps` (--steps)"),
        ("add `objective.fit_lm_head` 9", "add `objective.fit_lm_head` (--fit-lm-head) 9"),
        ("run `ray start`, see `no.such`", "run `ray start`, see `no.such`"),
    ],
)
def test_a_sentence_about_a_request_names_the_options_of_the_command(
    sentence: str, said: str
) -> None:
    assert with_options(sentence, search) == said


def test_an_entry_of_a_part_and_one_with_a_value_have_their_options() -> None:
    assert with_options("add `limits.max_latency_ratio`", launch).endswith("(--max-latency-ratio)")
    assert with_options("leave out `training: false`", evaluate).endswith("(--no-training)")


def test_an_error_ends_with_the_command_that_lists_what_there_is() -> None:
    error = NotFoundError("there is no search 'x'", listed_in="searches")
    assert error_sentence(error, ["searches", "show", "x"]) == (
        "there is no search 'x'; `kdnas searches list` shows all"
    )
