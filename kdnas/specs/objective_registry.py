"""Which objectives there are: those of kdnas, and those that installed packages register."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kdnas.errors import SpecError, unknown_name
from kdnas.plugins import import_named, installed
from kdnas.specs.named import Family
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.objectives import DEFAULT_OBJECTIVE, OBJECTIVES

ENTRY_POINT_GROUP: Final = "kdnas.objectives"

_log = logging.getLogger(__name__)


def objective_names() -> list[str]:
    """Names of all objectives, those of kdnas first; loads no other package."""
    return [*OBJECTIVES, *(name for name in installed(ENTRY_POINT_GROUP) if name not in OBJECTIVES)]


def find_objective(name: str) -> type[ObjectiveSpec]:
    """Return the entry of an objective: one of ours, or one that an installed package registered.

    Raises:
        SpecError: the name is unknown, or what is registered under it is no objective.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    plugins = installed(ENTRY_POINT_GROUP)
    if name not in plugins:
        raise SpecError(unknown_name("objective", name, objective_names()))
    return _checked(name, import_named("objective", plugins[name]))


def objectives() -> dict[str, type[ObjectiveSpec]]:
    """Return all objectives by name, without those of other packages that cannot be loaded.

    A list for forms and messages must not fail for what nobody asked for: why one is left out goes
    to the log, and to whoever asks for it by name.
    """
    found = {}
    for name in objective_names():
        try:
            found[name] = find_objective(name)
        except SpecError as error:
            _log.warning("an objective is left out of the list: %s", error)
    return found


def family() -> Family:
    """The objectives, as the field of a request knows them."""
    return Family(
        called="objective",
        default=DEFAULT_OBJECTIVE,
        names=objective_names,
        find=_found,
        kinds=objectives,
    )


def _found(name: str) -> type[ObjectiveSpec] | None:
    """The entry of a name, or None; what is installed is looked through for other names alone."""
    return find_objective(name) if name in OBJECTIVES or name in objective_names() else None


def choice_of(fits: Callable[[type[ObjectiveSpec]], bool]) -> str:
    """Word the choice among the objectives that fit, as in ``one, two or three``."""
    return either(name for name, kind in objectives().items() if fits(kind))


def either(names: Iterable[str]) -> str:
    """Word a choice, as in ``one, two or three``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def objective_spec(value: Any) -> ObjectiveSpec:
    """Read an objective: a bare name, or plain JSON, which without a name is the default's.

    Raises:
        ValidationError: it is neither, or says what the objective does not understand.
    """
    return ObjectiveSpec.model_validate(value)


def _checked(name: str, kind: Any) -> type[ObjectiveSpec]:
    if not (isinstance(kind, type) and issubclass(kind, ObjectiveSpec)):
        raise SpecError(
            f"objective {name!r} is registered as {kind!r}, which is no class that inherits "
            "kdnas.specs.objective_base.ObjectiveSpec; see docs/objectives.md"
        )
    own = kind.model_fields["name"].default
    if own != name:
        raise SpecError(
            f"objective {name!r} calls itself {own!r}; give its field name the default {name!r}, "
            "under which it is registered"
        )
    missing = [part for part in ("called", "implementation") if not hasattr(kind, part)]
    missing += sorted(kind.__abstractmethods__)
    if missing:
        raise SpecError(
            f"objective {name!r} lacks {', '.join(missing)}; see "
            "kdnas.specs.objective_base.ObjectiveSpec"
        )
    return kind


def _known(name: str) -> str:
    if name not in OBJECTIVES and name not in objective_names():
        raise ValueError(unknown_name("objective", name, objective_names()))
    return name


class _AllNames:
    """Puts the names into a JSON Schema when it is made, not when this module is loaded."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core), "enum": objective_names()}


ObjectiveName = Annotated[str, AfterValidator(_known), _AllNames]
