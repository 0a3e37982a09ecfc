"""Which place of a request each option of a command sets: said beside the option, in its type."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from typer.models import OptionInfo

from kdnas.errors import SpecError


@dataclass(frozen=True)
class At:
    """Where the value of an option goes; the last one in an ``Annotated`` counts.

    Attributes:
        path: place in the request, such as ``proxy.steps``.
        read: makes the request's value of the option's.
    """

    path: str
    read: Callable[[Any], Any] = lambda value: value


def request_of(command: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a command was given at its places in the request; what was not given is left out.

    Args:
        command: whose parameters are options.
        given: parameter → value, as ``locals()`` has them when the command begins.

    Raises:
        SpecError: an option's value cannot be read.
    """
    hints = get_type_hints(command, include_extras=True)
    values = {}
    for name in _given(command, given):
        places = [part for part in hints[name].__metadata__ if isinstance(part, At)]
        if places:
            values[places[-1].path] = places[-1].read(given[name])
    return nested(values)


def refuse_with_resume(
    command: Callable[..., Any], given: Mapping[str, Any], allowed: Collection[str]
) -> None:
    """Refuse options beside ``--resume``, which takes the stored spec.

    Args:
        command: whose parameters are options.
        given: parameter → value, as ``locals()`` has them when the command begins.
        allowed: parameters that mean something beside it.

    Raises:
        SpecError: names every option that was given.
    """
    hints = get_type_hints(command, include_extras=True)
    refused = sorted(
        _flag(name, hints[name]) for name in _given(command, given) if name not in allowed
    )
    if refused:
        raise SpecError(
            f"--resume takes the stored spec, so {', '.join(refused)} cannot be given with it; "
            "leave it out, or start anew"
        )


def with_options(sentence: str, command: Callable[..., Any]) -> str:
    """Name the option behind each entry of a request that a sentence names, as ```proxy.steps```.

    Sentences are made where nobody knows who reads them: a user of the service, or of a command.

    Args:
        sentence: with entries between back quotes; a value may follow, as in ```training: false```.
        command: whose parameters are options.
    """
    hints = get_type_hints(command, include_extras=True)
    flags = {
        part.path: _flag(name, hint).rpartition("/")[2]
        for name, hint in hints.items()
        for part in getattr(hint, "__metadata__", ())
        if isinstance(part, At)
    }

    def named(found: re.Match[str]) -> str:
        # An entry may lie in a part of the request, as those of a pipeline's search do.
        fitting = (flag for path, flag in flags.items() if f".{path}".endswith(f".{found[1]}"))
        flag = next(fitting, None)
        return found[0] if flag is None else f"{found[0]} ({flag})"

    return re.sub(r"`([a-z_]+(?:\.[a-z_]+)*)(?:: [^`]*)?`", named, sentence)


def _given(command: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[str]:
    parameters = inspect.signature(command).parameters
    return (name for name, one in parameters.items() if given[name] not in (one.default, []))


def _flag(name: str, hint: Any) -> str:
    """The option as it is written: what typer was told, or what it makes of the name."""
    told = (part.default for part in hint.__metadata__ if isinstance(part, OptionInfo))
    return next((one for one in told if isinstance(one, str)), flag(name))


def flag(name: str) -> str:
    """The option that typer makes of a parameter's name."""
    return "--" + name.replace("_", "-")


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``{"proxy.steps": 3, "name": None}`` into ``{"proxy": {"steps": 3}}``.

    Values that are None, and empty lists, were not given and are left out. A mapping is laid over
    what else there is at its place.
    """
    result: dict[str, Any] = {}
    for path, value in values.items():
        if value is None or value == []:
            continue
        *parents, last = path.split(".")
        level = result
        for part in parents:
            if not isinstance(level.get(part), dict):
                level[part] = {}
            level = level[part]
        before = level.get(last)
        if isinstance(before, dict) and isinstance(value, Mapping):
            value = {**before, **value}
        level[last] = value
    return result
