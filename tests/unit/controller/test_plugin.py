"""A strategy of another package: it is one like ours, and what it raises is told with its name."""

from __future__ import annotations

import pytest

from controller.plugin import PluginStrategy
from controller.strategies import RandomStrategy, build_strategy
from kdnas.errors import PluginError, SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, SearchProblem
from kdnas.specs.search import ControllerSpec
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_problem


class Broken(RandomStrategy):
    """Fails in whatever it is asked."""

    def begin(self, problem: SearchProblem) -> None:
        raise SpecError("it needs a reading of every state; run kdnas sweep first")

    def epsilon(self, episode: int) -> float:
        return 1 / (episode - 1)

    def ask(self, *_: object) -> list[Proposal]:
        raise ValueError("no\nstate\nleft")

    def tell(self, episode: int, history: History) -> None:
        raise KeyError

    def dump(self) -> bytes:
        raise NotImplementedError

    def load(self, state: bytes) -> None:
        raise SystemExit(3)


@pytest.fixture
def broken() -> PluginStrategy:
    return PluginStrategy("mine:Broken", Broken(ControllerSpec(), BENCHMARK_SPACE, 0))


def test_what_it_raises_is_told_with_its_name_and_method(broken: PluginStrategy) -> None:
    start = "^strategy 'mine:Broken' failed: its "
    for said, call in (
        ("epsilon raised ZeroDivisionError: .*", lambda: broken.epsilon(1)),
        ("ask raised ValueError: no state left", lambda: broken.ask(1, 2, [0, 1], History())),
        ("tell raised KeyError", lambda: broken.tell(1, History())),
        ("dump raised NotImplementedError", broken.dump),
        ("load raised SystemExit: 3", lambda: broken.load(b"")),
    ):
        with pytest.raises(PluginError, match=f"{start}{said}; mend it there$") as raised:
            call()
        assert raised.value.__cause__ is not None


def test_what_it_says_itself_stays_as_it_is(broken: PluginStrategy) -> None:
    with pytest.raises(SpecError, match=r"^it needs a reading of every state; run kdnas sweep"):
        broken.begin(benchmark_problem(BENCHMARK_SPACE))


def test_ours_are_not_wrapped() -> None:
    spec = ControllerSpec.read({"strategy": "random"}, "request")
    assert isinstance(build_strategy(spec, BENCHMARK_SPACE, 0), RandomStrategy)
