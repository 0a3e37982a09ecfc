"""The tables that come with the program."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean, median, stdev

import pytest

from kdnas.tabular.card import trainings_of
from kdnas.tabular.files import packaged_cards, packaged_tables, read_table
from kdnas.tabular.surface import surface_of

TABLES = packaged_tables()


def test_the_main_one_has_every_state_and_others_are_of_the_same_space() -> None:
    main = read_table(TABLES["minilm"])
    assert len(main.architectures) == len(main.space)
    for name in ("minilm-relations", "minilm-wikitext", "minilm-rungs"):
        other = read_table(TABLES[name])
        assert other.space == main.space
        assert other.teacher_ms == main.teacher_ms
        assert all(main.states[state] == known for state, known in other.states.items())


def test_a_students_loss_is_nearly_the_same_whatever_trained_it() -> None:
    """Seeds differ by a deviation below a hundredth in the median, less than students do."""
    by_state: dict[object, list[float]] = {}
    for row in read_table(TABLES["minilm"]).rows:
        if row.key.step == row.key.schedule:
            by_state.setdefault(row.key.architecture, []).append(row.loss)
    several = [losses for losses in by_state.values() if len(losses) > 1]
    assert len(several) == 200
    assert median(stdev(losses) / fmean(losses) for losses in several) < 0.01
    assert stdev(map(fmean, several)) / fmean(map(fmean, several)) > 0.2


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in TABLES.items()])
def test_each_is_small_says_how_it_was_made_and_makes_a_surface(path: Path) -> None:
    assert path.stat().st_size < 1_000_000
    table = read_table(path)
    assert table.card == packaged_cards()[path.stem]
    assert table.card.keys() >= {"axes", "teacher", "corpus", "context", "about"}
    told = table.card["trainings"]
    assert told == [str(one) for one in trainings_of(table)]
    for words in told:
        assert re.match(r"trainings of \d+ steps of 16 sequences: (between seeds|one seed)", words)
    surface = surface_of(table, path.stem)
    assert len(surface.starts) == len(surface.space) == len(table.architectures)
    for index in range(len(surface.space)):
        assert 0 < surface.truth(index) < 1
        assert 0 < surface.starts[index] < 1
    assert all(size > 0 for size in surface.params_millions)
