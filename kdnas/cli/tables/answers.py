"""What a command answers on stdout: an object for ``--json``, else lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import typer


def print_answer(value: Any) -> None:
    """Print a value as the service answers with it, where it has the same answer."""
    from api.http.rendering import as_json

    typer.echo(as_json(value).decode())


def print_json(value: Any) -> None:
    """Print an answer that is the command line's own."""
    typer.echo(json.dumps(value))


def print_lines(lines: Iterable[str]) -> None:
    """Print text, a line each."""
    for line in lines:
        typer.echo(line)


def answer(value: Any, as_json: bool, lines: Iterable[str]) -> None:
    """Print an answer that is the command line's own: as JSON, or in lines."""
    if as_json:
        print_json(value)
    else:
        print_lines(lines)


def fact_lines(facts: Mapping[str, Any], width: int = 12) -> list[str]:
    """Lay out what each of several words stands for, in two columns."""
    return [f"{word:<{width}} {text}" for word, text in facts.items()]
