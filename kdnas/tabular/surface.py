"""What a search sees of a benchmark: states whose losses, latencies and sizes are known.

A surface comes from a table, or from a formula. Its truth is the mean over the seeds that a state
was trained with; what a search is told is one of them, or the truth with the noise that was seen
of other states.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.models.cost import count_layer_parameters
from kdnas.records import LatencyEntry, LatencyProfile, LatencyTable, fingerprint
from kdnas.search_space import SearchSpace
from kdnas.tabular.table import Table


@dataclass(frozen=True)
class PartOfSpace(SearchSpace):
    """A search space of which only some states can be had; indices count these.

    Attributes:
        members: the states that can be had.
    """

    members: frozenset[Architecture] = frozenset()

    @classmethod
    def of(cls, space: SearchSpace, members: Sequence[Architecture]) -> PartOfSpace:
        """Take some states of a space."""
        return cls(**space.axes, head_multiple=space.head_multiple, members=frozenset(members))

    def _valid_states(self) -> Iterator[Architecture]:
        return (state for state in super()._valid_states() if state in self.members)

    @property
    def fingerprint(self) -> str:
        """Name of the part by its axes and members."""
        return fingerprint([super().fingerprint, sorted(map(str, self.members))])


@dataclass(frozen=True)
class Surface:
    """States whose losses are known without training.

    Attributes:
        name: of the table or the formula.
        space: the states.
        losses: index → the loss after training under each seed that it was trained with.
        noise: differences of single trainings from the mean of their state, of all states that
            were trained with several seeds.
        starts: index → loss before the first step, of the states for which it is known.
        knows_teacher: whether its teacher's latency is one, and not the largest of a table.
        knows_sizes: whether sizes were counted, and not those of the layers that the axes say.
        steps: of a whole training.
        readings: step → the losses that were read after it on the way, as ``losses`` has them; of
            the steps after which every training was read.
        latency_ms: by index.
        teacher_ms: the teacher's latency.
        params_millions: by index.
    """

    name: str
    space: SearchSpace
    losses: Sequence[Sequence[float]]
    noise: Sequence[float]
    starts: Mapping[int, float]
    latency_ms: Sequence[float]
    teacher_ms: float
    params_millions: Sequence[float]
    knows_teacher: bool = True
    knows_sizes: bool = True
    steps: int = 1
    readings: Mapping[int, Sequence[Sequence[float]]] = field(default_factory=dict)

    def truth(self, index: int) -> float:
        """The loss of a state, free of noise as far as its seeds go."""
        return float(np.mean(self.losses[index]))

    def observed(self, index: int, seed: int) -> float:
        """The loss that a search of this seed is told of a state; the same whenever it asks."""
        known = self.losses[index]
        rng = np.random.default_rng([seed, index])
        if len(known) > 1:
            return float(known[int(rng.integers(len(known)))])
        noise = self.noise[int(rng.integers(len(self.noise)))] if self.noise else 0.0
        return max(0.0, known[0] + noise)

    def read(self, index: int, seed: int, step: int) -> float:
        """The loss on the way to the one that :meth:`observed` tells, free of its noise.

        Raises:
            KeyError: not every training was read after this step.
        """
        known = self.readings[step][index]
        which = int(np.random.default_rng([seed, index]).integers(len(known)))
        return float(known[which])

    @cached_property
    def latencies(self) -> LatencyTable:
        """The same latencies as the search loop reads them."""
        profile = LatencyProfile(f"table:{self.name}", "table", 1, "float32", 1)
        entries = {
            str(state): LatencyEntry(state, self.latency_ms[index], 0.0, measured=False)
            for index, state in enumerate(self.space.states)
        }
        return LatencyTable(profile, "table", self.name, self.teacher_ms, entries)


def surface_of(table: Table, name: str, schedule: int | None = None) -> Surface:
    """Make a surface of a table.

    Where no row has the teacher's latency, the largest one of the table stands for it; where none
    has a size, the parameters of the encoder's layers do.

    Args:
        table: at least two states.
        name: what it is called.
        schedule: length of the trainings whose ends count; None takes the one of most states, and
            of such the longest.

    Raises:
        SpecError: trainings of this length came to their end of fewer than two states, or some
            states have a size and others none.
    """
    ends = [row for row in table.rows if row.key.step == row.key.schedule]
    counts = Counter(length for _, length in {(r.key.architecture, r.key.schedule) for r in ends})
    lengths = sorted(length for length in counts if length or not any(counts))
    chosen = schedule
    if chosen is None and lengths:
        chosen = max(lengths, key=lambda length: (counts[length], length))
    if chosen is None or chosen not in counts:
        known = ", ".join(map(str, lengths)) or "none"
        raise SpecError(
            f"table {name} has no state that was trained for {chosen or 'any'} steps to the end; "
            f"it has trainings of: {known}"
        )
    trained: dict[Architecture, dict[int, float]] = defaultdict(dict)
    starts: dict[Architecture, list[float]] = defaultdict(list)
    by_step: dict[int, dict[tuple[Architecture, int], float]] = defaultdict(dict)
    for row in table.rows:
        if row.key.step == 0 and chosen > 0:
            starts[row.key.architecture].append(row.loss)
        if row.key.schedule == chosen:
            by_step[row.key.step][row.key.architecture, row.key.seed] = row.loss
    if counts[chosen] < 2:
        (state,) = {architecture for architecture, _ in by_step[chosen]}
        what = f"trained for {chosen} steps" if chosen else "with a loss"
        raise SpecError(
            f"table {name} has one state alone {what}, {state}, and a comparison needs two "
            "to choose from; add states"
        )
    on_the_way = {step: _level(read) for step, read in by_step.items()}
    for (architecture, seed), loss in on_the_way.pop(chosen).items():
        trained[architecture][seed] = loss
    space = PartOfSpace.of(table.space, list(trained))
    states = [table.states[state] for state in space.states]
    slowest = max(state.latency_ms for state in table.states.values())
    knows_sizes = any(state.params_millions is not None for state in table.states.values())
    losses = [list(trained[state].values()) for state in space.states]
    readings = {
        step: [[read[state, seed] for seed in trained[state]] for state in space.states]
        for step, read in sorted(on_the_way.items())
        if all((state, seed) in read for state in space.states for seed in trained[state])
    }
    # A mean takes a part of the spread of its own few values along.
    noise = [
        (loss - float(np.mean(own))) * math.sqrt(len(own) / (len(own) - 1))
        for own in losses
        if len(own) > 1
        for loss in own
    ]
    return Surface(
        name,
        space,
        losses,
        noise,
        {i: float(np.mean(starts[s])) for i, s in enumerate(space.states) if s in starts},
        [state.latency_ms for state in states],
        slowest if table.teacher_ms is None else table.teacher_ms,
        [
            _size(table, name, state) if knows_sizes else count_layer_parameters(state) / 1e6
            for state in space.states
        ],
        knows_teacher=table.teacher_ms is not None,
        knows_sizes=knows_sizes,
        steps=max(chosen, 1),
        readings=readings,
    )


def _size(table: Table, name: str, state: Architecture) -> float:
    size = table.states[state].params_millions
    if size is None:
        raise SpecError(
            f"table {name} has no params_millions of {state}, and has those of other states; fill "
            "it in, or leave the column out"
        )
    return size


SHARED: Final = 10
"""States that two seeds must share at least, to tell what a seed does to all from what it does to
one."""


def _level(
    losses: Mapping[tuple[Architecture, int], float],
) -> dict[tuple[Architecture, int], float]:
    """Take from the losses of a seed what it does to all students alike.

    The order of batches makes all of them a little better or worse. A search trains its students
    under one seed, so that this tells none of them from another. It is a factor, by the states that
    a seed shares with that of the most states; where these are fewer than :data:`SHARED` the losses
    stay as they are.
    """
    counts = Counter(seed for _, seed in losses)
    usual = min(counts, key=lambda seed: (-counts[seed], seed))
    factors = {}
    for seed in counts:
        shared = [state for state, own in losses if own == seed and (state, usual) in losses]
        total = sum(losses[state, seed] for state in shared)
        enough = len(shared) >= SHARED and total > 0
        factors[seed] = sum(losses[state, usual] for state in shared) / total if enough else 1.0
    return {key: loss * factors[key[1]] for key, loss in losses.items()}


SYNTHETIC: Final = ("additive", "rough")
_NOISE: Final = 0.002
"""Standard deviation of a synthetic training's loss between seeds."""
_ROUGHNESS: Final = 0.02
_START_NOISE: Final = 0.03
"""Standard deviation of what a synthetic start does not tell of the loss after training."""


