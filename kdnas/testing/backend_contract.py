"""What every backend must do, as a suite of tests to inherit from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kdnas.architecture import Architecture
from kdnas.records import (
    AttemptInterrupted,
    AttemptStarted,
    BackendEvent,
    CandidateFinished,
    GroupProgress,
    MiniKDRequest,
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
            assert (result.losses is None) != (result.error is None)
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
