"""What is wrong with a request in words that need no Python, for the program and the service.

Pydantic finds what is wrong; what would be right is read from the JSON Schema, which is what users
are given as well. So each place is told of once, by the path that its user wrote, however many
readings of a value were tried.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Final

from kdnas.errors import FieldError, unknown_name

Node = Mapping[str, Any]
Part = int | str

NAME_PATTERN: Final = r"^(?!\.+$)[\p{L}\p{M}\p{N}._-]+$"
"""Of a job's name, for who reads the schema; :mod:`kdnas.specs.naming` has the rule."""
NAME_WORDS: Final = "letters and digits of any script, and any of . _ -"
REVISION_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_+-]*([./][A-Za-z0-9_+-]+)*$"

PATTERNS: Final[Mapping[str, str]] = {
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$": "text of letters, digits and any of . _ : / - only, and "
    "first a letter or a digit",
    r"^[^\x00-\x1f]+$": "one line of text without control characters",
    r"^[^\x00]*$": "text without NUL characters",
    r"^[!-~]{1,200}$": "from 1 to 200 visible characters of ASCII",
    NAME_PATTERN: NAME_WORDS,
    REVISION_PATTERN: "a commit, a tag or a branch of the hub, such as main or refs/pr/1",
    ":": "a class such as package.module:Class",
}
"""Pattern of a text → what it lets through."""

MOST_PLACES: Final = 100
"""Of a request, of which it is told what is wrong: a list may be wrong in each of its entries."""
MOST_NAMED: Final = 6
"""Keys of an object that are named where something else stands in its place."""


def field_errors(
    schema: Node, data: Any, found: Sequence[Mapping[str, Any]], *, parameters: bool = False
) -> list[FieldError]:
    """Word what pydantic has found, each place of a request once.

    Args:
        schema: JSON Schema of the request, with its ``$defs``.
        data: the request as it came in.
        found: of pydantic's ``errors()``.
        parameters: whether these are parameters of a URL, of which those with several values are
            repeated: no value has a number.
    """
    reader = _Schema(schema)
    places: dict[str, list[tuple[_Place, Mapping[str, Any]]]] = {}
    for item in found:
        place = reader.place(item["loc"], data, new=item["type"] == "extra_forbidden")
        if parameters:
            place = replace(place, names=place.names[:1])
        if place.path not in places and len(places) == MOST_PLACES:
            break
        places.setdefault(place.path, []).append((place, item))
    entry = "parameter" if parameters else "key"
    # A union whose alternatives reach further in, or a list that lacks what is wrong within it.
    outer = {around for path in places for around in _around(path)}
    return [
        reader.worded(*max(items, key=lambda one: _tells_most(one[1])), entry)
        for path, items in places.items()
        if path not in outer
    ]


