"""The journal in memory keeps the contract."""

import pytest

from kdnas.search.memory_journal import MemoryJournal
from kdnas.testing.journal_contract import JournalContract


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self) -> MemoryJournal:
        return MemoryJournal()

    @pytest.fixture
    def search_id(self, journal: MemoryJournal) -> str:
        return journal.create_search({"seed": 1}).id
