"""The base of all specs, and the one place where what is wrong with a spec is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from kdnas.errors import FieldError, SpecError
from kdnas.specs.wording import MOST_PLACES, field_errors, shown


class Spec(BaseModel):
    """A frozen request part: unknown keys are refused, defaults are written out when stored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _holds_text(cls, data: Any) -> Any:
        """Refuse, wherever it stands, what JSON lets in and no file, database or answer takes."""
        for text in _texts(data):
            if "\0" in text or not _is_unicode(text):
                raise ValueError(
                    f"{shown(text)} holds a NUL or half a surrogate pair, which is no text; "
                    "leave it out"
                )
        return data

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_yes(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number belongs: Python counts them as 1 and 0."""
        entries = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(one, bool) for one in entries) and _numbers_only(cls, info.field_name):
            raise PydanticCustomError("int_type", "a number is wanted")
        return value

    @classmethod
    def read(cls, data: Any, where: str) -> Self:
        """Validate plain data.

        Args:
            data: what YAML, JSON or the command line gave.
            where: name of the source, for the message; empty where it goes without saying.

        Raises:
            SpecError: lists every problem at once, each with the nearest valid name.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            problems = problems_of(cls, error, data)
            sentences = [problem.sentence for problem in problems]
            listed = (
                sentences[0]
                if len(sentences) == 1
                else "".join(f"\n  - {sentence}" for sentence in sentences)
            )
            least = "at least " if len(sentences) == MOST_PLACES else ""
            count = "" if len(sentences) == 1 else f"{least}{len(sentences)} problems:"
            begin = f"{where}: " if where else ""
            raise SpecError(f"{begin}{count}{listed}", fields=problems) from None

    @classmethod
    def kinds(cls) -> Mapping[str, type[Spec]]:
        """The specs that this one stands for, by their ``name``; none, if for itself alone."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with every default written out; :meth:`read` takes it back."""
        return self.model_dump(mode="json")


@cache
def _numbers_only(model: type[Spec], name: str | None) -> bool:
    """Whether an entry, or what it lists, may be a number and may not be true or false."""
    left, found = [model.model_fields[name or ""].annotation], set()
    while left:
        kind = left.pop()
        found.add(kind)
        left += get_args(kind)
    return not found.isdisjoint({int, float}) and found.isdisjoint({bool, Any, object, True, False})


def _texts(data: Any) -> Iterator[str]:
    """All strings of plain data, keys included; nested as deep as may be."""
    left = [data]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            left += value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def problems_of(model: type[BaseModel], error: ValidationError, data: Any) -> list[FieldError]:
    """Word each problem of data that a model refuses once."""
    return field_errors(model.model_json_schema(), data, error.errors(include_url=False))
