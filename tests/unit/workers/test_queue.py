from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kdnas.architecture import Architecture
from kdnas.records import MiniKDRequest
from workers.queue import MAX_ATTEMPTS, GroupQueue

SMALL = Architecture(1, 2, 24, 48)
sizes = st.integers(0, 40)


def requests(count: int) -> list[MiniKDRequest]:
    return [MiniKDRequest(f"c{i}", SMALL) for i in range(count)]


@given(sizes, st.integers(1, 20), st.integers(1, 8))
def test_every_request_is_taken_once_in_order(count: int, group_size: int, workers: int) -> None:
    queue, taken = GroupQueue(requests(count), group_size, workers), []
    while queue:
        group = queue.take()
        assert 1 <= len(group) <= group_size
        taken += group
    assert taken == requests(count)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 8))
def test_work_is_shared_among_the_workers(count: int, group_size: int, workers: int) -> None:
    queue, num_groups = GroupQueue(requests(count), group_size, workers), 0
    while queue:
        assert len(queue.take()) <= -(-count // workers)
        num_groups += 1
    assert num_groups >= min(count, workers) / 2


@given(st.integers(1, 24), st.integers(1, 12), st.data())
def test_whatever_dies_everyone_finishes_once_within_three_attempts(
    count: int, group_size: int, data: st.DataObject
) -> None:
    queue = GroupQueue(requests(count), group_size)
    attempts: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    while queue:
        group = queue.take()
        attempts.update(r.candidate_id for r in group)
        done = data.draw(st.integers(0, len(group)), label="trained before the death")
        finished.update(r.candidate_id for r in group[:done])
        if rest := group[done:]:
            failed = queue.give_back(rest, "killed")
            finished.update(result.candidate_id for result in failed)
            assert all(attempts[result.candidate_id] == MAX_ATTEMPTS for result in failed)
    assert finished == Counter(r.candidate_id for r in requests(count))
    assert max(attempts.values()) <= MAX_ATTEMPTS


@given(st.integers(2, 40))
def test_one_that_always_kills_its_worker_does_not_take_the_others_down(count: int) -> None:
    """It comes back in halves, then alone, and fails alone."""
    queue, failed = GroupQueue(requests(count), count), []
    companies = []
    while queue:
        group = queue.take()
        if any(r.candidate_id == "c0" for r in group):
            companies.append(len(group))
            failed += queue.give_back(group, "out of memory")
    assert companies == [count, -(-count // 2), 1]
    assert [result.candidate_id for result in failed] == ["c0"]


def test_a_failure_tells_its_last_reason() -> None:
    queue = GroupQueue(requests(1), 4)
    for attempt in range(MAX_ATTEMPTS):
        failed = queue.give_back(queue.take(), f"reason {attempt}")
    (result,) = failed
    assert not queue
    assert (result.losses, result.steps) == (None, 0)
    assert result.error == "gave up after 3 attempts; the last one: reason 2"
