"""What every backend must do, as a suite of tests to inherit from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kdnas.architecture import Architecture
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    MiniKDRequest,
    MiniKDResult,
    Rung,
)
from kdnas.search.protocols import Backend


def check_events(requests: Sequence[MiniKDRequest], events: Sequence[BackendEvent]) -> None:
    """Check the order of events for every candidate: started, then interrupted or finished."""
    wanted = {request.candidate_id: request.architecture for request in requests}
    running: set[str] = set()
    finished: Counter[str] = Counter()
    for event in events:
        if isinstance(event, CandidateFinished):
            result = event.result
            assert result.candidate_id in running, f"{result.candidate_id} was not started"
            assert result.architecture == wanted[result.candidate_id]
            outcomes = (result.losses is not None, result.error is not None, result.stopped)
            assert sum(outcomes) == 1
            running.discard(result.candidate_id)
            finished[result.candidate_id] += 1
            continue
        assert event.worker
        assert event.candidate_ids
        assert len(set(event.candidate_ids)) == len(event.candidate_ids)
        assert set(event.candidate_ids) <= set(wanted)
        if isinstance(event, AttemptStarted):
            assert not running & set(event.candidate_ids), "started twice without an end"
            assert not set(finished) & set(event.candidate_ids), "started after its end"
            running |= set(event.candidate_ids)
        elif isinstance(event, AttemptInterrupted):
            assert set(event.candidate_ids) <= running
            assert event.reason
            running -= set(event.candidate_ids)
        elif isinstance(event, GroupProgress):
            assert 0 <= event.step <= event.total_steps
    assert finished == Counter(wanted.keys()), "every request is finished once"
    assert not running


class BackendContract:
    """Inherit in a test class and give :meth:`make` and :attr:`architectures`."""

    architectures: Sequence[Architecture] = ()
    """At least three distinct students that the backend can train."""

    def make(self) -> Backend:
        """A fresh backend."""
        raise NotImplementedError

    def requests(self) -> list[MiniKDRequest]:
        """One request for each architecture."""
        return [MiniKDRequest(f"c{i}", a) for i, a in enumerate(self.architectures)]

    def test_every_request_is_finished_once_and_runs_follow_each_other(self) -> None:
        """Started before it is finished; candidates may come in any order.

        A backend takes work episode after episode, and gives equal students equal losses.
        """
        backend, requests = self.make(), self.requests()
        losses = []
        try:
            for batch in (requests, requests[:1]):
                events = list(backend.run(batch))
                check_events(batch, events)
                losses.append(
                    {
                        e.result.candidate_id: e.result.losses
                        for e in events
                        if isinstance(e, CandidateFinished)
                    }
                )
        finally:
            backend.close()
        first = requests[0].candidate_id
        assert losses[0][first] == losses[1][first]

    def test_no_requests_no_events(self) -> None:
        """An empty list ends at once."""
        backend = self.make()
        try:
            assert list(backend.run([])) == []
        finally:
            backend.close()

    def test_who_has_begun_ends_and_nobody_else_begins(self) -> None:
        """A search that is paused lets the students at work come to their end."""
        backend, requests = self.make(), self.requests()
        begun: set[str] = set()
        ended: set[str] = set()

        def may_begin() -> bool:
            return not begun

        try:
            for event in backend.run(requests, may_begin):
                if isinstance(event, AttemptStarted):
                    assert may_begin()
                    begun |= set(event.candidate_ids)
                elif isinstance(event, AttemptInterrupted):  # whoever is tried again does not begin
                    ended |= set(event.candidate_ids)
                elif isinstance(event, CandidateFinished):
                    ended.add(event.result.candidate_id)
            assert begun == ended
            assert list(backend.run(requests, may_begin)) == []
        finally:
            backend.close()

    def test_it_may_be_closed_twice(self) -> None:
        """Also before anything ran."""
        backend = self.make()
        backend.close()
        backend.close()

    def test_it_may_be_closed_in_the_middle(self) -> None:
        """A search that is paused leaves its iterator behind."""
        backend = self.make()
        events = backend.run(self.requests())
        assert isinstance(next(events), AttemptStarted)
        backend.close()
        backend.close()


class RungContract(BackendContract):
    """Of a backend that trains step by step, and so can end a training early."""

    rung: int = 1
    """A step before the last one."""

    def test_who_is_stopped_changes_nothing_for_the_others(self) -> None:
        """Each is read at the rung, and who is to go on ends as if there had been no rung."""
        backend, requests = self.make(), self.requests()
        try:
            whole = _results(backend, requests)
            on_the_way = [replace(r, read_after=(self.rung,)) for r in requests]
            on_the_way[0] = replace(on_the_way[0], rungs=(Rung(self.rung, 0.0),))
            on_the_way[1] = replace(on_the_way[1], rungs=(Rung(self.rung, 1e9),))
            found = _results(backend, on_the_way)
        finally:
            backend.close()
        first, *others = (request.candidate_id for request in requests)
        assert found[first].stopped
        assert not found[first].succeeded
        assert (found[first].steps, found[first].readings[-1].step) == (self.rung, self.rung)
        for name in others:
            assert found[name].losses == whole[name].losses
            assert found[name].steps == whole[name].steps > self.rung
            assert self.rung in {reading.step for reading in found[name].readings}

    def test_a_whole_group_may_be_stopped(self) -> None:
        """A rung counts for the loss that it names, and the first one that stops ends it."""
        backend, step = self.make(), self.rung
        rungs = (Rung(step, 1e9), Rung(step, -1.0, "output"))
        requests = [replace(r, read_after=(step,), rungs=rungs) for r in self.requests()]
        try:
            assert all(result.stopped for result in _results(backend, requests).values())
        finally:
            backend.close()


def _results(backend: Backend, requests: Sequence[MiniKDRequest]) -> dict[str, MiniKDResult]:
    events = list(backend.run(requests))
    check_events(requests, events)
    results = (event.result for event in events if isinstance(event, CandidateFinished))
    return {result.candidate_id: result for result in results}
