from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.settings import Settings


@pytest.fixture
def database(database_settings: Settings) -> Iterator[Database]:
    """An open, migrated database, once of each kind."""
    with open_database(database_settings) as opened:
        yield opened
