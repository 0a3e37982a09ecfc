"""Surfaces: their truth, their noise, and what of a table they are made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.search_space import SearchSpace
from kdnas.tabular.surface import SYNTHETIC, PartOfSpace, surface_of, synthetic
from kdnas.tabular.table import Key, StateRow, Table, TableRow

A, B, C = (Architecture(layers, 2, 24, 48, "gelu") for layers in (1, 2, 3))
STATES = {A: StateRow(1.0, 0.1), B: StateRow(2.0, 0.2), C: StateRow(3.0, 0.3)}


def row(state: Architecture, seed: int, schedule: int, step: int, loss: float) -> TableRow:
    return TableRow(Key(state, seed, schedule, step), loss)


TABLE = Table(
    (
        *(row(A, seed, 60, 60, loss) for seed, loss in ((0, 0.30), (1, 0.34))),
        row(B, 0, 60, 60, 0.2),
        *(row(A, 0, 60, 0, loss) for loss in (0.5,)),
        row(B, 0, 60, 0, 0.4),
        row(A, 0, 480, 30, 0.45),
        row(A, 0, 480, 480, 0.1),
        row(C, 0, 0, 0, 0.6),
    ),
    STATES,
    10.0,
    {"axes": {"layers": [1, 2, 3, 4], "heads": [2], "hidden": [24], "intermediate": [48]}},
)


def test_it_takes_the_ends_of_the_trainings_of_most_states() -> None:
    surface = surface_of(TABLE, "small")
    assert list(surface.space.states) == [A, B]
    assert [list(own) for own in surface.losses] == [[0.30, 0.34], [0.2]]
    assert surface.truth(0) == pytest.approx(0.32)
    assert surface.noise == pytest.approx([-0.02 * 2**0.5, 0.02 * 2**0.5])
    assert surface.starts == {0: 0.5, 1: 0.4}
    assert (list(surface.latency_ms), surface.teacher_ms) == ([1.0, 2.0], 10.0)
    assert surface.latencies.ratio(B) == 0.2
    others = row(C, 0, 480, 480, 0.05), row(A, 0, 0, 0, 0.7)
    more = replace(TABLE, rows=(*TABLE.rows, *others))
    long = surface_of(more, "small", 480)
    assert list(long.space.states) == [A, C]
    assert long.truth(0) == 0.1
    starts = surface_of(more, "small", 0)
    assert (list(starts.space.states), starts.starts) == ([A, C], {})


def test_what_a_search_sees_is_one_of_the_seeds_or_has_the_noise_of_others() -> None:
    surface = surface_of(TABLE, "small")
    assert {surface.observed(0, seed) for seed in range(30)} == {0.30, 0.34}
    seen = {round(surface.observed(1, seed), 6) for seed in range(30)}
    assert seen == {0.171716, 0.228284}
    assert [surface.observed(1, 3) for _ in range(3)] == [surface.observed(1, 3)] * 3
    assert replace(surface, noise=[]).observed(1, 5) == 0.2


def test_readings_on_the_way_are_those_that_every_training_has() -> None:
    """Of each seed its own; a start of another schedule is none of this one's."""
    surface = surface_of(TABLE, "small")
    assert (surface.steps, surface.readings) == (60, {})
    more = (row(A, 1, 60, 0, 0.52), row(A, 0, 60, 30, 0.4), row(B, 0, 60, 30, 0.3))
    surface = surface_of(replace(TABLE, rows=(*TABLE.rows, *more)), "small")
    assert surface.readings == {0: [[0.5, 0.52], [0.4]]}
    pairs = {(surface.read(0, seed, 0), surface.observed(0, seed)) for seed in range(30)}
    assert pairs == {(0.5, 0.30), (0.52, 0.34)}
    more = (row(C, 0, 480, 30, 0.25), row(C, 0, 480, 480, 0.05))
    long = surface_of(replace(TABLE, rows=(*TABLE.rows, *more)), "small", 480)
    assert (long.steps, long.readings) == (480, {30: [[0.45], [0.25]]})


