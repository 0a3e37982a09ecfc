from __future__ import annotations

from api.jobs.pauses import Pauses


def test_pauses_grow_up_to_a_minute_and_begin_anew() -> None:
    now = 100.0
    pauses = Pauses(lambda: now)
    assert [pauses.lengthen("row") for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    pauses.lengthen("other")
    assert pauses.resting() == {"row", "other"}
    now += 1.5
    assert pauses.resting() == {"row"}
    assert pauses.lengthen("other") == 2
    now += 60
    assert pauses.resting() == frozenset()
    pauses.forget("row")
    pauses.forget("unknown")
    assert pauses.lengthen("row") == 1
