"""The tables that come with the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.tabular.files import packaged_tables, read_table
from kdnas.tabular.surface import surface_of

TABLES = packaged_tables()


def test_there_is_one_of_minilm() -> None:
    assert "minilm" in TABLES


@pytest.mark.parametrize("path", [pytest.param(path, id=name) for name, path in TABLES.items()])
def test_each_is_small_says_how_it_was_made_and_makes_a_surface(path: Path) -> None:
    assert path.stat().st_size < 1_000_000
    table = read_table(path)
    assert table.card.keys() >= {"axes", "teacher", "corpus", "context", "about"}
    surface = surface_of(table, path.stem)
    assert len(surface.starts) == len(surface.space) == len(table.architectures)
    for index in range(len(surface.space)):
        assert 0 < surface.truth(index) < 1
        assert 0 < surface.starts[index] < 1
    assert all(size > 0 for size in surface.params_millions)
