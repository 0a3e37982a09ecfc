"""What other installed packages add to kdnas: names in an entry point group, and what they mean."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from kdnas.errors import SpecError


def installed(group: str) -> dict[str, str]:
    """Return what installed packages registered in a group: name → ``package.module:Class``."""
    return {point.name: point.value for point in entry_points(group=group)}


def import_named(kind: str, name: str) -> Any:
    """Import what ``package.module:Class`` names.

    Args:
        kind: what it is to be, for the message.
        name: module and attribute.

    Raises:
        SpecError: there is no such module, or nothing of that name in it.
    """
    module_name, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(
            f"{kind} {name!r} cannot be imported: {error}; "
            "write package.module:Class and check that the package is installed"
        ) from error
