"""The study of rungs plays each question twice, and says what rungs saved and what was lost."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def study(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    rung_study = load("rung_study")
    monkeypatch.setattr(rung_study, "NAMES", ("random",))
    monkeypatch.setattr(rung_study, "SEEDS", 2)
    monkeypatch.setattr(rung_study, "BUDGETS", ("20", "40", "60"))
    return rung_study


def test_with_and_without_rungs_the_same_is_asked(study: ModuleType, tmp_path: Path) -> None:
    whole = study.compare("additive", "limit", [], tmp_path)
    assert study.read(tmp_path, ["additive"]) == {}
    ended = study.compare("additive", "limit", ["0"], tmp_path)
    assert whole["standings"][0]["saved"] == [0, 0, 0]
    saved = ended["standings"][0]["saved"][0]
    assert 0.1 < saved < 1
    found = study.read(tmp_path, ["additive", "rough"])
    assert list(found) == ["`additive`, `limit`"]
    row = study.page(found).splitlines()[-3]
    assert row.startswith("| `additive`, `limit` | 0 | `random` | ")
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[3].startswith(f"{saved * 100:.0f} (")
    regrets = [study.words(one["standings"][0]["regrets"][1], 1000, 1) for one in (whole, ended)]
    assert cells[4:6] == regrets
