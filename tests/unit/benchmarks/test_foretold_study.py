"""The study of predictions looks at what was not explored, and says which bars are missed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def study(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    foretold_study = load("foretold_study")
    monkeypatch.setattr(foretold_study, "EPISODES", 2)
    return foretold_study


@pytest.mark.parametrize("strategy", ["gp", "controller"])
def test_what_a_search_foretells_is_looked_at_after_each_episode(
    study: ModuleType, strategy: str
) -> None:
    found = study.foretold(study.Asked("additive", False, strategy, 0))
    assert len(found) == 2
    assert all(0.8 < one["predicted"] <= 1 for one in found)
    assert all(0.8 < one["start"] < one["predicted"] for one in found[1:])


def test_a_bar_that_is_missed_is_said_to_be(study: ModuleType) -> None:
    def searches(name: str, predicted: float) -> list[object]:
        worth = {"predicted": predicted, "start": 0.9}
        return [(study.Asked("a", True, name, seed), [worth, worth]) for seed in range(3)]

    told = study.page([*searches("low", 0.7), *searches("even", 0.9), *searches("high", 0.95)])
    low, even, high = [line for line in told.splitlines() if line.startswith("| `a`")]
    assert low.endswith("| **missed**: below 0.8, not above the start (-0.2000) |")
    assert even.endswith("| **missed**: not above the start (0.0000) |")
    assert high.endswith("| 0.900 | met |")
    assert "Medians over 3 searches" in told


def test_what_was_found_is_worded_anew_without_playing(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worth = {"predicted": 0.7, "start": 0.9}
    row = {"table": "a", "starts": True, "strategy": "gp", "seed": 0, "found": [worth, worth]}
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"searches": [row]}), "utf-8")
    command = ["foretold_study", "--found", str(kept), "--output", str(tmp_path / "page")]
    monkeypatch.setattr(sys, "argv", command)
    study.main()
    assert "| `a` | known | `gp` | 0.700 | 0.700 |" in (tmp_path / "page.md").read_text("utf-8")
    assert json.loads((tmp_path / "page.json").read_text("utf-8")) == {"searches": [row]}
