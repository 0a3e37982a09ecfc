"""Help texts in which the objectives speak for themselves, read when somebody asks for help."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand, TyperOption

_PLACE = re.compile(r"\{(\w+)\}")


class ObjectiveCommand(TyperCommand):
    """A command whose options say in braces what the objectives are to fill in.

    ``{objectives}`` stands for all of them with what they are called, ``{names}`` for their names
    alone, ``{default}`` for the one that is meant where none is given, and the name of a setting,
    such as ``{mapping}``, for whose it is and what it means. So the words are loaded for help
    alone, and those of installed packages are among them.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Fill in the words while the options are written: another time there may be others."""
        options = [(o, o.help) for o in self.params if isinstance(o, TyperOption) and o.help]
        try:
            for option, text in options:
                option.help = _PLACE.sub(lambda place: _words(place[1]), text)
            super().format_options(ctx, formatter)
        finally:
            for option, text in options:
                option.help = text


def _words(place: str) -> str:
    from kdnas.specs.objective_registry import either, objectives
    from kdnas.specs.objectives import DEFAULT_OBJECTIVE

    known = objectives()
    if place == "objectives":
        return either(f"{name} ({kind.called})" for name, kind in known.items())
    if place == "names":
        return either(known)
    if place == "default":
        return DEFAULT_OBJECTIVE
    owners = {name: kind for name, kind in known.items() if place in kind.model_fields}
    about = next(iter(owners.values())).model_fields[place].description or ""
    return f"{', '.join(owners)}: {about[:1].lower()}{about[1:]}"
