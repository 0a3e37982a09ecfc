"""What pydantic says of a value in words that need no Python, for the program and the service."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

Item = TypeVar("Item", bound=Mapping[str, Any])

PATTERNS: Final[Mapping[str, str]] = {
    r"^[\w.-]+$": "letters, digits, points, lines and underscores only",
    r"^\w[\w.-]*$": "letters, digits, points, lines and underscores only, and first neither a "
    "point nor a line",
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$": "letters, digits and any of . _ : / - only, and first a "
    "letter or a digit",
    r"^[^\x00-\x1f]+$": "one line of text only, without control characters",
    r"^[^\x00]*$": "text without NUL characters only",
    r"^[!-~]{1,200}$": "from 1 to 200 visible characters of ASCII only",
    ":": "write package.module:Class",
}
"""Pattern of a text → what it lets through."""


def plain_words(item: Mapping[str, Any]) -> str | None:
    """Word a problem for which pydantic speaks of tuples and regular expressions.

    Args:
        item: of its ``errors()``.

    Returns:
        A clause that stands for itself; None where pydantic's own will do.
    """
    kind, context = item["type"], item.get("ctx", {})
    if kind == "string_pattern_mismatch":
        return _of_pattern(context["pattern"])
    if kind == "too_short":
        least, count = context["min_length"], context["actual_length"]
        return "give at least one" if least == 1 else f"give at least {least}, not {count}"
    if kind == "too_long":
        return f"give at most {context['max_length']}, not {context['actual_length']}"
    return "write a list" if kind == "tuple_type" else None


def tells_given(item: Mapping[str, Any]) -> bool:
    """Whether the words for a problem are clearer with what was given after them."""
    return item["type"] not in ("too_short", "too_long")


def without_echoes(items: Sequence[Item]) -> list[Item]:
    """Leave out that a list is too short where that is so only for a wrong entry of it."""
    places = [tuple(item["loc"]) for item in items]

    def is_echo(item: Item) -> bool:
        place = tuple(item["loc"])
        inner = (other for other in places if len(other) > len(place))
        return item["type"] == "too_short" and any(other[: len(place)] == place for other in inner)

    return [item for item in items if not is_echo(item)]


def _of_pattern(pattern: str) -> str | None:
    choices = re.fullmatch(r"\^(-\?)?\(([^()]*)\)\$", pattern)
    if choices is None:
        return PATTERNS.get(pattern)
    names = ", ".join(choices[2].split("|"))
    return f"one of {names}" + (", with a minus before it to fall" if choices[1] else "")
