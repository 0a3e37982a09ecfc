"""How long a strategy takes to think: to learn from an episode, and to propose the next one.

    python benchmarks/strategy_time.py --output docs/results/strategy_time

Each strategy searches a table by the loop that real searches run, for every goal and with no start
known, on one core; the two calls of every episode are timed. A first search of each is not counted:
it loads libraries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from study_files import publish
from threadpoolctl import threadpool_limits

from api.tabular import named_surface
from controller.strategies import build_strategy
from kdnas.latency.measure import hardware_name
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec, SearchSpec
from kdnas.tabular.replay import replay
from kdnas.tabular.surface import Surface

NAMES: Final = ("controller", "gp", "tpe", "nsga2", "evolution", "random")
GOALS: Final = {"front": {}, "limit": {"max_latency_ratio": 0.4}, "reward": {}}
EPISODES, CANDIDATES, SEEDS = 15, 20, 3
BAR_MS: Final = 20.0
"""For the controller to propose an episode, in the median."""


@dataclass
class Timed:
    """Milliseconds of each call of one strategy under one goal.

    Attributes:
        strategy: its name.
        goal: of the searches.
        ask: to propose an episode.
        tell: to learn from one.
    """

    strategy: str
    goal: str
    ask: list[float] = field(default_factory=list)
    tell: list[float] = field(default_factory=list)


def timed(surface: Surface, strategy: str, goal: str, seeds: int, episodes: int) -> Timed:
    """Search some times, and time every call."""
    found = Timed(strategy, goal)
    size = {"episodes": episodes, "candidates": CANDIDATES, "strategy": strategy}
    for seed in range(seeds):
        asked = {"goal": goal, "controller": size, "limits": GOALS[goal], "seed": seed}
        replay(surface, SearchSpec.read(asked, "study"), _timing(found))
    return found


def _timing(found: Timed) -> Callable[[ControllerSpec, SearchSpace, int], Any]:
    def build(spec: ControllerSpec, space: SearchSpace, seed: int) -> Any:
        strategy = build_strategy(spec, space, seed)
        strategy.ask = _watched(strategy.ask, found.ask)  # type: ignore[method-assign]
        strategy.tell = _watched(strategy.tell, found.tell)  # type: ignore[method-assign]
        return strategy

    return build


def _watched(call: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def watched(*given: Any) -> Any:
        begun = time.perf_counter()
        answer = call(*given)
        times.append(1000 * (time.perf_counter() - begun))
        return answer

    return watched


def page(surface: Surface, found: list[Timed], seeds: int, episodes: int) -> str:
    """Word what was found: a row a strategy and goal."""
    lines = [
        "# How long a strategy thinks",
        "",
        f"Table `{surface.name}`, {len(surface.space)} states, no start known, {episodes} episodes "
        f"of {CANDIDATES}, {seeds} searches of each strategy under each goal, on one core of "
        f"{hardware_name('cpu')}. Milliseconds of a call: the median, and "
        "the largest of all. The controller learns in `tell`, and the Gaussian process in `ask`. "
        f"The bar of the controller is {BAR_MS:g} ms for a proposal, in the median.",
        "",
        "| strategy | goal | `ask`: median | largest | `tell`: median | largest | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        ask, tell = np.array(row.ask), np.array(row.tell)
        numbers = (np.median(ask), ask.max(), np.median(tell), tell.max())
        cells = " | ".join(f"{number:.1f}" for number in numbers)
        verdict = "met" if np.median(ask) <= BAR_MS else "**missed**"
        verdict = verdict if row.strategy == "controller" else ""
        lines.append(f"| `{row.strategy}` | `{row.goal}` | {cells} | {verdict} |")
    return "\n".join([*lines, "", "Made with `python benchmarks/strategy_time.py`.", ""])


def main() -> None:
    """Time all strategies, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", default="minilm")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--output", type=Path, help="Of the page, without an ending.")
    options = parser.parse_args()
    surface = replace(named_surface(options.table), starts={})
    found = []
    with threadpool_limits(1):
        for strategy in NAMES:
            timed(surface, strategy, "front", 1, 2)
            found += [timed(surface, strategy, goal, options.seeds, EPISODES) for goal in GOALS]
    told = [vars(row) for row in found]
    publish(page(surface, found, options.seeds, EPISODES), {"calls": told}, options.output)


if __name__ == "__main__":
    main()
