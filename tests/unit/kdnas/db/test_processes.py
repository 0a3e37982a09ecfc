"""Several processes on one SQLite file: nobody is locked out, and a kill breaks nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.repository import events, searches
from kdnas.settings import Settings

WRITER = """
import sys
from kdnas.db.migrate import open_database
from kdnas.db.repository import events, searches
from kdnas.settings import Settings

with open_database(Settings.from_environment({"KDNAS_HOME": sys.argv[1]})) as database:
    for i in range(int(sys.argv[2])):
        with database.write() as session:
            search = searches.get_search(session, "shared")   # reads first, then writes
            events.append_event(session, "first", {"i": i}, job_id=search.id)
            events.append_event(session, "second", {"i": i}, job_id=search.id)
"""


def start_writer(home: Path, num_writes: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(home), str(num_writes)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def open_shared(home: Path) -> Database:
    database = open_database(Settings.from_environment({"KDNAS_HOME": str(home)}))
    with database.write() as session:
        searches.create_search(session, {}, name="shared")
    return database


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    with open_shared(tmp_path) as database:
        writers = [start_writer(tmp_path, 150) for _ in range(2)]
        reads = 0
        while any(writer.poll() is None for writer in writers):
            with database.read() as session:
                events.events_since(session)
            reads += 1
            time.sleep(0.005)
        for writer in writers:
            _, error = writer.communicate(timeout=60)
            assert writer.returncode == 0, error.decode()
        with database.read() as session:
            assert len(events.events_since(session)) == 1 + 2 * 2 * 150
    assert reads > 0


def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    with open_shared(tmp_path) as database:
        writer = start_writer(tmp_path, 1_000_000)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with database.read() as session:
                if events.last_event_id(session) > 50:
                    break
            time.sleep(0.005)
        writer.kill()
        writer.communicate()
        with database.write() as session:
            searches.create_search(session, {}, name="afterwards")
        with database.read() as session:
            types = [event.type for event in events.events_since(session, limit=10_000_000)]
    assert types.count("first") == types.count("second") > 0
    with sqlite3.connect(tmp_path / "kdnas.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
