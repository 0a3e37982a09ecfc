"""Which strategies there are: ours by name, and a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from controller.baselines import ReadingOnly
from controller.encoding import Array, StateEncoder
from controller.exploration import Purpose, draw, epsilon, generator, num_random
from controller.feedback import FeedbackController
from controller.plugin import PluginStrategy
from controller.stateless import Stateless, not_proposed
from kdnas.errors import SpecError
from kdnas.plugins import build_named, import_named, installed
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem, Strategy, StrategyFactory
from kdnas.search_space import SearchSpace
from kdnas.specs.search import ControllerSpec
from kdnas.specs.strategies import ENTRY_POINT_GROUP, ControllerStrategySpec


class RandomStrategy(Stateless):
    """Draws states that were not proposed before: the baseline of Trivedi et al. 2023, Table 3."""

    name = "random"

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Draw ``count`` new states; fewer if they run out."""
        pool = not_proposed(allowed, history)
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        return [Proposal(index, "random") for index in draw(rng, pool, count)]


class ControllerStrategy:
    """The feedback controller of Trivedi et al. 2023, §3.

    Of N candidates round(ε·N) are drawn at random and the rest are the states with the highest
    predicted reward; ties go to the lower index. The predicted ones are chosen first. Variant
    ``paper`` may propose a state again, variant ``once`` never does.
    """

    name = "controller"

    def __init__(self, spec: ControllerSpec, space: SearchSpace, seed: int) -> None:
        self._options = spec.strategy.read_as(ControllerStrategySpec)
        self._episodes = spec.episodes
        self._seed = seed
        self._encoder = StateEncoder(space)
        self._controller = FeedbackController(
            self._encoder.width,
            seed,
            {
                "strategy": self.name,
                "variant": self._options.variant,
                "space": space.fingerprint,
            },
        )

    def begin(self, problem: SearchProblem) -> None:
        """Nothing: the published controller knows states by their axes and rewards alone."""

    def epsilon(self, episode: int) -> float:
        """Share of random picks in an episode."""
        return epsilon(self._options, self._episodes, episode)

    def ask(
        self, episode: int, count: int, allowed: Sequence[int], history: History
    ) -> list[Proposal]:
        """Propose the best predicted states, and random ones of the rest."""
        may_repeat = self._options.variant == "paper"
        pool = sorted(allowed if may_repeat else not_proposed(allowed, history))
        if not pool:
            return []
        count = min(count, len(pool))
        predicted = self._controller.predict(
            self._memory(episode, history), self._encoder.candidates(pool)
        )
        by_reward = np.argsort(-predicted, kind="stable")
        num_best = count - num_random(self.epsilon(episode), count)
        rest = sorted(by_reward[num_best:])  # by index, whatever their predictions
        rng = generator(self._seed, episode, Purpose.EXPLORATION)
        explored = draw(rng, rest, count - num_best)
        return [
            Proposal(pool[i], source, float(predicted[i]))
            for source, chosen in (("controller", by_reward[:num_best]), ("random", explored))
            for i in chosen
        ]

    def tell(self, episode: int, history: History) -> float | None:
        """Train on the (state, reward, GlobalBest, PreviousBest) tuples of an episode (Eq. 3)."""
        observations = history.episodes[episode - 1]
        if not observations:
            return None
        return self._controller.learn(
            episode,
            self._memory(episode, history),
            self._encoder.candidates([o.index for o in observations]),
            np.array([o.reward for o in observations], np.float64),
        )

    def dump(self) -> bytes:
        """Write the network and its optimiser."""
        return self._controller.dump()

    def load(self, state: bytes) -> None:
        """Take up what :meth:`dump` wrote; SpecError for another version, variant or space."""
        self._controller.load(state)

    def _memory(self, episode: int, history: History) -> Array:
        return self._encoder.memory(history.global_best(episode), history.previous_best(episode))


def controller_of(spec: ControllerSpec, space: SearchSpace, seed: int) -> Strategy:
    """Build the variant of the controller that a spec names."""
    if spec.strategy.read_as(ControllerStrategySpec).variant != "learning":
        return ControllerStrategy(spec, space, seed)
    from controller.learning import LearningController  # which loads scikit-learn

    return LearningController(spec, space, seed)


STRATEGIES: Final[Mapping[str, str]] = {
    "controller": "controller.strategies:controller_of",
    "gp": "controller.gaussian_process:GaussianProcessStrategy",
    "tpe": "controller.optuna_samplers:TPEStrategy",
    "nsga2": "controller.optuna_samplers:NSGA2Strategy",
    "evolution": "controller.evolution:EvolutionStrategy",
    "random": "controller.strategies:RandomStrategy",
    "fastest-first": "controller.baselines:FastestFirst",
    "largest-first": "controller.baselines:LargestFirst",
    "size-only": "controller.baselines:SizeOnly",
    "reading-only": "controller.baselines:ReadingOnly",
    "reading-fit": "controller.baselines:ReadingFit",
}
"""Ours by name; their modules are loaded when one is built, since libraries take their time."""


def build_strategy(spec: ControllerSpec, space: SearchSpace, seed: int) -> Strategy:
    """Build the strategy that a spec names.

    The name is one of ours, one that an installed package registered in the entry point group
    ``kdnas.strategies``, or ``package.module:Class``. The class (or any callable) is called with
    the spec, in which ``strategy`` has its options, the space and the seed.

    Raises:
        SpecError: the name cannot be imported, or is no strategy; or options are not its own.
    """
    name = spec.strategy.name
    if name in STRATEGIES:
        return _import(STRATEGIES[name])(spec, space, seed)
    imported = name if ":" in name else installed(ENTRY_POINT_GROUP)[name]
    return PluginStrategy(name, _made(name, _import(imported), spec, space, seed))


def check_starts(spec: ControllerSpec, space: SearchSpace, starts: Mapping[int, float]) -> None:
    """Refuse a strategy that needs more readings of starts than there are, before other work.

    Raises:
        SpecError: says how many are missing.
    """
    strategy = build_strategy(spec, space, seed=0)
    if isinstance(strategy, PluginStrategy):
        strategy = strategy.made
    if isinstance(strategy, ReadingOnly):
        strategy.require(space, starts)


def _import(name: str) -> StrategyFactory:
    factory = import_named("strategy", name)
    if not callable(factory):
        raise SpecError(f"strategy {name!r} is a {type(factory).__name__}, not a class")
    built: StrategyFactory = factory
    return built


def _made(
    name: str, factory: StrategyFactory, spec: ControllerSpec, space: SearchSpace, seed: int
) -> Strategy:
    try:
        inspect.signature(factory).bind(spec, space, seed)
    except TypeError as error:
        raise SpecError(
            f"strategy {name!r} cannot be called with a ControllerSpec, a SearchSpace and a seed "
            f"({error}); see kdnas.search.protocols.Strategy"
        ) from error
    strategy: Strategy = build_named("strategy", name, factory, spec, space, seed)
    missing = [
        part
        for part in ("name", "begin", "epsilon", "ask", "tell", "dump", "load")
        if not hasattr(strategy, part)
    ]
    if missing:
        raise SpecError(
            f"strategy {name!r} lacks {', '.join(missing)}; see kdnas.search.protocols.Strategy"
        )
    return strategy
