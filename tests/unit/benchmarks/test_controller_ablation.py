"""The ablation changes one thing at a time, really changes it, and has a row for each."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from controller.strategies import build_strategy
from kdnas.search.protocols import History
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem
from kdnas.testing.strategy_contract import ALL, observed


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("controller_ablation")


def picks(name: str) -> list[list[int]]:
    """What a strategy proposes in three episodes."""
    strategy = build_strategy(ControllerSpec.read({"strategy": name}, "test"), BENCHMARK_SPACE, 0)
    strategy.begin(benchmark_problem(with_starts=False))
    history, asked = History(), []
    for episode in (1, 2, 3):
        proposals = strategy.ask(episode, 10, ALL, history)
        asked.append([p.index for p in proposals])
        history = observed(history, episode, proposals)
        strategy.tell(episode, history)
    return asked


def test_every_variant_proposes_something_else(study: ModuleType) -> None:
    own = picks("controller")
    for name in study.names():
        if ":" in name:
            found = picks(name)
            assert [len(set(episode)) for episode in found] == [10, 10, 10], name
            assert found != own, name


def test_the_page_has_a_row_a_variant(study: ModuleType) -> None:
    def row(name: str) -> dict[str, Any]:
        own = name == "controller"
        return {
            "name": name,
            "trainings": [30.0, 28.0, None],
            "p_trainings": None if own else 0.01,
            "regrets": [[0.1, 0.1, 0.1], [0.002, 0.001, 0.003], [0.0, 0.0, 0.0]],
            "p_regrets": None if own else [1.0, 0.2, 1.0],
        }

    result = {"seeds": 3, "standings": [row(name) for name in study.names()]}
    page = study.page({"minilm": result, "rough": result})
    assert "| `controller` | 30 (28 to never) | 2.0 (1.0 to 3.0) | 30 (28 to never) | " in page
    assert "| No ensemble | 30 (28 to never)* | 2.0 (1.0 to 3.0) | " in page
    assert page.count("(28 to never)*") == 2 * (len(study.names()) - 1)
