"""The space of architectures that a search explores, with a stable numbering of its states."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kdnas.architecture import ACTIVATIONS, MOST_CHANNELS, MOST_LAYERS, Architecture
from kdnas.errors import SearchSpaceError, unknown_name
from kdnas.records import TeacherShape, fingerprint

AXES = ("layers", "heads", "hidden", "intermediate", "activation")

MOST_STATES = 100_000
PAPER_LAYERS = (3, 4, 6, 10, 12)
PAPER_HEADS = (2, 3, 4, 6, 12)
PAPER_HIDDEN = (288, 384, 576, 768)
PAPER_INTERMEDIATE = (384, 512, 576, 768, 1024, 1536, 2048, 3072)
PAPER_TEACHER_LAYERS, PAPER_TEACHER_HIDDEN = 12, 768
_PAPER_AXES: Mapping[str, Any] = {
    "layers": PAPER_LAYERS,
    "heads": PAPER_HEADS,
    "hidden": PAPER_HIDDEN,
    "intermediate": PAPER_INTERMEDIATE,
    "activation": ACTIVATIONS,
}


@dataclass(frozen=True)
class SearchSpace:
    """The product of five axes, less the states whose heads do not divide the hidden size.

    Index i counts the valid states in the order of the axes, the last axis fastest, so equal axes
    give equal indices on every machine. The width of a head must be a multiple of
    ``head_multiple``, which is a matter of the family (rotary positions want even heads).

    Raises:
        SearchSpaceError: an empty axis, a repeated or impossible value, too many states or no valid
            one.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    hidden: tuple[int, ...]
    intermediate: tuple[int, ...]
    activation: tuple[str, ...] = ACTIVATIONS
    head_multiple: int = 1

    def __post_init__(self) -> None:
        for axis in AXES:
            values = getattr(self, axis)
            if not values:
                raise SearchSpaceError(f"axis {axis} is empty; give it at least one value")
            if len(set(values)) != len(values):
                raise SearchSpaceError(f"axis {axis} repeats a value: {list(values)}")
        for axis in AXES[:4]:
            most = MOST_LAYERS if axis == "layers" else MOST_CHANNELS
            for value in getattr(self, axis):
                if not isinstance(value, int) or not 1 <= value <= most:
                    raise SearchSpaceError(
                        f"axis {axis} holds {value!r}; use whole numbers from 1 to {most}"
                    )
        for value in self.activation:
            if value not in ACTIVATIONS:
                raise SearchSpaceError(unknown_name("activation", value, ACTIVATIONS))
        if (count := math.prod(len(getattr(self, axis)) for axis in AXES)) > MOST_STATES:
            raise SearchSpaceError(
                f"the axes multiply to {count} states, and a search takes {MOST_STATES} at most; "
                "leave out some values"
            )
        if not self.states:
            width = self.head_multiple
            wide = f" into heads whose width is a multiple of {width}" if width > 1 else ""
            raise SearchSpaceError(
                f"no state of the space is possible: no head count of {list(self.heads)} divides "
                f"a hidden size of {list(self.hidden)}{wide}"
            )

    @classmethod
    def paper(cls) -> SearchSpace:
        """The 2400 states of Trivedi et al. 2023, Table 1.

        The printed table lost its row of hidden sizes; the four values are those that its
        architectures use, and 5·5·4·8·3 = 2400.
        """
        return cls(**_PAPER_AXES)

    @classmethod
    def scaled_to(cls, teacher: TeacherShape) -> SearchSpace:
        """Keep the paper's proportions for a teacher that is not 12 × 768.

        Layers are max(1, ⌊v·L^T/12⌋) and widths v·d_T/768 rounded to a multiple of 12, or of 48
        where that keeps the values apart (so that 48 relation heads divide); repeated values are
        dropped, so a shallow or narrow teacher has fewer states.
        """
        layers = [max(1, v * teacher.layers // PAPER_TEACHER_LAYERS) for v in PAPER_LAYERS]
        return cls(
            layers=_distinct(layers),
            heads=PAPER_HEADS,
            hidden=_scaled_widths(PAPER_HIDDEN, teacher.hidden),
            intermediate=_scaled_widths(PAPER_INTERMEDIATE, teacher.hidden, exact=True),
        )

    @classmethod
    def from_axes(cls, axes: Mapping[str, Sequence[Any]]) -> SearchSpace:
        """Build a custom space from axis name → values; missing axes are the paper's.

        Raises:
            SearchSpaceError: an unknown axis or value.
        """
        for axis in axes:
            if axis not in AXES:
                raise SearchSpaceError(unknown_name("axis", axis, AXES))
        given: dict[str, Any] = {axis: tuple(values) for axis, values in axes.items()}
        return replace(cls.paper(), **given)

    def limited_to(self, problem: Callable[[Architecture], str | None]) -> SearchSpace:
        """Drop the values of an axis with which no state is possible.

        Args:
            problem: says why a state is not possible, or None; what it refuses must lie along
                axes, as a depth or a width does.

        Raises:
            SearchSpaceError: no state is left; the reason is the first state's.
        """
        possible = [state for state in self.states if problem(state) is None]
        if not possible:
            raise SearchSpaceError(
                f"no state of the space is possible: {problem(self.states[0])}; use `space: "
                "scaled` or list other values"
            )
        kept: dict[str, Any] = {
            axis: tuple(v for v in values if any(getattr(s, axis) == v for s in possible))
            for axis, values in self.axes.items()
        }
        limited = replace(self, **kept)
        if len(limited) != len(possible):
            raise ValueError("the problem does not lie along axes")
        return limited

    @cached_property
    def states(self) -> tuple[Architecture, ...]:
        """All valid states in the order of their index."""
        return tuple(self._valid_states())

    def _valid_states(self) -> Iterator[Architecture]:
        for values in itertools.product(
            self.layers, self.heads, self.hidden, self.intermediate, self.activation
        ):
            if values[2] % (values[1] * self.head_multiple) == 0:
                yield Architecture(*values)

    @cached_property
    def _index(self) -> dict[Architecture, int]:
        return {architecture: i for i, architecture in enumerate(self.states)}

    def __len__(self) -> int:
        return len(self.states)

    def __contains__(self, architecture: Architecture) -> bool:
        return architecture in self._index

    def __getitem__(self, index: int) -> Architecture:
        """Return the state with this index; SearchSpaceError outside 0 … len − 1."""
        if not 0 <= index < len(self.states):
            raise SearchSpaceError(
                f"index {index} is outside the space's {len(self.states)} states"
            )
        return self.states[index]

    def index(self, architecture: Architecture) -> int:
        """Return the index of a state.

        Raises:
            SearchSpaceError: the architecture is not in the space; names the axes it misses.
        """
        try:
            return self._index[architecture]
        except KeyError:
            off = [
                f"{axis} {getattr(architecture, axis)} is not in {list(getattr(self, axis))}"
                for axis in AXES
                if getattr(architecture, axis) not in getattr(self, axis)
            ]
            raise SearchSpaceError(
                f"{architecture} is not in the search space: {'; '.join(off)}"
            ) from None

    @property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Axis name → values, in the order of the notation."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def fingerprint(self) -> str:
        """Name of the space by its axes, and by what divides its heads."""
        content: dict[str, Any] = {axis: list(values) for axis, values in self.axes.items()}
        if self.head_multiple > 1:
            content["head_multiple"] = self.head_multiple
        return fingerprint(content)


def num_states(axes: Mapping[str, Sequence[Any]], head_multiple: int) -> int:
    """How many states a space has, without listing them.

    Args:
        axes: axis name → values; missing axes are the paper's.
        head_multiple: of which the width of a head must be a multiple.
    """
    every = {**_PAPER_AXES, **axes}
    pairs = itertools.product(every["heads"], every["hidden"])
    possible = sum(hidden % (heads * head_multiple) == 0 for heads, hidden in pairs)
    others = (axis for axis in AXES if axis not in ("heads", "hidden"))
    count: int = possible * math.prod(len(every[axis]) for axis in others)
    return count


def _distinct(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))


def _scaled_widths(widths: Sequence[int], hidden: int, exact: bool = False) -> tuple[int, ...]:
    """Scale widths to a teacher; prefer exact scaling, then multiples of 48, then of 12.

    Only the hidden size must be divided by head counts; an inner size that scales to a whole
    number may stay as it is (192, 256, 288 …), which ``exact`` allows.
    """
    scaled = [v * hidden / PAPER_TEACHER_HIDDEN for v in widths]
    if exact and all(v == int(v) for v in scaled):
        return _distinct([int(v) for v in scaled])
    by_48, by_12 = (_distinct([max(m, round(v / m) * m) for v in scaled]) for m in (48, 12))
    return by_48 if len(by_48) == len(widths) else by_12