@dataclass(frozen=True)
class _Formula:
    """A loss made of one term an axis, and of a part that no axis explains."""

    roughness: float
    gains: Mapping[str, float] = field(
        default_factory=lambda: {"silu": 0.0, "gelu": 0.003, "relu": 0.006}
    )

    def __call__(self, state: Architecture, number: float) -> float:
        depth, width = math.log2(state.layers / 12), math.log2(state.hidden / 768)
        inner, heads = math.log2(state.intermediate / 3072), math.log2(state.heads / 12)
        smooth = 0.1 - 0.055 * depth - 0.09 * width - 0.015 * inner - 0.004 * heads
        ripple = self.roughness * (math.sin(3 * depth * width) + math.cos(4 * inner + 2 * heads))
        return smooth + self.gains[state.activation] + ripple + self.roughness * number / 2


def synthetic(name: str) -> Surface:
    """Make a surface of the paper's 2400 states from a formula.

    ``additive`` is a sum of one term an axis; ``rough`` has ripples across axes and a part that is
    each state's own. Starts lie above, in the order of the truth but for some noise.

    Raises:
        SpecError: there is no such surface.
    """
    if name not in SYNTHETIC:
        raise SpecError(f"there is no synthetic surface {name!r}; take {' or '.join(SYNTHETIC)}")
    space, rng = SearchSpace.paper(), np.random.default_rng(0)
    formula = _Formula(_ROUGHNESS if name == "rough" else 0.0)
    own, shaken = rng.uniform(-1, 1, len(space)), rng.normal(0, _START_NOISE, len(space))
    truth = [formula(state, float(own[i])) for i, state in enumerate(space.states)]
    times = [_formula_ms(state) for state in space.states]
    starts = [0.1 + 1.1 * loss + float(shaken[i]) for i, loss in enumerate(truth)]
    return Surface(
        name,
        space,
        [[loss] for loss in truth],
        [float(n) for n in rng.normal(0, _NOISE, 500)],
        dict(enumerate(starts)),
        times,
        _formula_ms(Architecture(12, 12, 768, 3072)),
        [_formula_params(state) for state in space.states],
        readings={0: [[loss] for loss in starts]},
    )


def _formula_ms(state: Architecture) -> float:
    work = state.hidden * (4 * state.hidden + 2 * state.intermediate)
    return 0.2 + state.layers * (0.1 + work / 2e6)


def _formula_params(state: Architecture) -> float:
    block = state.hidden * (4 * state.hidden + 2 * state.intermediate)
    return (30522 * state.hidden + state.layers * block) / 1e6
