"""The base of all specs, and the one place where what is wrong with a spec is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from kdnas.errors import SpecError, unknown_name
from kdnas.specs.wording import plain_words, tells_given, without_echoes


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
                    f"{text!r} holds a NUL or half a surrogate pair, which is no text; leave it out"
                )
        return data

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
            problems = list(problems_of(cls, error))
            listed = (
                problems[0]
                if len(problems) == 1
                else "".join(f"\n  - {problem}" for problem in problems)
            )
            count = "" if len(problems) == 1 else f"{len(problems)} problems:"
            raise SpecError(f"{where}: {count}{listed}") from None

    @classmethod
    def kinds(cls) -> Mapping[str, type[Spec]]:
        """The specs that this one stands for, by their ``name``; none, if for itself alone."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON with every default written out; :meth:`read` takes it back."""
        return self.model_dump(mode="json")


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


def problems_of(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    """Word each problem once, however many readings of a value pydantic has tried."""
    found: dict[str, list[ErrorDetails]] = {}
    for item in without_echoes(error.errors(include_url=False)):
        path = ".".join(map(str, _field_path(model, item["loc"])))
        found.setdefault(path, []).append(item)
    for path, items in found.items():
        if any(other.startswith(f"{path}.") for other in found if path) and len(items) == 1:
            continue  # a mapping was meant, and what is wrong lies inside it
        yield _problem(model, path, max(items, key=_fits))


def _fits(item: ErrorDetails) -> bool:
    """Whether this reading's complaint is the one to tell: a name's for text, else another's."""
    return (item["type"] == "literal_error") == isinstance(item.get("input"), str)


def _problem(model: type[BaseModel], path: str, item: ErrorDetails) -> str:
    if item["type"] == "extra_forbidden":
        parents = _field_path(model, item["loc"])[:-1]
        return unknown_name("key", path, _prefixed(_keys_at(model, item["loc"][:-1]), parents))
    given = item.get("input")
    if item["type"] == "union_tag_invalid":
        return f"{path}: {unknown_tag(item['ctx'])}"
    if item["type"] == "literal_error":
        known = re.findall("'([^']*)'", item["ctx"]["expected"])
        return f"{path}: {unknown_name('value', given, known)}"
    words = _PLAIN_WORDS.get(item["type"]) or plain_words(item)
    message = words or item["msg"].removeprefix("Value error, ")
    is_large = given is None or isinstance(given, Mapping | BaseModel)
    shown = "" if is_large or not tells_given(item) else f" (given: {given!r})"
    return f"{path or 'spec'}: {message[0].lower() + message[1:]}{shown}"


def unknown_tag(context: Mapping[str, Any]) -> str:
    """Word that there is nothing of a name in a union, of what pydantic says of it."""
    known = re.findall("'([^']*)'", context["expected_tags"])
    return unknown_name("name", context["tag"], known)


_PLAIN_WORDS = {
    "dict_type": "write `key: value` lines",
    "model_type": "write `key: value` lines",
    "model_attributes_type": "write a name or `key: value` lines",
    "missing": "is missing",
}


def _is_reading(part: int | str) -> bool:
    """Whether a part of a path names a type that was tried, such as ``literal['a','b']``."""
    return isinstance(part, str) and (
        "[" in part or part in {"int", "float", "str"} or part.startswith("constrained-")
    )


def _prefixed(names: list[str], path: list[int | str]) -> list[str]:
    return [".".join([*map(str, path), name]) for name in names]


def _field_path(model: type[BaseModel], path: tuple[int | str, ...]) -> list[int | str]:
    """Leave out of a path what names no field: types that were tried, and tags of a union."""
    inner: type[BaseModel] | None = model
    fields: list[int | str] = []
    tags: dict[str, type[BaseModel]] = {}
    for part in path:
        if part in tags:
            inner, tags = tags[str(part)], {}
        elif not _is_reading(part):
            fields.append(part)
            inner, tags = _inner_models(inner, part)
    return fields


def _keys_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    inner: type[BaseModel] | None = model
    tags: dict[str, type[BaseModel]] = {}
    for part in path:
        if part in tags:
            inner, tags = tags[str(part)], {}
        elif not _is_reading(part):
            inner, tags = _inner_models(inner, part)
    return [] if inner is None else list(inner.model_fields)


def _inner_models(
    model: type[BaseModel] | None, part: int | str
) -> tuple[type[BaseModel] | None, dict[str, type[BaseModel]]]:
    """Return the model of a field's value; for a union with tags, the model of each tag."""
    field = None if model is None else model.model_fields.get(str(part))
    if field is None:
        return None, {}
    candidates = [field.annotation, *get_args(field.annotation)]
    found = [c for c in candidates if isinstance(c, type) and issubclass(c, Spec)]
    kinds = found[0].kinds() if found else {}
    return (None, dict(kinds)) if kinds else (found[0] if found else None, {})
