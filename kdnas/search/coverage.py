"""How often each value of each pair of axes was tried."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kdnas.search_space import AXES, SearchSpace
from kdnas.specs.search import SpaceSpec

AxisValue = int | str


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Candidates by the values of two axes, in the order of the axes' values."""

    rows: str
    columns: str
    counts: list[list[int]]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a space was tried: values of each axis, and counts of each pair of axes."""

    axes: dict[str, list[AxisValue]]
    pairs: list[PairCounts]


def known_axes(spec: SpaceSpec) -> Mapping[str, Sequence[AxisValue]]:
    """Axes of a space that can be told from its spec alone; none if it depends on the teacher."""
    if spec.kind == "paper":
        return SearchSpace.paper().axes
    return SearchSpace.from_axes(spec.axes).axes if spec.kind == "custom" else {}


def coverage(tried: Iterable[tuple[str, int]], axes: Mapping[str, Sequence[AxisValue]]) -> Coverage:
    """Count candidates by pairs of values.

    Args:
        tried: architecture as text, and how many candidates had it.
        axes: values that are shown even if they were never tried; others are added in order.
    """
    states = [(text.split(","), count) for text, count in tried]
    values = [_values(axis, {parts[i] for parts, _ in states}, axes) for i, axis in enumerate(AXES)]
    pairs = []
    for i, j in itertools.combinations(range(len(AXES)), 2):
        counts: Counter[tuple[str, str]] = Counter()
        for parts, count in states:
            counts[parts[i], parts[j]] += count
        table = [[counts[str(row), str(column)] for column in values[j]] for row in values[i]]
        pairs.append(PairCounts(AXES[i], AXES[j], table))
    return Coverage(dict(zip(AXES, values, strict=True)), pairs)


def _values(axis: str, found: set[str], axes: Mapping[str, Sequence[AxisValue]]) -> list[AxisValue]:
    known = list(axes.get(axis, ()))
    new = found - set(map(str, known))
    if axis == "activation":
        return [*known, *sorted(new)]
    return sorted([*(int(value) for value in known), *map(int, new)])
