"""A wrong command line in one sentence: what was given, what is wrong with it, where to look."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import typer

UsageError: Any = typer.BadParameter.__base__
"""What typer raises for any wrong command line; it has no public name of its own."""

_EXTRA: Final = re.compile(r"Got unexpected extra argument\(?s?\)? \((.*)\)")


def usage_sentence(error: Any, arguments: Sequence[str]) -> str:
    """Word what is wrong with a command line; a group without a command shows its help.

    Args:
        error: a :data:`UsageError`.
        arguments: of the command line, in which the value of an option is looked up.
    """
    message = str(error.format_message()).strip()
    if "\n" in message:  # the help of a group that was called without a command
        return message
    parameter = getattr(error, "param", None)
    if isinstance(error, typer.BadParameter) and parameter is not None and error.message:
        name = next((opt for opt in parameter.opts if opt.startswith("--")), parameter.name.upper())
        value = _given(parameter.opts, arguments)
        message = f"{name}{'' if value is None else f' {value}'}: {_lowered(error.message)}"
    message = re.sub(_EXTRA, r"unexpected argument '\1'; a value with spaces needs quotes", message)
    message = _lowered(message).replace(". Did you mean", ", did you mean").rstrip(".?")
    where = "kdnas" if error.ctx is None else error.ctx.command_path
    return f"error: {message}; see {where} --help"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _given(names: Sequence[str], arguments: Sequence[str]) -> str | None:
    """The value that an option was given last; None if it is no option, or stands nowhere."""
    for number in range(len(arguments) - 1, -1, -1):
        name, equals, value = arguments[number].partition("=")
        if name in names:
            return value if equals else next(iter(arguments[number + 1 :]), None)
    return None
