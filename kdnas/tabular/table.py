"""A table of students: which states there are, how fast they are, and what was read of them.

One row is one reading: of a state, under a seed, in a schedule of so many steps, after a step. A
table may hold a part of a space; what it does not hold cannot be asked of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.records import LossName
from kdnas.search_space import AXES, SearchSpace


class Key(NamedTuple):
    """Which reading: ``schedule`` is the length of the whole training, ``step`` after which."""

    architecture: Architecture
    seed: int
    schedule: int
    step: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """One reading of a state.

    Attributes:
        key: of which state, when.
        loss: held-out relative loss.
        loss_output: of the last pair of layers; None where it was not read.
        loss_mean: mean over the pairs; None where it was not read.
    """

    key: Key
    loss: float
    loss_output: float | None = None
    loss_mean: float | None = None

    def named(self, name: LossName) -> float | None:
        """Return a loss by its name; None where it was not read."""
        return {"relative": self.loss, "output": self.loss_output, "mean": self.loss_mean}[name]


@dataclass(frozen=True, slots=True)
class StateRow:
    """What is known of a state without training it.

    Attributes:
        latency_ms: of one inference.
        params_millions: of the student; None where nobody has counted.
    """

    latency_ms: float
    params_millions: float | None = None

    def __str__(self) -> str:
        """Say it in words."""
        size = "" if self.params_millions is None else f" with {self.params_millions} M parameters"
        return f"{self.latency_ms} ms{size}"


@dataclass(frozen=True)
class Table:
    """States with their readings.

    Attributes:
        rows: the readings, by state, seed, schedule and step.
        states: what is known of each state that has one.
        teacher_ms: the teacher's latency; None where it is not known.
        card: how the table was made, as plain JSON.

    Raises:
        SpecError: no row, a loss or latency that is no number, a reading that is there twice, or
            a state without a latency.
    """

    rows: tuple[TableRow, ...]
    states: Mapping[Architecture, StateRow]
    teacher_ms: float | None = None
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rows:
            raise SpecError("the table has no row; a benchmark needs states with losses")
        seen: set[Key] = set()
        for row in self.rows:
            where = _words(row.key)
            if row.key in seen:
                raise SpecError(f"the table has {where} twice; leave one of the rows out")
            seen.add(row.key)
            if not (math.isfinite(row.loss) and row.loss >= 0):
                raise SpecError(
                    f"the loss of {where} is {row.loss}; give a number from 0, or leave the row out"
                )
            state = self.states.get(row.key.architecture)
            if state is None or not 0 < state.latency_ms < math.inf:
                given = "missing" if state is None else state.latency_ms
                raise SpecError(
                    f"the latency of {row.key.architecture} is {given}; give milliseconds above 0, "
                    "or leave the state out"
                )
        if self.teacher_ms is not None and not 0 < self.teacher_ms < math.inf:
            raise SpecError(
                f"the teacher's latency is {self.teacher_ms}; give milliseconds above 0"
            )

    @cached_property
    def architectures(self) -> tuple[Architecture, ...]:
        """Every state that has a reading, in the order of the space."""
        own = {row.key.architecture for row in self.rows}
        return tuple(state for state in self.space.states if state in own)

    @cached_property
    def space(self) -> SearchSpace:
        """The space that its states span, or that its card names.

        Raises:
            SearchSpaceError: its card names axes that a state is not on, or that are no space.
        """
        named = self.card.get("axes")
        if named:
            axes: Mapping[str, Sequence[Any]] = named
        else:
            own = {row.key.architecture for row in self.rows}
            axes = {axis: sorted({getattr(state, axis) for state in own}) for axis in AXES}
        space = replace(
            SearchSpace.from_axes(axes), head_multiple=self.card.get("head_multiple", 1)
        )
        for row in self.rows:
            space.index(row.key.architecture)
        return space


def timed_as(table: Table, timing: Table) -> Table:
    """The same readings with the latencies of another table, as of another machine.

    Raises:
        SpecError: the other one is of another space, or has no latency of a state.
    """
    problem = _apart(table.card, timing.card, _OF_SPACE)
    if problem is not None:
        raise SpecError(f"latencies cannot be taken over: {problem}")
    missing = [state for state in table.architectures if state not in timing.states]
    if missing:
        raise SpecError(
            f"latencies cannot be taken over: there is none of {missing[0]}, nor of "
            f"{len(missing) - 1} more; take a source that has one of every state"
        )
    states = {
        state: replace(table.states[state], latency_ms=timing.states[state].latency_ms)
        for state in table.architectures
    }
    return replace(table, states=states, teacher_ms=timing.teacher_ms)


def read_whole(table: Table, readings: Collection[tuple[int, int, int]]) -> set[Architecture]:
    """The states that a table has all of some readings of.

    Args:
        table: of a sweep.
        readings: seed, schedule and step of each.
    """
    wanted, had = set(readings), defaultdict(set)
    for row in table.rows:
        had[row.key.architecture].add(row.key[1:])
    return {state for state, own in had.items() if wanted <= own}


def merged(tables: Iterable[Table]) -> Table:
    """Put tables of one teacher, space and training into one.

    A reading that several of them have is kept once.

    Raises:
        SpecError: they are of different spaces, teachers or trainings, or differ in a reading.
    """
    first, *others = tables
    rows = {row.key: row for row in first.rows}
    states = dict(first.states)
    for other in others:
        problem = apart(first.card, other.card)
        if problem is None and first.teacher_ms != other.teacher_ms:
            problem = (
                "the teacher's latency is not the same in all of them "
                f"({first.teacher_ms}, {other.teacher_ms} ms); {_TIMED_BY}"
            )
        if problem is not None:
            raise SpecError(f"these tables cannot be one: {problem}")
        for row in other.rows:
            known = rows.setdefault(row.key, row)
            if known.loss != row.loss:
                raise SpecError(
                    f"these tables differ in {_words(row.key)}: {known.loss} and {row.loss}; leave "
                    "one of them out"
                )
        for architecture, state in other.states.items():
            if states.setdefault(architecture, state) != state:
                raise SpecError(
                    f"these tables differ in the latency or size of {architecture}: "
                    f"{states[architecture]} and {state}; {_TIMED_BY}"
                )
    return Table(_sorted(rows.values()), states, first.teacher_ms, first.card)


_TIMED_BY: Final = "take those of one of them for all, with kdnas tabular make --timed-by"
_OF_SPACE: Final = {"axes": "the space", "head_multiple": "the space"}
_OF_TRAINING: Final = {**_OF_SPACE, "context": "what decides the losses"}


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Say what keeps tables with these cards from being one, and what to do; None if nothing."""
    return _apart(one, other, _OF_TRAINING)


