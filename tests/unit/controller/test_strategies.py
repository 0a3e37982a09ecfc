from __future__ import annotations

import subprocess
import sys
import types
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import kdnas.plugins
from controller import strategies
from controller.strategies import RandomStrategy, build_strategy
from kdnas.errors import SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, Strategy
from kdnas.search_space import SearchSpace
from kdnas.specs import strategies as specs
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_reward
from kdnas.testing.strategy_contract import ALL, COUNT, StrategyContract, observed


class OwnStrategy(RandomStrategy):
    """A user's own strategy, loaded by its name."""

    name = "own"


def raises(*_: object) -> None:
    raise OSError("no model here")


@pytest.fixture(autouse=True)
def own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_own_package")
    module.OwnStrategy = OwnStrategy  # type: ignore[attr-defined]
    module.Poor = lambda *_: object()  # type: ignore[attr-defined]
    module.Raises = raises  # type: ignore[attr-defined]
    module.number = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_own_package", module)


def spec(name: str, **options: Any) -> ControllerSpec:
    asked = {"strategy": {"name": name, **options}, "episodes": 6, "candidates": COUNT}
    return ControllerSpec.read(asked, "request")


def once(**options: Any) -> ControllerSpec:
    return spec("controller", **{"variant": "once", **options})


class TestRandom(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        return build_strategy(spec("random"), space, seed)


class TestControllerOnce(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        return build_strategy(once(epsilon_decay="spread"), space, seed)


class TestControllerPaper(StrategyContract):
    repeats = True

    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        return build_strategy(once(variant="paper", epsilon_decay="spread"), space, seed)


class TestControllerLearning(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        return build_strategy(spec("controller", confidence=2.0), space, seed)


class TestOwn(StrategyContract):
    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        return build_strategy(spec("my_own_package:OwnStrategy"), space, seed)


def play(strategy: Strategy, episodes: int) -> list[list[Proposal]]:
    return StrategyContract().play(strategy, History(), episodes)[1]


def test_the_first_episode_is_random_and_the_last_is_predicted() -> None:
    strategy = build_strategy(once(epsilon_decay="spread", epsilon_min=0.0), BENCHMARK_SPACE, 0)
    asked = play(strategy, 6)
    shares = [[p.source for p in proposals].count("random") for proposals in asked]
    assert shares == [6, 5, 4, 2, 1, 0]
    for proposals in asked:
        best = [p.predicted_reward for p in proposals if p.source == "controller"]
        assert best == sorted(best, reverse=True)  # type: ignore[type-var]
        assert all(p.predicted_reward is not None for p in proposals)


def test_predicted_picks_are_the_best_predictions_of_all() -> None:
    strategy = build_strategy(once(epsilon_start=0.5), BENCHMARK_SPACE, 0)
    everything = strategy.ask(1, len(ALL), ALL, History())
    predictions = sorted((p.predicted_reward or 0 for p in everything), reverse=True)
    few = strategy.ask(1, COUNT, ALL, History())
    assert [p.predicted_reward for p in few if p.source == "controller"] == predictions[:3]


def test_only_variant_paper_repeats_states() -> None:
    never, paper = (
        play(build_strategy(once(variant=v, epsilon_start=0.3), BENCHMARK_SPACE, 0), 6)
        for v in ("once", "paper")
    )
    assert len({p.index for e in never for p in e}) == 36
    assert len({p.index for e in paper for p in e}) < 36


def test_training_uses_the_memory_of_its_own_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy: Any = build_strategy(once(), BENCHMARK_SPACE, 0)
    seen: list[Any] = []
    monkeypatch.setattr(
        strategy._encoder,
        "memory",
        lambda *slots: seen.append([s and s.index for s in slots]) or StubMemory,
    )
    monkeypatch.setattr(strategy._controller, "learn", lambda *_: 0.0)
    history = History()
    for episode, indices in enumerate(([1, 2], [3, 4], [5, 6]), start=1):
        history = observed(history, episode, [Proposal(i, "random") for i in indices])
        strategy.tell(episode, history)

    def best(*indices: int) -> int:
        return max(indices, key=lambda i: benchmark_reward(BENCHMARK_SPACE[i]))

    assert seen == [[None, None], [best(1, 2), best(1, 2)], [best(1, 2, 3, 4), best(3, 4)]]


StubMemory = object()


def test_after_the_published_budget_its_picks_are_of_the_best_third() -> None:
    """15 episodes of 20. Far smaller budgets leave the published learning rate little to do."""
    rewards = sorted((benchmark_reward(s) for s in BENCHMARK_SPACE.states), reverse=True)
    for seed in range(2):
        options = {"variant": "paper", "epsilon_decay": "spread"}
        published = ControllerSpec.read({"strategy": options}, "request")
        strategy, history = build_strategy(published, BENCHMARK_SPACE, seed), History()
        for episode in range(1, 16):
            proposals = strategy.ask(episode, 20, ALL, history)
            history = observed(history, episode, proposals)
            strategy.tell(episode, history)
        picks = [p.index for p in proposals if p.source == "controller"]
        mean = sum(benchmark_reward(BENCHMARK_SPACE[i]) for i in picks) / len(picks)
        assert mean > rewards[len(rewards) // 3]


def test_variants_do_not_share_states() -> None:
    paper = build_strategy(once(variant="paper"), BENCHMARK_SPACE, 0)
    with pytest.raises(SpecError, match="variant"):
        build_strategy(once(), BENCHMARK_SPACE, 0).load(paper.dump())


def test_an_installed_plugin_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "my_own_package:OwnStrategy", "kdnas.strategies")
    monkeypatch.setattr(kdnas.plugins, "entry_points", lambda group: [point])
    strategy: Any = build_strategy(spec("mine"), BENCHMARK_SPACE, 0)
    assert (strategy.name, strategy.made.name) == ("mine", "own")
    with pytest.raises(SpecError, match=r"did you mean 'mine'.*controller, .*mine, .*random"):
        spec("mines")


def test_a_plugin_finds_its_options_in_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(spec: ControllerSpec, space: SearchSpace, seed: int) -> Strategy:
        return build_strategy(ControllerSpec.read(spec.strategy.options, "own"), space, seed)

    monkeypatch.setattr(sys.modules["my_own_package"], "made", made, raising=False)
    asked = spec("my_own_package:made", options={"strategy": "gp"})
    strategy: Any = build_strategy(asked, BENCHMARK_SPACE, 0)
    assert strategy.made.name == "gp"


def test_what_is_asked_for_is_what_is_built() -> None:
    """A class each in the specs and here, under the same names and in the same order."""
    assert list(strategies.STRATEGIES) == list(specs.STRATEGIES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("randon", "unknown name 'randon', did you mean 'random'"),
        ("no_such_package:Thing", "cannot be imported: No module named 'no_such_package'"),
        ("my_own_package:Nothing", "cannot be imported"),
        (":Thing", "cannot be imported"),
        ("my_own_package:", "cannot be imported"),
        ("my_own_package:number", "is a int, not a class"),
        ("json:JSONDecoder", "cannot be called with a ControllerSpec, a SearchSpace and a seed"),
        (
            "my_own_package:Raises",
            "cannot be made: it raised OSError: no model here; mend it there",
        ),
        ("my_own_package:Poor", "lacks name, begin, epsilon, ask, tell, dump, load"),
    ],
)
def test_wrong_names_are_explained(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build_strategy(spec(name), BENCHMARK_SPACE, 0)


def test_strategies_load_no_torch() -> None:
    code = "import sys, controller.strategies; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
