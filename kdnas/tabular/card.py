"""How the trainings of a table were made, how long they are, and how far seeds are apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kdnas.architecture import Architecture
from kdnas.records import LossName
from kdnas.search.analysis.noise import Noise, noise_of
from kdnas.tabular.table import Table, TableRow

_OF_A_TRAINING: Final = ("seed", "steps", "epochs")
"""What of a proxy tells one training of a table from another."""


@dataclass(frozen=True, slots=True)
class Trainings:
    """The trainings of one length that came to their end.

    Attributes:
        steps: of each; 0 in a table that names none.
        batch_size: sequences of a step; None where the card does not say.
        seeds: under which states were trained several times; all, if none was.
        noise: of their last loss between seeds; None if no state was trained under two.
    """

    steps: int
    batch_size: int | None
    seeds: tuple[int, ...]
    noise: Noise | None

    def __str__(self) -> str:
        """Say it in a line."""
        of = "" if self.batch_size is None else f" of {self.batch_size} sequences"
        what = f"trainings of {self.steps} steps{of}: " if self.steps else ""
        noise = self.noise
        if noise is None:
            alone = "one seed" if len(self.seeds) == 1 else "no state has two seeds"
            return f"{what}{alone}, so that their noise is not known"
        states = f"{noise.num_states} state{'' if noise.num_states == 1 else 's'}"
        seeds = ", ".join(map(str, self.seeds))
        return f"{what}between seeds the loss deviates by {noise.sd:.2g} ({states}, seeds {seeds})"


def trainings_of(table: Table) -> list[Trainings]:
    """What a table has of trainings to their end, by length.

    The noise is the standard deviation of single trainings around the mean of their state, what a
    seed does to all states alike included.
    """
    ends = _ends(table)
    batch_size = table.card.get("context", {}).get("proxy", {}).get("batch_size")
    found = []
    for steps in sorted(steps for steps in ends if steps or len(ends) == 1):
        states = ends[steps].values()
        several = [own for own in states if len(own) > 1]
        seeds = sorted({seed for own in several or states for seed in own})
        noise = noise_of([[row.loss for row in own.values()] for own in states])
        found.append(Trainings(steps, batch_size, tuple(seeds), noise))
    return found


def noise_after(table: Table, steps: int, loss: LossName) -> Noise | None:
    """Noise of a loss of the trainings of one length, without students that have not learned.

    Args:
        table: of them.
        steps: of each training.
        loss: which one.

    Returns:
        None if no state was trained under two seeds.
    """
    learned = (
        [row for row in own.values() if row.loss_output is None or row.loss_output < 1]
        for own in _ends(table).get(steps, {}).values()
    )
    values = ([row.named(loss) for row in rows] for rows in learned)
    return noise_of([[value for value in own if value is not None] for own in values])


def context_of_all(context: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the losses of all trainings of a table: without their seeds and lengths."""
    proxy = {k: v for k, v in context["proxy"].items() if k not in _OF_A_TRAINING}
    return {**context, "proxy": proxy}


def _ends(table: Table) -> dict[int, dict[Architecture, dict[int, TableRow]]]:
    """The last readings: by length of the training, state and seed."""
    ends: dict[int, dict[Architecture, dict[int, TableRow]]]
    ends = defaultdict(lambda: defaultdict(dict))
    for row in table.rows:
        state, seed, schedule, step = row.key
        if step == schedule:
            ends[schedule][state][seed] = row
    return ends
