"""The page of what grows while a service works, on samples that are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

MINUTE = 60.0


@pytest.fixture
def soak(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("soak")


def sample(seconds: float, **measured: float) -> dict[str, Any]:
    return {
        "database": "sqlite", "seconds": seconds, "uss_mib": 120.0, "rss_mib": 170.0,
        "handles": 40, "threads": 16, "jobs": {"succeeded": 1 + int(seconds // 600)},
        "rows": {"jobs": 1 + int(seconds // 600), "events": int(seconds // 10)},
        "database_bytes": 1024 * int(seconds), "log_bytes": 512 * int(seconds),
        "asked": int(seconds // 600), "events_heard": 7, "told": 3,
        "answers": {"200": 10, "422": 2}, "failures": [], **measured,
    }  # fmt: skip


def test_a_slope_is_found_after_the_first_quarter(soak: ModuleType) -> None:
    seconds = np.arange(0, 7200, 15.0)
    drawn = np.random.default_rng(0).normal(0, 0.5, len(seconds))
    warming = np.where(seconds < 1800, seconds / 10, 180.0)
    found = soak.slope(seconds, warming + 3 * seconds / 3600 + drawn)
    assert found.per_hour == pytest.approx(3, abs=0.4)
    assert found.half_width < 0.5
    assert not found.is_flat
    flat = soak.slope(seconds, warming + drawn)
    assert flat.is_flat
    assert flat.mean == pytest.approx(180, abs=0.1)


def test_a_slope_of_nothing_but_the_same_is_flat(soak: ModuleType) -> None:
    seconds = np.arange(0, 7200, 15.0)
    found = soak.slope(seconds, np.full(len(seconds), 40.0))
    assert (found.per_hour, found.half_width, found.is_flat) == (0.0, 0.0, True)


def test_what_shakes_too_much_shows_nothing(soak: ModuleType) -> None:
    seconds = np.arange(0, 7200, 15.0)
    waves = 40 + 30 * np.sin(seconds / 900)
    found = soak.slope(seconds, waves)
    assert abs(found.per_hour) < found.half_width  # 0 is in it, and much else
    assert not found.is_flat


def test_growth_that_ends_is_not_in_the_last_half(soak: ModuleType) -> None:
    seconds = np.arange(0, 7200, 15.0)
    step = np.where(seconds < 3000, 100.0, 110.0)
    assert soak.slope(seconds, step).per_hour > 2
    assert soak.slope(seconds, step, after=0.5).per_hour == 0


def test_too_short_a_time_has_no_slope(soak: ModuleType) -> None:
    with pytest.raises(ValueError, match="are too few"):
        soak.slope([0, 15, 30, 45], [1, 1, 1, 1])


def test_what_grew_and_what_failed_is_told(soak: ModuleType) -> None:
    rows = [
        sample(
            minute * MINUTE, uss_mib=100 + minute, failures=["jobs: reset"] if not minute else []
        )
        for minute in range(121)
    ]
    text = soak.page(rows)
    assert "2.00 hours, 12 jobs asked for, one every 600.0 s; at the end 13 succeeded" in text
    assert (
        "12 answers (200: 10, 422: 2), 7 events heard, 3 messages to the webhook, 1 failures."
        in text
    )
    assert (
        "| memory of its own, MiB | 100.0 | 130.0 | 220.0 | 220.0 | +60.00 ± 0.00 | no | "
        "+60.00 ± 0.00 |"
    ) in text
    assert "| threads | 16.0 | 16.0 | 16.0 | 16.0 | +0.00 ± 0.00 | yes | +0.00 ± 0.00 |" in text
    assert (
        "Grown with the jobs, each of 13: 553.8 KiB of database (SQLite), 276.9 KiB of logs" in text
    )
    assert "events 55.4, jobs 0.9." in text
    assert "- jobs: reset" in text


def test_nothing_is_left_out_of_a_database_of_another_kind(soak: ModuleType) -> None:
    rows = [
        sample(minute * MINUTE, database="postgresql", database_bytes=0) for minute in range(121)
    ]
    assert "each of 13: 276.9 KiB of logs, and rows" in soak.page(rows)


def test_a_run_is_not_written_behind_another(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "runs.jsonl"
    soak.JsonLines(file).add(sample(0.0))
    given = ["soak.py", "run", "--database", "sqlite", "--results", str(file)]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit):
        soak.main()
    assert "has a run on sqlite: two are not one; name another" in capsys.readouterr().err
