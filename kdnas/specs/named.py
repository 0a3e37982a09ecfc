"""Specs of one kind that are told apart by ``name``, to which other packages may add theirs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, SchemaValidator, core_schema

from kdnas.errors import SpecError
from kdnas.specs.base import Spec


@dataclass(frozen=True, slots=True)
class Family:
    """Which specs of one kind there are.

    Attributes:
        called: what one of them is, for messages.
        default: the name that is meant where none is given.
        names: all names; loads no other package.
        find: the spec of a name, or None if there is none; a SpecError if it cannot be loaded.
        kinds: all specs by :meth:`NamedSpec.tag`, without those that cannot be loaded.
    """

    called: str
    default: str
    names: Callable[[], list[str]]
    find: Callable[[str], type[NamedSpec] | None]
    kinds: Callable[[], Mapping[str, type[NamedSpec]]]


class NamedSpec(Spec):
    """One of several specs. The class with :meth:`family` stands, as a field's type, for them all.

    A field's ``title`` and ``description`` are its words in forms and in the help of the command
    line; one that is written out when a request is stored has ``readOnly``, and is in no form.

    Attributes:
        name: name in specs.
        called: what it is, in a few words, for forms and help.
    """

    name: str

    called: ClassVar[str]

    @classmethod
    @abstractmethod
    def family(cls) -> Family:
        """All of its kind."""

    @classmethod
    def tag(cls) -> str:
        """What it is told apart by among all of its kind."""
        name: str = cls.model_fields["name"].default
        return name

    @classmethod
    def kinds(cls) -> Mapping[str, type[Spec]]:
        """All of its kind, where this stands for them."""
        return cls.family().kinds() if cls._stands_for_all() else {}

    @classmethod
    def look_up(cls, value: Any) -> Self:
        """Read one of its kind, within whatever is being validated.

        Args:
            value: a bare name, or plain JSON, which without a name is the default's.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            raise PydanticKnownError("model_attributes_type")
        family = cls.family()
        value = {"name": family.default, **value}
        kind = _named(family, value["name"])
        _refuse_keys_of_others(family, kind, value)
        spec: Self = _reader(kind).validate_python(value)
        return spec

    @classmethod
    def _stands_for_all(cls) -> bool:
        return "family" in vars(cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Look a spec up when a request is read, not when this module is loaded."""
        if not cls._stands_for_all():
            return handler(source)
        return core_schema.no_info_before_validator_function(
            cls.look_up, core_schema.is_instance_schema(cls)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if cls._stands_for_all():
            choices = {tag: kind.__pydantic_core_schema__ for tag, kind in cls.kinds().items()}
            return handler(core_schema.tagged_union_schema(dict(choices), "name"))
        found = handler(core)
        handler.resolve_ref_schema(found)["title"] = cls.called
        return found


def _named(family: Family, name: Any) -> type[NamedSpec]:
    try:
        kind = family.find(name) if isinstance(name, str) else None
    except SpecError as error:
        raise ValueError(str(error)) from None
    if kind is None:
        known = ", ".join(map(repr, family.names()))
        context = {"discriminator": "'name'", "tag": str(name), "expected_tags": known}
        raise PydanticKnownError("union_tag_invalid", context)
    return kind


@cache
def _reader(kind: type[NamedSpec]) -> SchemaValidator:
    """A union of one: what is wrong is told with its tag, as of any union told apart by a name."""
    tag = kind.tag()
    return SchemaValidator(
        core_schema.tagged_union_schema({tag: kind.__pydantic_core_schema__}, lambda _: tag)
    )


def _refuse_keys_of_others(family: Family, kind: type[NamedSpec], value: dict[str, Any]) -> None:
    """Tell a key that belongs to another one from one that is misspelt."""
    for key in value.keys() - kind.model_fields.keys():
        owners = [tag for tag, other in family.kinds().items() if key in other.model_fields]
        if owners:
            raise ValueError(
                f"{key} is for {' and '.join(owners)}, not for {value['name']}; leave it out, or "
                f"choose another {family.called}"
            )
