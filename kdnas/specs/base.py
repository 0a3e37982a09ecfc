"""The base of all specs, and the one place where a wrong spec is put into words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from kdnas.errors import SpecError, unknown_name


class Spec(BaseModel):
    """A frozen request part: unknown keys are refused, defaults are written out when stored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, data: Any, where: str) -> Self:
        """Validate plain data.

        Args:
            data: what YAML, JSON or the command line gave.
            where: name of the source, for the message.

        Raises:
            SpecError: lists every problem at once, each with the nearest valid name.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            problems = list(_problems(cls, error))
            listed = (
                problems[0]
                if len(problems) == 1
                else "".join(f"\n  - {problem}" for problem in problems)
            )
            count = "" if len(problems) == 1 else f"{len(problems)} problems:"
            raise SpecError(f"{where}: {count}{listed}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with every default written out; :meth:`read` takes it back."""
        return self.model_dump(mode="json")


def _problems(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    """Word each problem once, however many readings of a value pydantic has tried."""
    found: dict[str, list[ErrorDetails]] = {}
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"] if not _is_reading(part))
        found.setdefault(path, []).append(item)
    for path, items in found.items():
        if any(other.startswith(f"{path}.") for other in found if path) and len(items) == 1:
            continue  # a mapping was meant, and what is wrong lies inside it
        literal = next((i for i in items if i["type"] == "literal_error"), None)
        yield _problem(model, path, literal or items[0])


def _problem(model: type[BaseModel], path: str, item: ErrorDetails) -> str:
    if item["type"] == "extra_forbidden":
        known = _keys_at(model, item["loc"][:-1])
        return unknown_name("key", path, _prefixed(known, item["loc"][:-1]))
    given = item.get("input")
    if item["type"] == "literal_error":
        known = re.findall("'([^']*)'", item["ctx"]["expected"])
        return f"{path}: {unknown_name('value', given, known)}"
    message = _PLAIN_WORDS.get(item["type"]) or item["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(given, Mapping) or given is None else f" (given: {given!r})"
    return f"{path or 'spec'}: {message[0].lower() + message[1:]}{shown}"


_PLAIN_WORDS = {
    "dict_type": "write `key: value` lines",
    "model_type": "write `key: value` lines",
    "tuple_type": "write a list",
    "missing": "is missing",
}


def _is_reading(part: int | str) -> bool:
    """Whether a part of a path names a type that was tried, such as ``literal['a','b']``."""
    return isinstance(part, str) and ("[" in part or part in {"int", "float", "str"})


def _prefixed(names: list[str], path: tuple[int | str, ...]) -> list[str]:
    return [".".join([*map(str, path), name]) for name in names]


def _keys_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        candidates = [] if field is None else [field.annotation, *get_args(field.annotation)]
        inner = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)
