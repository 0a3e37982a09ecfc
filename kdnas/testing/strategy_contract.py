"""What every search strategy must do, as a suite of tests to inherit from."""

from __future__ import annotations

import pytest

from kdnas.errors import SpecError
from kdnas.records import Proposal
from kdnas.search.protocols import History, Observation, Strategy
from kdnas.search_space import SearchSpace
from kdnas.testing.benchmark_space import (
    BENCHMARK_SPACE,
    benchmark_losses,
    benchmark_problem,
    benchmark_reward,
)

COUNT = 6
ALL = range(len(BENCHMARK_SPACE))


def observed(
    history: History,
    episode: int,
    proposals: list[Proposal],
    fail_every: int = 0,
    stop_every: int = 0,
) -> History:
    """Add an episode with the true rewards.

    With ``fail_every`` k each k-th state failed, with ``stop_every`` k each k-th of the others was
    stopped at a rung and is told as foretold.
    """
    told = []
    for position, proposal in enumerate(proposals):
        failed = bool(fail_every) and position % fail_every == 0
        state = BENCHMARK_SPACE[proposal.index]
        reward = 0.0 if failed else benchmark_reward(state)
        loss = None if failed else benchmark_losses(state).relative
        stopped = bool(stop_every) and not failed and position % stop_every == 0
        told.append(Observation(episode, proposal.index, reward, failed, loss, stopped))
    return History((*history.episodes, tuple(told)))


class StrategyContract:
    """Inherit in a test class and give :meth:`make`."""

    repeats = False
    """True for a strategy that may propose a state again in a later episode."""

    draws = True
    """False for a strategy that draws nothing, so that its seed does not matter."""

    def make(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        """A fresh strategy for searches of 6 episodes with 6 candidates."""
        raise NotImplementedError

    def begun(self, space: SearchSpace = BENCHMARK_SPACE, seed: int = 0) -> Strategy:
        """A fresh strategy that was told what is known."""
        strategy = self.make(space, seed)
        strategy.begin(benchmark_problem(space))
        return strategy

    def play(
        self, strategy: Strategy, history: History, until: int, fail_every: int = 0
    ) -> tuple[History, list[list[Proposal]]]:
        """Ask and tell until this episode is told."""
        asked = []
        for episode in range(len(history.episodes) + 1, until + 1):
            proposals = strategy.ask(episode, COUNT, ALL, history)
            history = observed(history, episode, proposals, fail_every)
            strategy.tell(episode, history)
            asked.append(proposals)
        return history, asked

    def test_it_goes_on_where_states_are_stopped(self) -> None:
        """All of an episode, too; they are not among what is allowed any more."""
        for stop_every in (1, 2):
            strategy, history, stopped = self.begun(), History(), set[int]()
            for episode in range(1, 6):
                allowed = [i for i in ALL if i not in stopped]
                proposals = strategy.ask(episode, COUNT, allowed, history)
                assert len({p.index for p in proposals} - stopped) == COUNT
                history = observed(history, episode, proposals, stop_every=stop_every)
                strategy.tell(episode, history)
                stopped |= {o.index for o in history.episodes[-1] if o.stopped}

    def test_proposals_are_distinct_allowed_and_as_many_as_asked(self) -> None:
        """In every episode, whatever was allowed."""
        strategy, history = self.begun(), History()
        allowed = [i for i in ALL if i % 3]
        for episode in range(1, 6):
            proposals = strategy.ask(episode, COUNT, allowed, history)
            indices = [proposal.index for proposal in proposals]
            assert len(indices) == len(set(indices)) == COUNT
            assert set(indices) <= set(allowed)
            assert all(type(index) is int for index in indices)
            assert all(proposal.source for proposal in proposals)
            if not self.repeats:
                assert not set(indices) & history.indices
            history = observed(history, episode, proposals)
            strategy.tell(episode, history)

    def test_states_run_out_in_good_order(self) -> None:
        """Fewer proposals than asked for, then none."""
        strategy, history = self.begun(), History()
        assert strategy.ask(1, COUNT, [], history) == []
        few = strategy.ask(1, COUNT, [5, 9], history)
        assert {proposal.index for proposal in few} == {5, 9}
        history = observed(history, 1, few)
        strategy.tell(1, history)
        if not self.repeats:
            assert strategy.ask(2, COUNT, [5, 9], history) == []

    def test_a_pool_is_played_to_its_end(self) -> None:
        """Every state of a few is proposed, and then there is nothing to propose."""
        strategy, history, pool = self.begun(), History(), list(ALL[: COUNT * 3 + 1])
        for episode in range(1, 6):
            proposals = strategy.ask(episode, COUNT, pool, history)
            if not proposals:
                break
            history = observed(history, episode, proposals)
            strategy.tell(episode, history)
        if not self.repeats:
            assert history.indices == set(pool)
            assert len(history.episodes) == 4

    def test_same_seed_and_history_give_the_same_proposals(self) -> None:
        """Also when a question is asked again."""
        one, two = self.begun(), self.begun()
        assert self.play(one, History(), 4)[1] == self.play(two, History(), 4)[1]
        history, _ = self.play(self.begun(), History(), 3)
        strategy = self.begun()
        assert strategy.ask(4, COUNT, ALL, history) == strategy.ask(4, COUNT, ALL, history)

    def test_seeds_differ(self) -> None:
        """Another seed explores other states, if the strategy draws any."""
        firsts = [self.begun(seed=seed).ask(1, COUNT, ALL, History()) for seed in range(3)]
        drawn = {frozenset(p.index for p in proposals) for proposals in firsts}
        assert (len(drawn) > 1) == self.draws

    def test_a_loaded_state_goes_on_identically(self) -> None:
        """Dumped after any episode, loaded in a fresh strategy: same proposals, same state."""
        through = self.begun()
        _, expected = self.play(through, History(), 6)
        for at in (0, 1, 3):
            first = self.begun()
            history, before = self.play(first, History(), at)
            state = first.dump()
            assert state == first.dump()
            second = self.begun()
            second.load(state)
            assert second.dump() == state
            assert before + self.play(second, history, 6)[1] == expected
            assert second.dump() == through.dump()

    def test_a_foreign_state_is_refused(self) -> None:
        """Of another space, or no state at all; what was there before stays."""
        other = SearchSpace(layers=(1, 2), heads=(2,), hidden=(96,), intermediate=(192,))
        strategy = self.begun()
        before = strategy.dump()
        for state in (self.begun(other).dump(), b"", b"no state", b"\xff" * 64):
            with pytest.raises(SpecError, match="state"):
                strategy.load(state)
        assert strategy.dump() == before

    def test_epsilon_is_a_share(self) -> None:
        """Between 0 and 1, or None in all episodes."""
        strategy = self.begun()
        shares = [strategy.epsilon(episode) for episode in range(1, 30)]
        assert all(share is None for share in shares) or all(
            share is not None and 0 <= share <= 1 for share in shares
        )

    def test_failures_are_tolerated(self) -> None:
        """Some failed, or all of them."""
        for fail_every in (2, 1):
            strategy = self.begun()
            _, asked = self.play(strategy, History(), 4, fail_every)
            assert all(len(proposals) == COUNT for proposals in asked)
