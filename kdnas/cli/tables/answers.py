"""What ``--json`` prints where the service has an answer of its own: the same JSON."""

from __future__ import annotations

from typing import Any

import typer


def print_answer(value: Any) -> None:
    """Print a value as the service answers with it."""
    from api.http.rendering import as_json

    typer.echo(as_json(value).decode())
