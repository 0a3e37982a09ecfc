from __future__ import annotations

import pytest

from kdnas.errors import BackendError
from kdnas.testing.backend_contract import BackendContract, RungContract, check_events
from kdnas.testing.benchmark_space import BENCHMARK_SPACE
from kdnas.testing.fake_backend import FakeBackend

STATES = BENCHMARK_SPACE.states[:7]


class TestFakeBackend(RungContract):
    architectures = STATES

    def make(self) -> FakeBackend:
        return FakeBackend()


class TestFakeBackendInterrupted(BackendContract):
    architectures = STATES

    def make(self) -> FakeBackend:
        return FakeBackend(interrupt=frozenset({str(STATES[1])}), fail=frozenset({str(STATES[2])}))


def test_it_dies_when_told() -> None:
    backend = FakeBackend(die_after=2)
    with pytest.raises(BackendError, match="lost"):
        list(backend.run(TestFakeBackend().requests()))
    assert len(backend.trained) == 2


def test_the_check_sees_a_missing_end() -> None:
    requests = TestFakeBackend().requests()
    events = list(FakeBackend().run(requests))
    with pytest.raises(AssertionError):
        check_events(requests, events[:-1])
    with pytest.raises(AssertionError):
        check_events(requests, [*events, events[-1]])
