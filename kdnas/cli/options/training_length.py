"""One length of training: steps or epochs, whichever was asked for last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdnas.errors import SpecError


def one_length(data: dict[str, Any], given: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Let epochs on the command line win over the steps of a preset.

    Args:
        data: the whole request, merged.
        given: what the command line gave, nested.
        part: ``proxy`` or ``training``.

    Raises:
        SpecError: both were given.
    """
    asked = given.get(part, {})
    if "steps" in asked and "epochs" in asked:
        raise SpecError(
            f"--steps {asked['steps']} and --epochs {asked['epochs']:g} contradict each other; "
            "give one of them"
        )
    if "epochs" in asked:
        return {**data, part: {**data.get(part, {}), "steps": None}}
    return data