def test_what_a_seed_does_to_all_students_alike_is_no_noise_of_one() -> None:
    """Seed 1 makes all losses a tenth larger, and of the first state another tenth."""
    states = [Architecture(layers, 2, 24, 48, "gelu") for layers in range(1, 22)]
    rows = [row(state, 0, 60, 60, 0.2) for state in states]
    rows += [row(state, 1, 60, 60, 0.22 + 0.02 * (n == 0)) for n, state in enumerate(states[:20])]
    table = Table(tuple(rows), {state: StateRow(1.0, 0.1) for state in states}, 10.0)
    surface = surface_of(table, "seeds")
    factor = 0.2 * 20 / (0.22 * 19 + 0.24)
    assert surface.losses[0] == pytest.approx([0.2, 0.24 * factor])
    assert surface.losses[5] == pytest.approx([0.2, 0.22 * factor])
    assert surface.losses[20] == [0.2]
    assert max(map(abs, surface.noise)) < 0.014
    few = surface_of(replace(table, rows=tuple(rows[:30])), "few")
    assert few.losses[5] == [0.2, 0.22]


@pytest.mark.parametrize(
    ("table", "schedule", "said"),
    [
        (TABLE, 30, "has no state that was trained for 30 steps to the end; it has trainings of"),
        (
            TABLE,
            480,
            "has one state alone trained for 480 steps, 1,2,24,48,gelu, and a comparison needs two",
        ),
        (replace(TABLE, rows=TABLE.rows[5:6]), None, "trained for any steps to the end"),
        (
            replace(TABLE, states={**STATES, B: StateRow(2.0)}),
            None,
            "has no params_millions of 2,2,24,48,gelu, and has those of other states; fill it in",
        ),
    ],
)
def test_what_makes_no_surface_is_refused(table: Table, schedule: int | None, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        surface_of(table, "small", schedule)
    assert said in str(raised.value)


def test_the_largest_latency_stands_for_the_teachers_and_layers_for_the_size() -> None:
    """Of the whole table, also where the slowest state was not trained for so many steps."""
    known = surface_of(TABLE, "small")
    assert (known.knows_teacher, known.knows_sizes) == (True, True)
    bare = {state: StateRow(own.latency_ms) for state, own in STATES.items()}
    surface = surface_of(replace(TABLE, states=bare, teacher_ms=None), "small")
    assert (surface.knows_teacher, surface.knows_sizes) == (False, False)
    assert surface.teacher_ms == 3.0
    layer = 4 * (24 * 24 + 24) + (2 * 24 * 48 + 48 + 24) + 4 * 24
    assert list(surface.params_millions) == [layer / 1e6, 2 * layer / 1e6]
    assert (surface.space, surface.losses) == (known.space, known.losses)


def test_a_part_of_a_space_has_its_members_alone() -> None:
    whole = SearchSpace.paper()
    part = PartOfSpace.of(whole, whole.states[::7])
    assert part.states == whole.states[::7]
    assert part.axes == whole.axes
    assert part.index(whole.states[14]) == 2
    assert whole.states[1] not in part
    assert part.fingerprint != PartOfSpace.of(whole, whole.states[::6]).fingerprint
    assert part.fingerprint == PartOfSpace.of(whole, whole.states[::7]).fingerprint


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_synthetic_surface_is_the_same_each_time(name: str) -> None:
    one, again = synthetic(name), synthetic(name)
    assert one == again
    assert len(one.space) == len(one.losses) == len(one.starts) == 2400
    truth = [one.truth(i) for i in range(2400)]
    assert 0 < min(truth) < 0.15 < 0.35 < max(truth) < 0.5
    starts = [one.starts[i] for i in range(2400)]
    assert 0.7 < np.corrcoef(truth, starts)[0, 1] < 0.98
    with pytest.raises(SpecError, match="no synthetic surface 'flat'; take additive or rough"):
        synthetic("flat")


def test_only_the_rough_one_is_more_than_a_sum_over_the_axes() -> None:
    """What each value of each axis is worth explains one of them whole."""
    explained = {}
    for name in SYNTHETIC:
        surface = synthetic(name)
        columns = [np.ones(len(surface.space))]
        for axis, values in surface.space.axes.items():
            columns += [
                np.array([getattr(s, axis) == v for s in surface.space.states], float)
                for v in values[1:]
            ]
        design = np.stack(columns, axis=1)
        truth = np.array([surface.truth(i) for i in range(len(surface.space))])
        rest = truth - design @ np.linalg.lstsq(design, truth, rcond=None)[0]
        explained[name] = 1 - rest.var() / truth.var()
    assert explained["additive"] == pytest.approx(1.0)
    assert explained["rough"] < 0.97
