"""Programs of ``benchmarks/`` as modules."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

PROGRAMS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a program by its name; each test has it, and those that it imports, anew."""
    monkeypatch.syspath_prepend(PROGRAMS)
    for path in PROGRAMS.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    return import_module
