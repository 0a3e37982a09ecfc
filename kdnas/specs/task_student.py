"""Which student learns a task: what a request calls it, read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias, cast, get_args

from kdnas.architecture import MOST_LAYERS, Architecture
from kdnas.errors import ArchitectureError, SpecError
from kdnas.specs.wording import shown

SequenceKind = Literal["bilstm", "gated-cnn"]
SEQUENCE_KINDS: Final[tuple[str, ...]] = get_args(SequenceKind)

FIRST_LAYERS, LAYERS = "first-layers:", "layers:"
NUM_AXES = 5
MOST_LIKELY = 0.75
"""So much alike is what was meant, of 1."""


@dataclass(frozen=True, slots=True)
class LayersOfTeacher:
    """Some layers of the teacher, with all of its embeddings.

    Attributes:
        layers: which ones, rising; None means the first ``count``.
        count: how many.
    """

    layers: tuple[int, ...] | None
    count: int

    def of(self, num_layers: int, teacher: str) -> tuple[int, ...]:
        """Return the layers, checked against a teacher's.

        Raises:
            SpecError: the teacher does not have them.
        """
        named = self.count if self.layers is None else self.layers[-1]
        if named > num_layers:
            what = f"{named} layers" if self.layers is None else f"layer {named}"
            raise SpecError(
                f"student {self} asks for {what} of teacher {teacher!r}, which has {num_layers}; "
                f"give at most {num_layers}"
            )
        return self.layers or tuple(range(1, self.count + 1))

    def __str__(self) -> str:
        if self.layers is None:
            return f"{FIRST_LAYERS}{self.count}"
        return f"{LAYERS}{','.join(map(str, self.layers))}"


@dataclass(frozen=True, slots=True)
class SequenceStudent:
    """A student that is no Transformer."""

    kind: SequenceKind

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class StudentOfSpace:
    """An architecture in the teacher's family, which starts as those of searches do."""

    architecture: Architecture

    def __str__(self) -> str:
        return str(self.architecture)


@dataclass(frozen=True, slots=True)
class StudentFolder:
    """A model that is there already: a folder, an alias or a hub id."""

    ref: str

    def __str__(self) -> str:
        return self.ref


StudentChoice: TypeAlias = LayersOfTeacher | SequenceStudent | StudentOfSpace | StudentFolder


def parse_student(text: str) -> StudentChoice:
    """Read what a request calls its student.

    ``first-layers:4`` · ``layers:1,3,5`` · ``bilstm`` · ``gated-cnn`` · an architecture such as
    ``4,12,576,768,gelu`` · anything else is a model's folder, alias or hub id.

    Raises:
        SpecError: it begins like one of these and is none.
    """
    if text.startswith(FIRST_LAYERS):
        return LayersOfTeacher(None, _numbers(text, FIRST_LAYERS, single=True)[0])
    if text.startswith(LAYERS):
        layers = _numbers(text, LAYERS)
        if list(layers) != sorted(set(layers)):
            raise SpecError(f"student {text!r} must name each layer once and in rising order")
        return LayersOfTeacher(layers, len(layers))
    if text in SEQUENCE_KINDS:
        return SequenceStudent(cast(SequenceKind, text))
    if text.count(",") == NUM_AXES - 1 and "/" not in text:
        try:
            return StudentOfSpace(Architecture.parse(text))
        except ArchitectureError as error:
            raise SpecError(f"student {text!r}: {error}") from None
    if re.fullmatch(r"\d+(,\w*)+", text):
        raise SpecError(
            f"student {text!r} is no architecture, which has {NUM_AXES} parts, such as "
            "4,12,576,768,gelu"
        )
    kinds = (*SEQUENCE_KINDS, FIRST_LAYERS, LAYERS)
    near = [] if "/" in text else get_close_matches(text, kinds, n=1, cutoff=MOST_LIKELY)
    if near:
        meant = f"{near[0]}3" if near[0].endswith(":") else near[0]
        raise SpecError(
            f"unknown student {text!r}, did you mean {meant!r}? A folder of that name is ./{text}"
        )
    return StudentFolder(text)


def _numbers(text: str, prefix: str, *, single: bool = False) -> tuple[int, ...]:
    parts = text.removeprefix(prefix).split(",")
    whole = all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts)
    if whole and (most := max(map(int, parts))) > MOST_LAYERS:
        raise SpecError(
            f"student {shown(text)} asks for layer {most}; an encoder has at most {MOST_LAYERS}"
        )
    if not whole or (single and len(parts) > 1):
        example = "first-layers:4" if single else "layers:1,3,5"
        raise SpecError(f"student {text!r} cannot be read; write it as {example}")
    return tuple(int(part) for part in parts)
