"""The study of rankings draws evenly, says how sure a rank correlation is, and goes on."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas import ENGINE_VERSION
from kdnas.models.cost import EmbeddingShape
from kdnas.search_space import SearchSpace

EMBEDDING = EmbeddingShape(vocab_size=100)
SPACE = SearchSpace(layers=(1, 2, 3), heads=(2, 4), hidden=(16, 32), intermediate=(32, 64))


@pytest.fixture
def study(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("ranking_study")


def rows(study: ModuleType, architecture: str, loss: float) -> list[dict[str, Any]]:
    return [
        {
            "corpus": "texts",
            "start": setting.start,
            "rate": setting.rate,
            "warmup": setting.warmup,
            "steps": setting.steps,
            "seed": setting.seed,
            "architecture": architecture,
            "loss_start": loss + 0.2,
            "relative": loss + (0.1 if setting.steps == study.SHORT else 0.0),
            "corpus_fingerprint": "mark",
            "dtype": "float32",
            "engine_version": ENGINE_VERSION,
        }
        for setting in study.settings("texts")
    ]


def test_every_value_is_drawn_about_equally_often(study: ModuleType) -> None:
    drawn = study.spread(SPACE, 12, 0)
    assert len(set(drawn)) == 12
    assert drawn == study.spread(SPACE, 12, 0) != study.spread(SPACE, 12, 1)
    for axis, values in SPACE.axes.items():
        counts = Counter(getattr(state, axis) for state in drawn)
        assert set(counts) == set(values)
        assert max(counts.values()) - min(counts.values()) <= 2


def test_nothing_that_was_chosen_on_is_drawn(study: ModuleType) -> None:
    left = study.spread(SPACE, 5, 0)
    study.CHOOSING, study.REPORTED = (str(left[0]),), (str(left[1]),)
    assert not {left[0], left[1]} & set(study.spread(SPACE, len(SPACE) - 2, 0))


def test_an_interval_that_is_known(study: ModuleType) -> None:
    pair = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 1, 4, 3, 6, 5, 8, 7, 10, 9]
    found = study.rank_correlation(*pair)
    # ρ = 1 − 6·Σd²/(n(n² − 1)) = 1 − 60/990, atanh(ρ) = 1.73287, √((1 + ρ²/2)/7) = 0.45375.
    assert found["rho"] == pytest.approx(1 - 60 / 990)
    assert found["low"] == pytest.approx(0.6877, abs=1e-4)
    assert found["high"] == pytest.approx(0.9895, abs=1e-4)
    perfect = study.rank_correlation([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert perfect["low"] < perfect["rho"] == pytest.approx(1)


def test_a_page_says_what_is_missing_and_whether_the_bar_is_met(
    study: ModuleType, tmp_path: Path
) -> None:
    drawn = study.spread(SPACE, 12, 0)
    results = study.JsonLines(tmp_path / "runs.jsonl")
    with pytest.raises(SystemExit, match="has no runs yet"):
        study.report(results, drawn, EMBEDDING)
    for number, architecture in enumerate(drawn[:-1]):
        for row in rows(study, str(architecture), 0.2 + number / 100):
            results.add(row)
    text, _ = study.report(results, drawn, EMBEDDING)
    assert "**Unfinished**: 11 of 12" in text
    assert "is judged when all are trained" in text
    for row in rows(study, str(drawn[-1]), 0.5):
        results.add(row)
    text, numbers = study.report(study.JsonLines(results.path), drawn, EMBEDDING)
    assert "Unfinished" not in text
    assert numbers["short"]["rho"] == pytest.approx(1)
    assert numbers["short"]["regret"] == 0
    assert numbers["short"]["low"] >= study.BAR
    assert ", met." in text
    worse = [
        {**row, "relative": 1 - row["relative"]}
        for row in results.rows
        if row["steps"] == study.LONG
    ]
    results.rows = [row for row in results.rows if row["steps"] != study.LONG] + worse
    assert ", **not met**." in study.report(results, drawn, EMBEDDING)[0]
