from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing


@pytest.fixture(scope="session", autouse=True)
def _commands_made_once() -> Iterator[None]:
    """Typer makes all commands anew each time it is asked to run one, as no program does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(typer.testing._get_command))
        yield
