"""Files of JSON that others may have written: small ones, read with an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kdnas.reach import ANYWHERE, Reach

MOST_BYTES: Final = 1 << 24
"""Of a file; the configuration of a model of a hundred thousand labels has a fifth."""


def read_json(file: Path, reach: Reach = ANYWHERE) -> Any:
    """Return what is in a file of JSON.

    Args:
        file: to read.
        reach: how it is opened.

    Raises:
        RequestError: it is out of reach.
        OSError: there is no such file, it is something else than a file, or it cannot be read.
        ValueError: it is no JSON, is nested too deeply, or has more than ``MOST_BYTES``.
    """
    with reach.open(file) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_object(file: Path, reach: Reach = ANYWHERE) -> dict[str, Any] | None:
    """Return the object in a file of JSON; None if there is none in it, or no such file.

    Raises:
        RequestError: it is out of reach.
    """
    try:
        content = read_json(file, reach)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