def _apart(one: Mapping[str, Any], other: Mapping[str, Any], told: Mapping[str, str]) -> str | None:
    if bool(one) != bool(other):
        return (
            "one of them has a card that says how it was made, and another has none, as a CSV file "
            "has none; give all as Parquet"
        )
    for key, words in told.items():
        if one.get(key) != other.get(key):
            return (
                f"{words}{_entry(one.get(key), other.get(key))} is not the same in all of them; "
                "merge tables of one teacher, space and training"
            )
    return None


def _entry(one: Any, other: Any) -> str:
    """Which entry of two mappings differs first, and its two values; empty if it is not that."""
    path: list[str] = []
    while isinstance(one, Mapping) and isinstance(other, Mapping):
        key = min(key for key in {*one, *other} if one.get(key) != other.get(key))
        path, one, other = [*path, key], one.get(key), other.get(key)
    return f" ({'.'.join(path)}: {one}, {other})" if path else ""


def _sorted(rows: Iterable[TableRow]) -> tuple[TableRow, ...]:
    return tuple(sorted(rows, key=lambda row: (str(row.key.architecture), *row.key[1:])))


def _words(key: Key) -> str:
    """A reading; one without a training has no steps, and mostly no seed, to tell."""
    when = f" after step {key.step} of {key.schedule}" if key.schedule else ""
    seed = f" (seed {key.seed})" if key.schedule or key.seed else ""
    return f"{key.architecture}{when}{seed}"
