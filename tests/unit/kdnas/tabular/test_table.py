"""Tables: what they hold, and how they are put together."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kdnas.architecture import Architecture
from kdnas.errors import SearchSpaceError, SpecError
from kdnas.search_space import SearchSpace
from kdnas.tabular.table import Key, StateRow, Table, TableRow, merged, read_whole, timed_as

SMALL, LARGE = Architecture(1, 2, 24, 48, "gelu"), Architecture(2, 4, 48, 96, "relu")
STATES = {SMALL: StateRow(1.5, 0.2), LARGE: StateRow(4.5)}
CARD = {"context": {"teacher": "t"}}


def row(architecture: Architecture, loss: float, seed: int = 0, step: int = 60) -> TableRow:
    return TableRow(Key(architecture, seed, 60, step), loss)


TABLE = Table((row(SMALL, 0.4), row(LARGE, 0.2)), STATES, 9.0, CARD)


def test_the_space_is_what_its_states_span_or_what_its_card_names() -> None:
    assert TABLE.space.axes == {
        "layers": (1, 2),
        "heads": (2, 4),
        "hidden": (24, 48),
        "intermediate": (48, 96),
        "activation": ("gelu", "relu"),
    }
    assert TABLE.architectures == (SMALL, LARGE)
    axes = SearchSpace.from_axes({**TABLE.space.axes, "layers": (1, 2, 3)}).axes
    larger = replace(TABLE, card={"axes": {axis: list(values) for axis, values in axes.items()}})
    assert larger.space.axes == axes
    assert larger.architectures == TABLE.architectures
    wrong = replace(TABLE, card={"axes": {**TABLE.space.axes, "layers": [1]}})
    with pytest.raises(SearchSpaceError, match=r"2,4,48,96,relu is not in the search space"):
        _ = wrong.space


@pytest.mark.parametrize(
    ("rows", "states", "said"),
    [
        ((), STATES, "has no row"),
        ((row(SMALL, 0.4), row(SMALL, 0.4)), STATES, "after step 60 of 60 (seed 0) twice"),
        ((row(SMALL, math.nan),), STATES, "the loss of 1,2,24,48,gelu after step 60 of 60"),
        ((row(SMALL, math.inf),), STATES, "is inf; give a number from 0"),
        ((row(SMALL, -0.1),), STATES, "is -0.1; give a number from 0"),
        ((row(SMALL, 0.4),), {}, "the latency of 1,2,24,48,gelu is missing"),
        ((row(SMALL, 0.4),), {SMALL: StateRow(0.0)}, "the latency of 1,2,24,48,gelu is 0.0"),
        ((row(SMALL, 0.4),), {SMALL: StateRow(math.nan)}, "the latency of 1,2,24,48,gelu is nan"),
    ],
)
def test_what_is_no_table_is_refused(
    rows: tuple[TableRow, ...], states: dict[Architecture, StateRow], said: str
) -> None:
    with pytest.raises(SpecError) as raised:
        Table(rows, states)
    assert said in str(raised.value)


def test_parts_are_put_together_in_any_order() -> None:
    more = Table((row(SMALL, 0.41, seed=1), row(SMALL, 0.4)), {SMALL: STATES[SMALL]}, 9.0, CARD)
    start = Table((row(LARGE, 0.5, step=0),), {LARGE: STATES[LARGE]}, 9.0, CARD)
    whole = merged([TABLE, more, start])
    assert whole == merged([start, more, TABLE])
    assert len(whole.rows) == 4
    assert whole.states == STATES
    assert merged([whole]) == whole


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            replace(TABLE, card={"context": {"teacher": "u"}}),
            "what decides the losses (teacher: t, u) is not the same",
        ),
        (replace(TABLE, card={**CARD, "axes": TABLE.space.axes}), "the space"),
        (replace(TABLE, card={}), "give all as Parquet"),
        (replace(TABLE, teacher_ms=8.0), "(9.0, 8.0 ms); take those of one of them for all"),
        (replace(TABLE, rows=(row(SMALL, 0.39),)), "(seed 0): 0.4 and 0.39"),
        (
            replace(TABLE, states={**STATES, SMALL: StateRow(2.0)}),
            "latency or size of 1,2,24,48,gelu: 1.5 ms with 0.2 M parameters and 2.0 ms; take",
        ),
    ],
)
def test_parts_of_different_wholes_stay_apart(other: Table, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        merged([TABLE, other])
    assert said in str(raised.value)


def test_tables_of_two_machines_are_one_with_the_latencies_of_either() -> None:
    other = Table(
        (row(SMALL, 0.41, seed=1),), {SMALL: StateRow(3.0, 0.2), LARGE: StateRow(7.0)}, 18.0, CARD
    )
    whole = merged([timed_as(one, other) for one in (TABLE, other)])
    assert whole.states == {SMALL: StateRow(3.0, 0.2), LARGE: StateRow(7.0)}
    assert (whole.teacher_ms, len(whole.rows)) == (18.0, 3)
    assert timed_as(TABLE, TABLE) == TABLE
    with pytest.raises(SpecError, match=r"there is none of 2,4,48,96,relu, nor of 0 more; take"):
        timed_as(TABLE, replace(other, states={SMALL: StateRow(3.0)}))
    with pytest.raises(SpecError, match=r"cannot be taken over: the space \(layers: None, \[1\]\)"):
        timed_as(replace(TABLE, card={"axes": {}}), replace(other, card={"axes": {"layers": [1]}}))


def test_states_of_which_a_table_has_all_of_some_readings() -> None:
    more = replace(TABLE, rows=(*TABLE.rows, row(LARGE, 0.5, step=0), row(LARGE, 0.3, seed=1)))
    assert read_whole(more, [(0, 60, 60)]) == {SMALL, LARGE}
    assert read_whole(more, [(0, 60, 0), (0, 60, 60)]) == {LARGE}
    assert read_whole(more, [(0, 60, 60), (1, 60, 60)]) == {LARGE}
    assert read_whole(more, [(2, 60, 60)]) == read_whole(more, [(0, 120, 60)]) == set()
