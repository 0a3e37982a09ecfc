"""Options that say which place of a request they set."""

from __future__ import annotations

from operator import not_
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from kdnas.cli.options.places import At, nested, refuse_with_resume, request_of
from kdnas.errors import SpecError

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
