"""A small space in which every student's losses, latency and size are formulas.

Wider and deeper students learn more and take longer, so the reward has an optimum inside the
space, and a search over it needs no training.
"""

from __future__ import annotations

import math

from kdnas.architecture import Architecture
from kdnas.records import LatencyEntry, LatencyProfile, LatencyTable, Losses, fingerprint
from kdnas.search.limits import state_facts
from kdnas.search.protocols import SearchProblem
from kdnas.search.reward import RewardFunction
from kdnas.search_space import SearchSpace
from kdnas.specs.search import RewardSpec

BENCHMARK_SPACE = SearchSpace(
    layers=(1, 2, 4, 6),
    heads=(2, 4),
    hidden=(96, 192, 384),
    intermediate=(192, 768),
    activation=("gelu", "relu"),
)
TEACHER = Architecture(6, 4, 384, 1536)


def benchmark_losses(architecture: Architecture) -> Losses:
    """Losses that fall with depth and width, with a small fixed disturbance of each state."""
    a = architecture
    size = math.sqrt(a.layers) * a.hidden / 384 + 0.1 * a.intermediate / 768
    disturbance = int(fingerprint(str(a)), 16) / 16**16 * 0.02
    relative = 0.1 + 0.7 * math.exp(-size) + disturbance
    return Losses(
        training=relative * a.layers * 0.1,
        mean=relative * 0.1,
        relative=relative,
        output=min(1.0, relative * 1.2),
    )


def benchmark_start(architecture: Architecture) -> float:
    """The relative loss before the first step: closer to 1 than what the student ends with."""
    return (1 + benchmark_losses(architecture).relative) / 2


def benchmark_ms(architecture: Architecture) -> float:
    """Milliseconds: a constant, and each layer's products."""
    a = architecture
    return 0.2 + a.layers * (0.1 + a.hidden * (4 * a.hidden + 2 * a.intermediate) / 2e6)


def benchmark_params(architecture: Architecture) -> float:
    """Parameters in millions: a vocabulary of 1000, and each layer's matrices."""
    a = architecture
    return (1000 * a.hidden + a.layers * a.hidden * (4 * a.hidden + 2 * a.intermediate)) / 1e6


def benchmark_latencies(space: SearchSpace = BENCHMARK_SPACE) -> LatencyTable:
    """The latency table of a space."""
    return LatencyTable(
        profile=LatencyProfile("cpu:formula", "pytorch-eager", 1, "float32", 32),
        family="bert",
        teacher_fingerprint="teacher",
        teacher_ms=benchmark_ms(TEACHER),
        entries={
            str(a): LatencyEntry(a, benchmark_ms(a), 0.0, measured=True) for a in space.states
        },
    )


def benchmark_reward(architecture: Architecture, spec: RewardSpec | None = None) -> float:
    """The true reward of a state."""
    ratio = benchmark_ms(architecture) / benchmark_ms(TEACHER)
    function = RewardFunction.from_spec(spec or RewardSpec())
    return function(benchmark_losses(architecture), ratio).reward


def benchmark_problem(
    space: SearchSpace = BENCHMARK_SPACE, *, with_starts: bool = True
) -> SearchProblem:
    """What a strategy is told of a space whose students are formulas."""
    starts = {i: benchmark_start(a) for i, a in enumerate(space.states)} if with_starts else {}
    return SearchProblem(
        space,
        state_facts(space, benchmark_latencies(space), benchmark_params),
        starts,
        RewardFunction.from_spec(RewardSpec()).of_loss,
    )
