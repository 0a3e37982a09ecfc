"""What commands show while they work: on stderr, so that stdout is left for results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(stderr=True, highlight=False, soft_wrap=True)

LINE_SECONDS = 10.0
"""How often a bar becomes a line where stderr is no terminal."""


def say(text: str = "") -> None:
    """Print a line for the person at the screen."""
    console.print(text, markup=False)


def say_each(lines: Iterable[str]) -> None:
    """Print some lines for the person at the screen."""
    for line in lines:
        say(line)


def show_results(as_json: bool) -> Callable[[str], None]:
    """Return what prints a command's results.

    They go to stdout, or beside everything else where stdout is for ``--json``'s object alone.
    """
    out = console if as_json else Console(highlight=False, soft_wrap=True)

    def show(text: str) -> None:
        out.print(text, markup=False)

    return show


class Bar:
    """A progress bar; a line now and then where stderr is no terminal."""

    def __init__(self, label: str, total: float | None, unit: str = "") -> None:
        self._label, self._total, self._unit = label, total, unit
        self._last = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn() if unit else TextColumn("{task.percentage:3.0f} %"),
            TextColumn(unit + " {task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(label, total=total, note="")
        self._progress.start()

    def at(self, done: float, total: float | None = None, note: str = "") -> None:
        """Show that this much is done."""
        self._total = self._total if total is None else total
        self._progress.update(self._task, completed=done, total=total, note=note)
        if self._progress.disable and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            say(" ".join(part for part in (f"{self._label}:", self._figure(done), note) if part))

    def _figure(self, done: float) -> str:
        if self._unit:
            return f"{done:g}{f' of {self._total:g}' if self._total else ''} {self._unit}"
        return f"{100 * done / self._total:.0f} %" if self._total else ""

    def close(self) -> None:
        """Take the bar off the screen."""
        self._progress.stop()


@contextmanager
def bar(label: str, total: float | None = None, unit: str = "") -> Iterator[Bar]:
    """Show a bar for the time of a ``with`` block."""
    shown = Bar(label, total, unit)
    try:
        yield shown
    finally:
        shown.close()
        sys.stderr.flush()
