"""Which objectives there are: those of kdnas, and those that installed packages register."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, Final

from pydantic import AfterValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, SchemaValidator, core_schema

from kdnas.errors import SpecError, unknown_name
from kdnas.plugins import import_named, installed
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


def look_up(value: Any) -> ObjectiveSpec:
    """Do the reading for :class:`ObjectiveSpec`, within whatever is being validated."""
    if isinstance(value, ObjectiveSpec):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise PydanticKnownError("model_attributes_type")
    value = {"name": DEFAULT_OBJECTIVE, **value}
    kind = _named(value["name"])
    _refuse_keys_of_others(kind, value)
    spec: ObjectiveSpec = _reader(kind).validate_python(value)
    return spec


def _named(name: Any) -> type[ObjectiveSpec]:
    if not isinstance(name, str) or name not in objective_names():
        known = ", ".join(map(repr, objective_names()))
        context = {"discriminator": "'name'", "tag": str(name), "expected_tags": known}
        raise PydanticKnownError("union_tag_invalid", context)
    try:
        return find_objective(name)
    except SpecError as error:
        raise ValueError(str(error)) from None


@cache
def _reader(kind: type[ObjectiveSpec]) -> SchemaValidator:
    """A union of one: what is wrong is told with the name, as of any union told apart by it."""
    name = kind.model_fields["name"].default
    return SchemaValidator(
        core_schema.tagged_union_schema({name: kind.__pydantic_core_schema__}, "name")
    )


def _refuse_keys_of_others(kind: type[ObjectiveSpec], value: dict[str, Any]) -> None:
    """Tell a key that belongs to another objective from one that is misspelt."""
    for key in value.keys() - kind.model_fields.keys():
        owners = [name for name, other in objectives().items() if key in other.model_fields]
        if owners:
            raise ValueError(
                f"{key} is for {' and '.join(owners)}, not for {value['name']}; leave it out, or "
                "choose another objective"
            )


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
    if name not in objective_names():
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
