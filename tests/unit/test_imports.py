"""What must start fast loads nothing slow."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("modules", "banned"),
    [
        ("kdnas.search.loop, kdnas.search.protocols, kdnas.specs.search", "torch transformers ray"),
        ("kdnas.db.repository, kdnas.db.journal, kdnas.db.migrate, api", "torch transformers ray"),
        ("kdnas.cli.main", "torch transformers ray fastapi datasets"),
        ("api.http.app, api.http.server", "torch transformers ray datasets"),
        ("workers.backend", "ray"),
    ],
)
def test_modules_that_load_nothing_heavy(modules: str, banned: str) -> None:
    code = f"import sys, {modules}; print(*(set({banned.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_of_every_command_loads_no_torch() -> None:
    """Commands import what is heavy when they run."""
    code = (
        "import sys\n"
        "import importlib, pkgutil, kdnas.cli\n"
        "for module in pkgutil.walk_packages(kdnas.cli.__path__, 'kdnas.cli.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(*({'torch', 'ray', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