def shown(value: Any) -> str:
    """Write a value for a sentence: as in JSON, but texts in single quotes, and short."""
    return _SHORT.repr(value)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a request something is wrong.

    Attributes:
        names: keys and numbers that lead there.
        nodes: what the schema says of it; several where a union allows several things.
        around: the same of what it is an entry of.
        is_key: whether the key itself is wrong, not its value.
    """

    names: tuple[Part, ...] = ()
    nodes: Sequence[Node] = ()
    around: Sequence[Node] = ()
    is_key: bool = False

    @property
    def path(self) -> str:
        return ".".join(map(str, self.names))


@dataclass(frozen=True)
class _Schema:
    """A JSON Schema in which places are looked up."""

    document: Node = field(repr=False)

    def place(self, location: Sequence[Part], data: Any, *, new: bool) -> _Place:
        """Leave out of a location what names no entry: types that were tried, tags of a union.

        Args:
            location: pydantic's.
            data: the request as it came in.
            new: whether the last part is a key that the schema does not know.
        """
        place = _Place(nodes=[self.document])
        for number, part in enumerate(location):
            if new and number == len(location) - 1:
                return _Place((*place.names, part), [], place.nodes)
            if part == "[key]":
                return _Place(place.names, place.nodes, place.around, is_key=True)
            tagged = list(self._tagged(place.nodes, part))
            if tagged:
                place = _Place(place.names, tagged, place.around)
                continue
            holds = isinstance(data, Mapping) and part in data
            if isinstance(part, str) and _is_reading(part) and not holds:
                continue
            inner = list(self._inner(place.nodes, part, holds=holds))
            if inner:
                place = _Place((*place.names, part), inner, place.nodes)
                if holds or (isinstance(data, list | tuple) and part in range(len(data))):
                    data = data[part]
        return place

    def worded(self, place: _Place, item: Mapping[str, Any], entry: str) -> FieldError:
        """Say what is wrong at a place, with the value, and what would be right."""
        kind, given, path = item["type"], item.get("input"), place.path
        if kind == "extra_forbidden":
            before = "".join(f"{name}." for name in place.names[:-1])
            known = [f"{before}{name}" for name in self._keys(place.around)]
            return FieldError(path, unknown_name(entry, path, known), names_field=True)
        if kind == "value_error":
            message = str(item["ctx"]["error"])
            told = shown(given)
            is_plain = given is None or isinstance(given, str | int | float)
            more = is_plain and told.strip("'") not in message
            return FieldError(path, f"{message} (given: {told})" if more else message)
        nodes = self._key_nodes(place.around) if place.is_key else place.nodes
        wanted = self.wanted(nodes)
        if kind == "missing":
            return FieldError(path, f"is missing; give {wanted}")
        if kind == "union_tag_invalid":
            known = re.findall("'([^']*)'", item["ctx"]["expected_tags"])
            return FieldError(path, unknown_name("name", item["ctx"]["tag"], known))
        near = _nearest(given, self._choices(nodes))
        hint = f"; did you mean {near!r}?" if near else ""
        what = "as key " if place.is_key else ""
        return FieldError(path, f"give {what}{wanted}, not {_counted(item, given)}{hint}")

    def wanted(self, nodes: Sequence[Node]) -> str:
        """Say what the schema lets through, as ``a whole number from 1 to 500``."""
        phrases: list[str] = []
        for node in map(self._resolved, nodes):
            tags = _tags(node)
            if tags:
                phrases.append(
                    f"one of {', '.join(map(str, tags))}, or an object with that as its name"
                )
                continue
            alternatives = (one for one in self._plain([node]) if one.get("type") != "null")
            phrases += map(self._phrase, alternatives)
        return ", or ".join(dict.fromkeys(phrases)) or "something else"

    def _phrase(self, node: Node) -> str:
        """Say what one alternative of the schema lets through."""
        if "const" in node or "enum" in node:
            values = node.get("enum", [node.get("const")])
            listed = ", ".join(map(str, values))
            return listed if len(values) == 1 else f"one of {listed}"
        match node.get("type"):
            case "integer":
                return f"a whole number{_range(node)}"
            case "number":
                return f"a number{_range(node)}"
            case "boolean":
                return "true or false"
            case "string":
                return _text(node)
            case "array":
                return self._list(node)
            case "object":
                names = list(node.get("properties", {}))
                more = ", …" if len(names) > MOST_NAMED else ""
                listed = ", ".join(names[:MOST_NAMED])
                return f"an object with any of {listed}{more}" if names else "an object"
        return "something else"

    def _list(self, node: Node) -> str:
        least, most = node.get("minItems"), node.get("maxItems")
        size = ""
        if least is not None and least == most:
            size = f" of {least}"
        elif least and most:
            size = f" of {least} to {most}"
        elif least or most:
            size = f" of at least {least}" if least else f" of at most {most}"
        parts = node.get("prefixItems") or [node.get("items", {})]
        within = self.wanted(parts)
        return f"a list{size}" + ("" if within == "something else" else f", each {within}")

    def _plain(self, nodes: Sequence[Node]) -> Iterator[Node]:
        """Follow references and take unions apart."""
        for node in nodes:
            whole = self._resolved(node)
            parts = [part for key in ("anyOf", "oneOf", "allOf") for part in whole.get(key, ())]
            if parts:
                yield from self._plain(parts)
            else:
                yield whole

    def _resolved(self, node: Node) -> Node:
        while "$ref" in node:
            target: Any = self.document
            for name in node["$ref"].removeprefix("#/").split("/"):
                target = target[name]
            node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        return node

    def _tagged(self, nodes: Sequence[Node], part: Part) -> Iterator[Node]:
        for node in map(self._resolved, nodes):
            if part in _tags(node):
                yield {"$ref": _tags(node)[part]}

    def _inner(self, nodes: Sequence[Node], part: Part, *, holds: bool) -> Iterator[Node]:
        """What the schema says of an entry, which the data may have as a key."""
        for node in self._plain(nodes):
            own = node.get("properties", {}).get(part)
            others = node.get("additionalProperties")
            if own is not None:
                yield own
            elif isinstance(others, Mapping) and (holds or isinstance(part, str)):
                yield others
            elif isinstance(part, int) and "prefixItems" in node:
                yield from node["prefixItems"][part : part + 1]
            elif isinstance(part, int) and "items" in node:
                yield node["items"]

    def _key_nodes(self, nodes: Sequence[Node]) -> list[Node]:
        whole = [node for node in self._plain(nodes) if node.get("type") == "object"]
        named = [node["propertyNames"] for node in whole if "propertyNames" in node]
        return named or [{"type": "integer", "minimum": 1}] * bool(whole)

    def _keys(self, nodes: Sequence[Node]) -> list[str]:
        return [name for node in self._plain(nodes) for name in node.get("properties", {})]

    def _choices(self, nodes: Sequence[Node]) -> list[str]:
        plain = list(self._plain(nodes))
        listed = [one for node in plain for one in node.get("enum", [node.get("const")])]
        listed += [tag for n in map(self._resolved, nodes) for tag in _tags(n)]
        patterns = (_alternatives(str(node.get("pattern", ""))) or () for node in plain)
        return [*(one for one in listed if isinstance(one, str)), *(n for p in patterns for n in p)]


class _Short(reprlib.Repr):
    """Values as JSON has them, cut where they are long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60
        self.maxlist = self.maxtuple = self.maxdict = 4
        self.maxlevel = 2

    def repr_NoneType(self, value: None, level: int) -> str:  # noqa: N802 (called by type)
        return "null"

    def repr_bool(self, value: bool, level: int) -> str:
        return "true" if value else "false"

    def repr_int(self, value: int, level: int) -> str:
        if abs(value) >= 10**40:
            return f"a number of {int(value.bit_length() * 0.30103) + 1} digits or so"
        return str(value)

    def repr_tuple(self, value: tuple[Any, ...], level: int) -> str:
        return self.repr_list(list(value), level)


