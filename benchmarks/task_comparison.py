"""What the study of distillation for one task says of the paper's claims: figures and intervals.

Every difference is between runs of the same seeds and of the same examples. Its interval has both
in it: which examples there are (drawn anew), and how the seeds turned out (Student's t). How seeds
turn out differently on different examples is in either part, so that intervals are rather wide. How
another teacher would have taught is in neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from quality_page import interval
from task_study import Part

from kdnas.evaluation.scoring.tally import Tally, average, tally
from kdnas.taskspecific.grid import GRID_SEED

Floats = NDArray[np.float64]
AGAINST: Final = "vanilla-kd"
DRAWS: Final = 5000
"""Their variance is within 2 % of what more of them have, and half an interval within 1 %."""


@dataclass(frozen=True)
class Claim:
    """Two methods that the paper sets beside each other.

    Attributes:
        first: the method that it puts ahead, or that follows another in its text.
        second: what that is beside.
        source: the table.
        parts: where that can be looked at here.
        published: task → first less second as printed, in points, where it prints both.
    """

    first: str
    second: str
    source: str
    parts: tuple[str, ...]
    published: dict[str, float]


TRANSFORMERS: Final = ("RTE", "CoLA", "STS-B")
SEQUENCES: Final = ("bilstm", "gated-cnn")
_TABLE_2: Final = (
    ("vanilla-kd", "none", (3.6, -1.8, 0.2)),
    ("universal-kd-il", "vanilla-kd", (2.6, 5.0, 0.4)),
    ("universal-kd-il", "pkd", (2.2, 2.1, 0.6)),
    ("universal-kd-il", "mhkd", (1.5, 1.4, 0.4)),
    ("universal-kd-il", "alp-kd", (0.7, 1.1, 0.3)),
)
_TABLE_4: Final = (
    ("dih", "takd", (0.8, 0.3, -0.3)),
    ("annealing-kd", "takd", (1.8, 0.5, 0.0)),
    ("annealing-kd", "dih", (1.0, 0.2, 0.3)),
    ("universal-kd-cg", "vanilla-kd", (2.9, 2.0, 1.0)),
    ("universal-kd-cg", "annealing-kd", (0.4, 1.3, 0.9)),
    ("universal-kd-cg", "dih", (1.4, 1.5, 1.2)),
)


def _claims(rows: Any, source: str) -> list[Claim]:
    return [
        Claim(first, second, source, TRANSFORMERS, dict(zip(TRANSFORMERS, printed, strict=True)))
        for first, second, printed in rows
    ]


CLAIMS: Final = (
    *_claims(_TABLE_2, "Table 2"),
    *_claims(_TABLE_4, "Table 4"),
    Claim("universal-kd-cg", "universal-kd-weighted", "Table 6", TRANSFORMERS, {"RTE": 1.4}),
    Claim("universal-kd-weighted", "dih", "Table 6", TRANSFORMERS, {"RTE": 0.0}),
    Claim("vanilla-kd", "none", "Table 5", SEQUENCES, {"bilstm": -0.4, "gated-cnn": 0.8}),
    Claim("universal-kd-ca", "vanilla-kd", "Table 5", SEQUENCES, {"bilstm": 0.8, "gated-cnn": 0.2}),
)
"""Differences of the paper are those of its tables' rows for the same task, on development sets:
12-layer BERT to 4 layers (Table 2), RoBERTa-large to 6 (Tables 4 and 6), BERT to the two others
(Table 5, SST-2). That takd and vanilla-kd are alike (§5.4) is said without a margin within which
they would be, so it is not among them."""


def is_chosen(part: Part, row: dict[str, Any]) -> bool:
    """Whether a run is the trial that a grid has chosen."""
    return row["seed"] == GRID_SEED and bool(part.points(row["method"]))


class Runs:
    """The runs of a part that are compared.

    Left out are those that diverged, and with a grid the run that is the trial it has chosen: the
    best of several by its held-out score, which those of other seeds were not chosen by.

    Args:
        part: of the study.
        rows: of it.
        truth: labels of the examples that are reported, in order.
    """

    def __init__(
        self, part: Part, rows: list[dict[str, Any]], truth: Sequence[str | float | None]
    ) -> None:
        self.part, self.truth = part, truth
        self.diverged = [row for row in rows if row.get("error") is not None]
        ended = [row for row in rows if row.get("error") is None]
        self.chosen = [row for row in ended if is_chosen(part, row)]
        self.by_method = {
            method: {
                row["seed"]: row
                for row in ended
                if row["method"] == method and not is_chosen(part, row)
            }
            for method in part.methods
        }
        self.metric = str(rows[0]["metric"])
        # The same draws for all that is scored on the same examples, and others for other tasks.
        self._often = np.random.default_rng(list(part.task.encode())).multinomial(
            len(truth), np.full(len(truth), 1 / len(truth)), DRAWS
        )

    def scores(self, method: str, seeds: Sequence[int]) -> list[float]:
        """Scores of a method's runs."""
        return [float(self.by_method[method][seed]["main"]) for seed in seeds]

    def seeds(self, method: str) -> list[int]:
        """Seeds that it has."""
        return sorted(self.by_method[method])

    def drawn(self, method: str, seeds: Sequence[int]) -> Floats:
        """Mean score over seeds, on examples drawn anew: (DRAWS,)."""
        runs = average([self._tally(method, seed) for seed in seeds])
        return runs.measure(self._often @ runs.parts)

    def _tally(self, method: str, seed: int) -> Tally:
        (said,) = self.by_method[method][seed]["predictions"].values()
        return tally(self.metric, said, self.truth)

    def mean(self, method: str) -> tuple[float, float, float]:
        """A method's mean in per cent with its interval."""
        seeds = self.seeds(method)
        scores = self.scores(method, seeds)
        centre = statistics.fmean(scores)
        return 100 * centre, *interval(centre, self.drawn(method, seeds), scores)

    def paired(self, method: str, other: Runs, second: str) -> list[int]:
        """Seeds that both have, taught by the same teacher."""
        mine, theirs = self.by_method.get(method, {}), other.by_method.get(second, {})
        return sorted(
            seed
            for seed in set(mine) & set(theirs)
            if mine[seed]["teacher"]["fingerprint"] == theirs[seed]["teacher"]["fingerprint"]
        )


