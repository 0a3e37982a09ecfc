"""What the rows of a table say of its trainings: how long they are, and how far seeds are apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from kdnas.architecture import Architecture
from kdnas.search.analysis.noise import Noise, noise_of
from kdnas.tabular.table import Table


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
    losses: dict[int, dict[Architecture, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in table.rows:
        state, seed, schedule, step = row.key
        if step == schedule:
            losses[schedule][state][seed] = row.loss
    batch_size = table.card.get("context", {}).get("proxy", {}).get("batch_size")
    found = []
    for steps in sorted(steps for steps in losses if steps or len(losses) == 1):
        states = losses[steps].values()
        several = [own for own in states if len(own) > 1]
        seeds = sorted({seed for own in several or states for seed in own})
        noise = noise_of([list(own.values()) for own in states])
        found.append(Trainings(steps, batch_size, tuple(seeds), noise))
    return found
