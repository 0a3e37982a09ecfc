"""What the OpenAPI document says holds for whatever a client may send.

Schemathesis makes requests from the document itself: right ones, wrong ones, odd ones, and ones
that follow from another's answer. No answer may be a failure of the service, of an undocumented
status, type or shape, and nothing wrong may be accepted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import uvicorn
from sqlalchemy import func, insert, select

from api.http.app import create_app
from api.http.server import listen
from kdnas.db import migrate
from kdnas.db.base import Base
from kdnas.db.engine import Database, parse_url
from kdnas.db.exploration.candidates import list_episodes
from kdnas.db.models import CoordinatorRow
from kdnas.db.queue import coordinators
from kdnas.db.queue.leases import LeaseOwner
from kdnas.settings import Settings
from kdnas.testing.demo_data import DemoIds
from kdnas.testing.walked_pipeline import add_pipeline

EXAMPLES = os.environ.get("KDNAS_TEST_FUZZ_EXAMPLES", "5")

CONFIGURATION = """
# What no schema can say is refused with 422 all the same: a cursor of another list, heads that do
# not divide a width, two entries that exclude each other, a path outside the roots.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429", "503"]

# What cannot be deleted; ids of the rest follow from the answers that made it.
[parameters]
"path.candidate" = "{candidate}"
"path.table" = "{table}"
"path.evaluation" = "{evaluation}"

# In a body, as in YAML, a number or a boolean may be written as text, and a boolean as 0 or 1.
[[operations]]
include-method = "POST"
[operations.checks.negative_data_rejection]
expected-statuses = [
  "202", "400", "401", "403", "404", "405", "409", "413", "415", "422", "429", "5xx",
]
"""

# PostgreSQL refuses more than SQLite, such as a zero character, and so is asked for longer.
SECONDS = {"sqlite": "8", "postgresql": "25"}

pytestmark = pytest.mark.slow


def copy_rows(source: Database, target: Database) -> None:
    """Put all rows of a database into an empty one, which may be of another kind."""
    with source.read() as read, target.write() as write:
        for table in Base.metadata.sorted_tables:
            if table.name not in migrate.our_tables():  # a package's that another test has loaded
                continue
            rows = [dict(row) for row in read.execute(select(table)).mappings()]
            if rows:
                write.execute(insert(table), rows)
            number = table.autoincrement_column
            if rows and number is not None and target.dialect == "postgresql":
                sequence = func.pg_get_serial_sequence(table.name, number.name)
                write.execute(select(func.setval(sequence, max(row[number.key] for row in rows))))


@pytest.fixture
def url(database: Database, tmp_path: Path, used_template: tuple[Path, DemoIds]) -> Iterator[str]:
    """The service with what a week of use leaves, and streams that end after their greeting."""
    template, ids = used_template
    with Database(parse_url(f"sqlite:///{template}")) as used:
        copy_rows(used, database)
    with database.read() as session:
        first = list_episodes(session, ids.finished)[0].candidates[0]
    configuration = CONFIGURATION.format(
        candidate=first.id,
        table=ids.latency_profile,
        evaluation=ids.evaluation,
    )
    add_pipeline(database, "over")
    with database.write() as session:  # or /readyz would answer 503, which is taken for an error
        owner = LeaseOwner.of_this_process("service")
        coordinators.note_alive(session, owner, max_running=2, num_running=0)
        session.get_one(CoordinatorRow, owner.token).seen_at += timedelta(hours=1)
    (tmp_path / "schemathesis.toml").write_text(configuration, "utf-8")
    settings = Settings.from_environment(
        {"KDNAS_HOME": str(tmp_path), "KDNAS_DATA_ROOTS": str(tmp_path)}
    )
    settings = replace(settings, database_url=database.url.render_as_string(hide_password=False))
    app = create_app(settings, database, coordinator=False)
    app.state.events.close()
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_every_answer_is_as_documented(url: str, tmp_path: Path, database: Database) -> None:
    seconds = os.environ.get("KDNAS_TEST_FUZZ_SECONDS", SECONDS[database.url.get_backend_name()])
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"{url}/api/v1/openapi.json", "--checks", "all", "--max-examples", EXAMPLES),
            *("--continue-on-failure", "--seed", "1", "--no-color", "--request-timeout", "20"),
            *("--generation-database", "none", "--max-time", seconds),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
