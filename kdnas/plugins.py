"""What other installed packages add to kdnas: names in an entry point group, and what they mean."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from kdnas.errors import KdnasError, PluginError, SpecError


def installed(group: str) -> dict[str, str]:
    """Return what installed packages registered in a group: name → ``package.module:Class``."""
    return {point.name: point.value for point in entry_points(group=group)}


def import_named(kind: str, name: str) -> Any:
    """Import what ``package.module:Class`` names.

    Args:
        kind: what it is to be, for the message.
        name: module and attribute.

    Raises:
        SpecError: there is no such module, or nothing of that name in it, or it raised something.
    """
    module_name, _, attribute = name.partition(":")
    try:
        if not module_name:  # for which there is a ValueError, as there may be one of the module's
            raise ImportError("it names no module")
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise SpecError(
            f"{kind} {name!r} cannot be imported: {_line(error)}; "
            "write package.module:Class and check that the package is installed"
        ) from error
    except (Exception, SystemExit) as error:  # a module of somebody else may raise anything
        raise SpecError(
            f"{kind} {name!r} cannot be imported: {module_name} raised {_named(error)}; mend it "
            "there"
        ) from error


def build_named(kind: str, name: str, factory: Callable[..., Any], *given: Any) -> Any:
    """Call what was imported.

    Args:
        kind: what it is, for the message.
        name: by which it was asked for.
        factory: a class, or what makes the thing.
        given: its arguments.

    Raises:
        SpecError: it raised something.
        KdnasError: it raised that.
    """
    try:
        return factory(*given)
    except KdnasError:
        raise
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{kind} {name!r} cannot be made: it raised {_named(error)}; mend it there"
        ) from error


def call_named(kind: str, name: str, made: object, method: str, *given: Any) -> Any:
    """Call a method of what was made.

    Args:
        kind: what it is, for the message.
        name: by which it was asked for.
        made: it.
        method: its name.
        given: its arguments.

    Raises:
        PluginError: it raised something, which is the cause.
        KdnasError: it raised that.
    """
    try:
        return getattr(made, method)(*given)
    except KdnasError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{kind} {name!r} failed: its {method} raised {_named(error)}; mend it there"
        ) from error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_line(error)}" if str(error) else type(error).__name__


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
