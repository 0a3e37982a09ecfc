"""Which students are trained together, and what becomes of those whose worker died."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from kdnas.records import MiniKDRequest, MiniKDResult

MAX_ATTEMPTS = 3

Group = tuple[MiniKDRequest, ...]


class GroupQueue:
    """Groups waiting for a worker.

    A group whose worker died comes back in halves, and before the last attempt one by one, so that
    a student that does not fit into memory cannot take the others down three times; after three
    attempts a student has failed.
    """

    def __init__(
        self, requests: Sequence[MiniKDRequest], group_size: int, num_workers: int = 1
    ) -> None:
        size = max(1, min(group_size, -(-len(requests) // num_workers)))
        self._waiting: deque[Group] = deque(
            tuple(requests[i : i + size]) for i in range(0, len(requests), size)
        )
        self._attempts: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self) -> Group:
        """Take the next group; each of its students begins an attempt."""
        group = self._waiting.popleft()
        self._attempts.update(request.candidate_id for request in group)
        return group

    def give_back(self, group: Group, reason: str) -> list[MiniKDResult]:
        """Put unfinished students back in smaller groups; return those that have failed for good.

        Args:
            group: the students without a result.
            reason: why their worker stopped.
        """
        failed = [r for r in group if self._attempts[r.candidate_id] >= MAX_ATTEMPTS]
        again = [r for r in group if r not in failed]
        is_last = any(self._attempts[r.candidate_id] == MAX_ATTEMPTS - 1 for r in again)
        size = 1 if is_last else -(-len(again) // 2)
        parts = [tuple(again[i : i + size]) for i in range(0, len(again), max(1, size))]
        self._waiting.extendleft(reversed(parts))
        return [
            MiniKDResult(
                candidate_id=request.candidate_id,
                architecture=request.architecture,
                losses=None,
                error=f"gave up after {MAX_ATTEMPTS} attempts; the last one: {reason}",
                steps=0,
                train_seconds=0.0,
                gave_up=True,
            )
            for request in failed
        ]