_SHORT: Final = _Short()


def _tags(node: Node) -> Mapping[Part, str]:
    """What the alternatives of a union are told apart by; empty where that is their form."""
    tags: Mapping[Part, str] = node.get("discriminator", {}).get("mapping", {})
    return tags


def _is_reading(part: str) -> bool:
    """Whether a part of a location names a type that was tried, such as ``literal['a','b']``."""
    return "[" in part or part in {"int", "float", "str", "bool"} or part.startswith("constrained-")


def _around(path: str) -> Iterator[str]:
    """Paths of all that a place lies in."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _tells_most(item: Mapping[str, Any]) -> int:
    """Our own words tell most of a place, then what only names can be wrong in."""
    return {"value_error": 2, "union_tag_invalid": 1}.get(item["type"], 0)


def _counted(item: Mapping[str, Any], given: Any) -> str:
    """What was given, with its length where that is what is wrong."""
    context = item.get("ctx", {})
    if item["type"] in ("too_short", "too_long"):
        count = context.get("actual_length")
        return "more" if count is None else f"{count or 'none'}"
    if item["type"] == "string_too_long" and isinstance(given, str):
        return f"{len(given)} characters ({shown(given)})"
    return shown(given)


def _nearest(given: Any, known: Sequence[str]) -> str | None:
    if not isinstance(given, str) or given in known:
        return None
    return next(iter(get_close_matches(given, known, n=1, cutoff=0.5)), None)


def _range(node: Node) -> str:
    least, above = node.get("minimum"), node.get("exclusiveMinimum")
    most, below = node.get("maximum"), node.get("exclusiveMaximum")
    if least is not None and most is not None:
        return f" from {_figure(least)} to {_figure(most)}"
    low = None if least is None else f"of at least {_figure(least)}"
    high = None if most is None else f"of at most {_figure(most)}"
    low = low if above is None else f"above {_figure(above)}"
    high = high if below is None else f"below {_figure(below)}"
    if low and high:
        high = high.replace("of at most", "at most")
    words = " and ".join(filter(None, (low, high)))
    return f" {words}" if words else ""


def _figure(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _text(node: Node) -> str:
    pattern, least, most = node.get("pattern"), node.get("minLength"), node.get("maxLength")
    if pattern is not None:
        words = _of_pattern(pattern)
        if words is not None and (most is None or "one of" in words):
            return words
        return f"{words or 'text of another form'}, at most {most} characters"
    if least and most:
        return f"text of {least} to {most} characters"
    if most:
        return f"text of at most {most} characters"
    return "text that is not empty" if least else "text"


def _of_pattern(pattern: str) -> str | None:
    choices = _alternatives(pattern)
    if choices is None:
        return PATTERNS.get(pattern)
    falls = ", with a minus before it to fall" if pattern.startswith("^-?") else ""
    return f"one of {', '.join(choices)}{falls}"


def _alternatives(pattern: str) -> list[str] | None:
    """The names that a pattern is a choice of; None if it is something else."""
    found = re.fullmatch(r"\^(?:-\?)?\(([^()]*)\)\$", pattern)
    return None if found is None else found[1].split("|")
