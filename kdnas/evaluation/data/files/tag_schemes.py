"""Schemes of span tags: which one a file's tags follow, and the same spans in IOB2."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

OUTSIDE: Final = "O"
ONLY_TYPE: Final = "SPAN"
"""Of spans whose tags are nothing but marks."""
MOST_TYPES: Final = 100
"""Of spans, in a file whose tags name nothing but types; words are more."""

_BEFORE = re.compile(r"([BIESLUMW])[-_–—:](.+)", re.DOTALL | re.IGNORECASE)
_BEHIND = re.compile(r"(.+)[-_–—:]([BIESLUMW])", re.DOTALL | re.IGNORECASE)
_WRITTEN_OUT = re.compile(r"(begin|beginning|inside|end|last|single|unit)[-_].+", re.IGNORECASE)
_SPAN_TAG = re.compile(r"[BIESLU]-.+", re.DOTALL)
_FIRST, _LAST = frozenset("BSUW"), frozenset("ESLUW")
_MARKS = frozenset("BIESLUMW")
_BEGINNING, _ENDING = frozenset("BIUW"), frozenset("EL")
"""Marks of which one of the first is in a file that has one of the second; E is also how types are
called."""

Position = Literal["before", "behind", "alone", "none"]


@dataclass(frozen=True, slots=True)
class TagScheme:
    """How tags mark where spans begin and end.

    Attributes:
        position: where a tag has its mark: ``B-PER``, ``PER-B``, alone (``B``), where all spans are
            of one type, or nowhere (``PER``), where neighbours of one type are one span.
        marks: that occur, in capital letters.
    """

    position: Position
    marks: frozenset[str]

    @property
    def name(self) -> str:
        """As people call it."""
        if self.position == "none":
            return "IO"
        known = (("IOB", "BI"), ("IOBES", "BIES"), ("BILOU", "BILU"), ("BMES", "BMES"))
        name = next((name for name, marks in known if self.marks <= set(marks)), None)
        return name or f"marks {', '.join(sorted(self.marks))}"

    def parted(self, tag: str) -> tuple[str, str] | None:
        """Return mark and type of a tag, None outside of spans."""
        if _is_outside(tag):
            return None
        if self.position == "none":
            return "I", tag
        if self.position == "alone":
            return tag.upper(), ONLY_TYPE
        found = _BEFORE.fullmatch(tag) if self.position == "before" else _BEHIND.fullmatch(tag)
        if found is None:
            raise ValueError(f"{tag!r} is no tag of the scheme {self.name}")
        first, second = found.groups()
        mark, kind = (first, second) if self.position == "before" else (second, first)
        return mark.upper(), kind

    def to_iob2(self, tags: Sequence[str]) -> tuple[str, ...]:
        """Write the spans of a sentence in IOB2.

        A span begins at its mark, and where an inside tag does not go on with the type before it.

        Raises:
            ValueError: a tag is not one of this scheme.
        """
        changed: list[str] = []
        open_type: str | None = None
        for tag in tags:
            parts = self.parted(tag)
            if parts is None:
                changed.append(OUTSIDE)
                open_type = None
                continue
            mark, kind = parts
            begins = mark in _FIRST or open_type != kind
            changed.append(f"{'B' if begins else 'I'}-{kind}")
            open_type = None if mark in _LAST else kind
        return tuple(changed)


def scheme_of(tags: Collection[str]) -> TagScheme | None:
    """Return the scheme that all tags of a file follow; None if they are no tags of spans.

    Tags that are marks and nothing else are those of spans of one type. Tags without marks are
    those of spans if some words have ``O``; tags of words, as parts of speech, have none.
    """
    inside = {tag for tag in tags if not _is_outside(tag)}
    if inside and {tag.upper() for tag in inside} <= _MARKS and inside & {*"BbIiSsUu"}:
        return TagScheme("alone", frozenset(tag.upper() for tag in inside))
    for position, pattern, group in (("before", _BEFORE, 1), ("behind", _BEHIND, 2)):
        found = [pattern.fullmatch(tag) for tag in inside]
        if all(found):
            marks = frozenset(match[group].upper() for match in found if match)
            if marks & _ENDING and not marks & _BEGINNING:  # E-MAIL and S-BAHN are types
                continue
            return TagScheme("before" if position == "before" else "behind", marks)
    patterns = ((_BEFORE, 1), (_BEHIND, 2), (_WRITTEN_OUT, 1))
    has_marks = any(
        match and (pattern is _WRITTEN_OUT or match[group].upper() in _BEGINNING)
        for tag in inside
        for pattern, group in patterns
        for match in [pattern.fullmatch(tag)]
    )
    # Marks that nothing parts from their types, as in BPER and IPER, or another mark than these.
    starts = {tag[1:] for tag in inside if tag[:1] == "B"} & {
        tag[1:] for tag in inside if tag[:1] == "I"
    }
    if len(inside) == len(set(tags)) or len(inside) > MOST_TYPES or has_marks or any(starts):
        return None
    return TagScheme("none", frozenset())


def is_marked(tag: str) -> bool:
    """Whether a tag is outside of spans, or has a mark before its type, or is one."""
    return _is_outside(tag) or tag in _MARKS or _BEFORE.fullmatch(tag) is not None


def is_span_scheme(tags: Iterable[str]) -> bool:
    """True if the tags mark spans (``O``, ``B-PER`` …), False if they are one a word, as in POS."""
    return all(tag == OUTSIDE or _SPAN_TAG.fullmatch(tag) for tag in tags)


def _is_outside(tag: str) -> bool:
    return tag in {OUTSIDE, "o"}
