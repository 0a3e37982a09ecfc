"""What is shown while an objective is prepared: heads that are fitted, layers that are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdnas.cli.screens.console import Bar, say

if TYPE_CHECKING:
    from kdnas.specs.objective_base import ObjectiveSpec


@contextmanager
def preparing_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar that appears when there is something to prepare."""
    shown: dict[str, Bar] = {}

    def tell(what: str, done: int, total: int) -> None:
        if what not in shown:
            say(f"{what}: {total} steps")
            shown[what] = Bar(what, total, unit="steps")
        shown[what].at(done, total)

    try:
        yield tell
    finally:
        for one in shown.values():
            one.close()


def chosen_layer_lines(objective: ObjectiveSpec) -> Iterator[str]:
    """The table of the trials of teacher layers, if there were any."""
    from kdnas.specs.objective_base import LearnsOneLayer

    if not (isinstance(objective, LearnsOneLayer) and objective.trials):
        return
    yield "teacher layer   relative loss   last hidden state unexplained (the smallest is chosen)"
    for trial in objective.trials:
        mark = "  <- chosen" if trial.teacher_layer == objective.teacher_layer else ""
        yield f"{trial.teacher_layer:13}   {trial.relative:13.4f}   {trial.probe:.4f}{mark}"
