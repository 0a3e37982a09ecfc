"""Answers written as JSON without being checked again.

Lists come from the database in the shape that the document promises. To validate each row of each
page once more would cost more than reading it; tests do that instead.
"""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response
from pydantic_core import to_json


def rendered(value: Any) -> Response:
    """Answer with a value of plain types, times and dataclasses."""
    return answered(as_json(value))


def as_json(value: Any) -> bytes:
    """Write a value of plain types, times and dataclasses."""
    return to_json(value, inf_nan_mode="null")


def answered(text: bytes) -> Response:
    """Answer with JSON that is written already."""
    return Response(text, media_type="application/json")


def sorting(text: str) -> tuple[str, bool]:
    """Take ``sort`` apart: by what, and whether it falls."""
    return text.removeprefix("-"), text.startswith("-")
