"""What of a table is known only when all its rows were seen: a column of parts, rows in cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

Part = Literal["train", "dev", "test"]

PARTS: Final[Mapping[str, Part]] = {
    "train": "train",
    "training": "train",
    "trainset": "train",
    "dev": "dev",
    "devel": "dev",
    "devset": "dev",
    "development": "dev",
    "val": "dev",
    "valid": "dev",
    "validate": "dev",
    "validation": "dev",
    "testa": "dev",
    "test": "test",
    "testing": "test",
    "testset": "test",
    "testb": "test",
}
"""Words of the names of files, and values of a column, that say which part examples are of."""
_MOST_KEPT: Final = 1000


class PartColumn:
    """Finds a column, whatever its name, that says of every row which part it is of.

    Args:
        width: columns of the table.
        taken: columns that hold something else.
    """

    def __init__(self, width: int, taken: Collection[int | None]) -> None:
        self._said: dict[int, list[str]] = {n: [] for n in range(width) if n not in taken}

    def see(self, row: Sequence[Any]) -> None:
        """Look at a row; columns that say something else are out of it."""
        for place, said in [*self._said.items()]:
            value = str(row[place]).strip().lower() if place < len(row) else ""
            if value in PARTS:
                said.append(value)
            else:
                del self._said[place]

    def found(self) -> tuple[int, Sequence[str]] | None:
        """Return the column, and what it says of each row; None if there is none.

        It says train, and test or dev.
        """
        for place, said in self._said.items():
            parts = {PARTS[value] for value in set(said)}
            if "train" in parts and len(parts) > 1:
                return place, said
        return None


class RowsInCells:
    """Finds cells with lines that are rows of the table, since a quote is not closed.

    They have as many columns, and a label that other rows have, or a number where all have.

    Args:
        path: of the table, for messages.
        width: columns of it.
        label: column of its label.
    """

    def __init__(self, path: Path, width: int, label: int) -> None:
        self._path, self._width, self._label = path, width, label
        self._known: set[str] = set()
        self._odd: list[tuple[int, str]] = []

    def see(self, number: int, row: Sequence[str]) -> None:
        """Look at a row.

        Args:
            number: of its line.
            row: its cells.
        """
        self._known.add(row[self._label].strip())
        if len(self._odd) < _MOST_KEPT:
            lines = (line for cell in row if "\n" in cell for line in cell.split("\n"))
            labels = (self._label_of(line) for line in lines)
            self._odd += [(number, label) for label in labels if label is not None]

    def _label_of(self, line: str) -> str | None:
        """The label of a line that has as many columns as the table."""
        for mark in ",;\t":
            cells = line.split(mark)
            if len(cells) == self._width:
                return cells[self._label].strip().strip('"')
        return None

    def notes(self) -> list[str]:
        """Say where the first such cell is."""
        numbers = all(map(is_number, self._known))
        for number, label in self._odd:
            if label in self._known or (numbers and is_number(label)):
                return [
                    f"{self._path.name}, line {number} has a cell with lines that are rows "
                    "themselves: a quote in it may not be closed"
                ]
        return []


def is_number(cell: str) -> bool:
    """Whether a cell is a number, as 3, -1 or 0.5."""
    return cell.strip().lstrip("+-").replace(".", "", 1).isdigit()
