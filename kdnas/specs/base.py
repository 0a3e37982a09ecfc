"""The base of all specs, and the one place where a wrong spec is put into words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

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
    for item in error.errors(include_url=False):
        path = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _keys_at(model, item["loc"][:-1])
            yield unknown_name("key", path, _prefixed(known, item["loc"][:-1]))
        else:
            message = item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            given = item.get("input")
            shown = "" if isinstance(given, Mapping) or given is None else f" (given: {given!r})"
            yield f"{path or 'spec'}: {message[0].lower() + message[1:]}{shown}"


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
