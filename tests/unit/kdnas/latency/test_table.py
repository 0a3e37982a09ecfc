from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kdnas.architecture import Architecture
from kdnas.errors import LatencyError
from kdnas.latency import table as table_module
from kdnas.latency.measure import Effort, Timing, current_profile
from kdnas.latency.table import (
    CheckedState,
    LatencyCheck,
    build_latency_table,
    family,
    verify_latency_table,
)
from kdnas.models.teacher import TeacherHandle
from kdnas.records import LatencyEntry, LatencyProfile
from kdnas.search_space import SearchSpace
from kdnas.specs.search import LatencySpec

PROFILE = current_profile(LatencySpec(length=8))
FEW = SearchSpace((1, 2, 3), (2, 3), (12, 24), (24, 48), ("gelu",))
"""For builds that time every state."""


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAREFUL", "THOROUGH", "QUICK"):
        monkeypatch.setattr(table_module, name, Effort(rounds=2, repeats=3, warmups=0))


def test_a_table_covers_every_state_and_says_how_right_it_is(
    handle: TeacherHandle, space: SearchSpace
) -> None:
    shares: list[float] = []
    table = build_latency_table(
        handle,
        space,
        PROFILE,
        budget_seconds=1e-3,
        progress=lambda share, text: shares.append(share),
    )
    assert list(table.entries) == [str(a) for a in space.states]
    assert all(e.latency_ms > 0 and not e.measured for e in table.entries.values())
    assert table.teacher_ms > 0
    assert table.family == family(handle.shape) == "bert-p16-t2"
    assert table.teacher_fingerprint == "tiny"
    assert table.quality["num_blocks_timed"] == len(space) / 4
    assert {"median_error", "p90_error", "spearman", "num_checked"} <= set(table.quality)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_all_is_timed_again_while_there_is_time(
    handle: TeacherHandle, space: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "MOST_PASSES", 2)
    said: list[str] = []

    def told(share: float, text: str) -> None:
        assert 0 <= share <= 1
        said.append(text)

    table = build_latency_table(handle, space, PROFILE, budget_seconds=300, progress=told)
    blocks = len(space) // 4
    assert [text for text in said if text.startswith(f"{blocks} of {blocks} blocks timed")] == [
        f"{blocks} of {blocks} blocks timed",
        f"{blocks} of {blocks} blocks timed (pass 2)",
    ]
    assert table.quality["num_blocks_timed"] == blocks
    batches = -(-int(table.quality["num_checked"]) // table_module.STATES_A_BATCH)
    assert sum(text.startswith("timing the teacher") for text in said) == 2 * batches
    said.clear()
    verify_latency_table(handle, space, table, num_students=7, progress=told)
    assert said == ["7 of 7 students (pass 1)", "7 of 7 students (pass 2)"]
    said.clear()
    build_latency_table(handle, space, PROFILE, budget_seconds=1e-3, progress=told)
    assert sum(text.startswith("timing the teacher") for text in said) < 2 * batches
    assert not any("pass 2" in text for text in said)


def test_timings_that_lie_apart_are_condensed() -> None:
    timings = [Timing(1.0, 0.1), Timing(3.0, 0.3), Timing(1.5, 0.2)]
    assert Timing.typical(timings) == Timing(1.5, 0.2)


def test_verify_takes_students_that_the_build_did_not_time(
    handle: TeacherHandle, space: SearchSpace
) -> None:
    table = build_latency_table(handle, space, PROFILE, budget_seconds=1e-3)
    check = verify_latency_table(handle, space, table, num_students=7, seed=3)
    assert len({state.architecture for state in check.states}) == 7
    assert {state.architecture.layers for state in check.states} <= {1, 4}
    for state in check.states:
        assert state.table_ms == table.ms(state.architecture)


def test_an_exhaustive_build_is_resumed(handle: TeacherHandle) -> None:
    stored: dict[str, LatencyEntry] = {}

    def store_and_stop(entries: Sequence[LatencyEntry]) -> None:
        stored.update({str(e.architecture): e for e in entries})
        if len(stored) > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_latency_table(
            handle,
            FEW,
            PROFILE,
            budget_seconds=1,
            exhaustive=True,
            on_entries=store_and_stop,
        )
    known, later = dict(stored), []
    table = build_latency_table(
        handle,
        FEW,
        PROFILE,
        budget_seconds=1,
        exhaustive=True,
        known=known,
        on_entries=later.extend,
    )
    assert list(table.entries) == [str(a) for a in FEW.states]
    assert all(e.measured for e in table.entries.values())
    assert {str(e.architecture) for e in later} == set(table.entries) - set(known)
    assert {text: table.entries[text] for text in known} == known
    with pytest.raises(LatencyError, match="measured whole"):
        verify_latency_table(handle, FEW, table)


def test_modelled_entries_do_not_pass_for_measured_ones(handle: TeacherHandle) -> None:
    modelled = {str(a): LatencyEntry(a, 1.0, 0.0, measured=False) for a in FEW.states}
    table = build_latency_table(
        handle, FEW, PROFILE, budget_seconds=1, exhaustive=True, known=modelled
    )
    assert all(e.measured for e in table.entries.values())


def test_a_profile_of_another_machine_is_refused(handle: TeacherHandle, space: SearchSpace) -> None:
    other: LatencyProfile = replace(PROFILE, device="cpu:PDP-11")
    with pytest.raises(LatencyError, match="PDP-11"):
        build_latency_table(handle, space, other, budget_seconds=1)


def test_check_figures() -> None:
    states = [
        CheckedState(Architecture(n, 1, 8, 8), measured_ms=10.0 * n, table_ms=10.0 * n * factor)
        for n, factor in ((1, 1.1), (2, 0.98), (3, 1.0), (4, 1.04))
    ]
    check = LatencyCheck.of(states)
    assert states[0].error == pytest.approx(0.1)
    assert check.median_error == pytest.approx(0.03)
    assert check.spearman == pytest.approx(1.0)
    assert check.quality["num_checked"] == 4