@dataclass(frozen=True)
class Difference:
    """How much better one is than another, paired by seed and by example.

    Attributes:
        draws: of the difference, on examples drawn anew: (DRAWS,).
        seeds: difference of the scores, a seed each.
    """

    draws: Floats
    seeds: tuple[float, ...]

    @property
    def points(self) -> tuple[float, float, float]:
        """The mean with its interval."""
        centre = statistics.fmean(self.seeds)
        return 100 * centre, *interval(centre, self.draws, self.seeds)

    def __str__(self) -> str:
        return "{:+.1f} ({:+.1f} to {:+.1f})".format(*self.points)


def difference(first: Runs, method: str, second: Runs, other: str) -> Difference | None:
    """Compare two methods on the seeds that both have; None if there is none.

    Args:
        first: runs of the one.
        method: its name.
        second: runs of the other, on the same examples.
        other: its name.
    """
    seeds = first.paired(method, second, other)
    if not seeds:
        return None
    pairs = zip(first.scores(method, seeds), second.scores(other, seeds), strict=True)
    return Difference(
        first.drawn(method, seeds) - second.drawn(other, seeds),
        tuple(one - two for one, two in pairs),
    )


@dataclass(frozen=True)
class Looked:
    """What is found of a claim in a part, or in all of them.

    Attributes:
        claim: of the paper.
        where: names of the parts.
        found: the difference in each.
    """

    claim: Claim
    where: tuple[str, ...]
    found: tuple[Difference, ...]

    @property
    def points(self) -> tuple[float, float, float]:
        """The difference, or the mean over parts, with its interval.

        What the examples have in it is drawn for all parts together, since some share them; what
        the seeds have adds up as variances do.
        """
        centre = statistics.fmean(statistics.fmean(one.seeds) for one in self.found)
        draws = np.mean([one.draws for one in self.found], axis=0)
        scaled = ([d / len(self.found) for d in one.seeds] for one in self.found)
        return 100 * centre, *interval(centre, draws, *scaled)

    @property
    def fewest(self) -> int:
        """Seeds of the part that has the fewest."""
        return min(len(one.seeds) for one in self.found)

    @property
    def printed(self) -> float | None:
        """The paper's difference."""
        known = [self.claim.published.get(part) for part in self.where]
        return statistics.fmean(k for k in known if k is not None) if None not in known else None

    @property
    def verdict(self) -> str:
        """Whether the interval is on the side of 0 on which the paper's difference is.

        Of one seed no interval says how other seeds would turn out. Where the paper has no
        difference, none can be on its side.
        """
        _, low, high = self.points
        if self.fewest < 2:
            return "one seed"
        if self.printed is None:
            return "not in the paper"
        if self.printed == 0:
            return "even in the paper"
        if low <= 0 <= high:
            return "not decided"
        return "holds" if (low > 0) == (self.printed > 0) else "the reverse"


def looked_at(parts: dict[str, Runs]) -> list[Looked]:
    """Each claim of the paper in each part that has runs, and over all of its parts."""
    looked = []
    for claim in CLAIMS:
        known = {
            name: one
            for name in claim.parts
            if name in parts
            and (one := difference(parts[name], claim.first, parts[name], claim.second))
        }
        looked += [Looked(claim, (name,), (one,)) for name, one in known.items()]
        if len(known) == len(claim.parts):
            looked.append(Looked(claim, tuple(known), tuple(known.values())))
    return looked
