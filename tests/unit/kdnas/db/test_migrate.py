"""Migrations: from empty, twice at once, refusals, and models equal to the database."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from kdnas.architecture import Architecture
from kdnas.db import migrate
from kdnas.db.engine import Database, parse_url
from kdnas.db.exploration.losses import known_losses
from kdnas.db.models import Job
from kdnas.db.repository import jobs
from kdnas.errors import DatabaseError, SpecError
from kdnas.records import KnownLosses, Losses
from kdnas.settings import Settings
from kdnas.testing.job_rows import make_job


def settings_for(url: str) -> Settings:
    return Settings.from_environment({"KDNAS_DATABASE_URL": url, "KDNAS_AUTO_MIGRATE": "1"})


@pytest.fixture
def database_url(empty_url: str) -> str:
    """A database of the test's own, since some take it apart."""
    migrate.upgrade(empty_url)
    return empty_url


def test_upgrade_from_empty_and_again(empty_url: str) -> None:
    assert migrate.current(empty_url) is None
    assert migrate.check(empty_url) != []
    assert migrate.upgrade(empty_url) == (None, migrate.head())
    assert migrate.upgrade(empty_url) == (migrate.head(), migrate.head())
    assert migrate.current(empty_url) == migrate.head()
    assert migrate.check(empty_url) == []  # the models are equal to the database


def test_a_difference_is_named(database: Database, database_url: str) -> None:
    with database.write() as session:
        session.execute(text("ALTER TABLE searches ADD COLUMN colour TEXT"))
        session.execute(text("DROP TABLE job_labels"))
        session.execute(text("DROP INDEX ix_jobs_parent_id"))
    assert set(migrate.check(database_url)) == {
        "column colour of table searches is not known",
        "table job_labels is missing",
        "index ix_jobs_parent_id of table jobs is missing",
    }


def test_a_column_of_another_type_is_named(database: Database, database_url: str) -> None:
    with database.write() as session:
        session.execute(text("ALTER TABLE job_labels RENAME COLUMN label TO other"))
        session.execute(text("ALTER TABLE job_labels ADD COLUMN label INTEGER"))
    found = migrate.check(database_url)
    assert "column other of table job_labels is not known" in found
    assert any("type of job_labels.label is INTEGER instead of TEXT" in one for one in found)


def test_a_newer_database_is_refused(database: Database, database_url: str) -> None:
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for call in (
        lambda: migrate.open_database(settings_for(database_url)),
        lambda: migrate.upgrade(database_url),
        lambda: migrate.current(database_url),
    ):
        with pytest.raises(DatabaseError, match=r"revision 9999.*install a newer kdnas"):
            call()


@pytest.mark.postgres
def test_an_outdated_postgres_is_refused_with_the_command(
    postgres_url: str, tmp_path: Path
) -> None:
    settings = Settings.from_environment(
        {"KDNAS_HOME": str(tmp_path), "KDNAS_DATABASE_URL": postgres_url}
    )
    with pytest.raises(DatabaseError, match=r"is empty.*`kdnas db upgrade`"):
        migrate.open_database(settings)
    assert migrate.current(postgres_url) is None
    with migrate.open_database(replace(settings, auto_migrate=True)) as database:
        assert database.dialect == "postgresql"
    migrate.open_database(settings).close()


def test_several_may_open_an_empty_database_at_once(empty_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        opened = [pool.submit(migrate.open_database, settings_for(empty_url)) for _ in range(4)]
        for future in opened:
            future.result().close()
    assert migrate.check(empty_url) == []


def test_two_processes_may_open_an_empty_file_at_once(tmp_path: Path) -> None:
    code = (
        "from kdnas.db.migrate import open_database\n"
        "from kdnas.settings import Settings\n"
        f"home = {str(tmp_path / 'new' / 'home')!r}\n"
        "open_database(Settings.from_environment({'KDNAS_HOME': home})).close()\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(2)
    ]
    for process in processes:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error.decode()
    assert migrate.check(f"sqlite:///{tmp_path / 'new' / 'home' / 'kdnas.db'}") == []


def test_a_failed_migration_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE searches (something TEXT)")
    connection.close()
    with pytest.raises(DatabaseError, match="already exists"):
        migrate.upgrade(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert tables == [("searches",)]


BROKEN = """
from alembic import op
import sqlalchemy as sa

revision, down_revision = "9998", {head!r}


def upgrade():
    op.create_table("halfway", sa.Column("id", sa.Text()))
    op.add_column("jobs", sa.Column("halfway", sa.Text()))
    op.execute("UPDATE jobs SET note = 'halfway', name = 'other'")
    with op.batch_alter_table("events") as batch_op:
        batch_op.alter_column("type", new_column_name="halfway", existing_type=sa.Text())
    op.execute("DELETE FROM events")
    {raised}


def downgrade():
    op.drop_table("events")
    raise ValueError("no way back")
"""


@pytest.fixture
def broken_migration(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A newer program, whose last migration ends in its middle as the parameter says."""
    folder = shutil.copytree(migrate._folder(), tmp_path / "migrations")
    code = BROKEN.format(head=migrate.head(), raised=request.param)
    (folder / "versions" / "9998_broken.py").write_text(code, "utf-8")
    monkeypatch.setattr(migrate, "_folder", lambda: folder)
    migrate._revisions.cache_clear()
    yield
    migrate._revisions.cache_clear()


RAISED = {
    "raise ValueError('row 7 is odd')": "row 7 is odd",
    "op.execute('INSERT INTO nowhere VALUES (1)')": "nowhere",
    "op.get_bind().exec_driver_sql('UPDATE jobs SET status = 7')": "",
}


@pytest.mark.parametrize("broken_migration", RAISED, indirect=True)
def test_a_migration_that_fails_in_its_middle_changes_nothing(
    database_url: str, broken_migration: None, request: pytest.FixtureRequest
) -> None:
    before = migrate.current(database_url)
    with Database(parse_url(database_url)) as database:
        job_id = make_job(database, name="mine")
    reason = RAISED[request.node.callspec.params["broken_migration"]]
    sentence = (
        f"{reason}.* migration to revision 9998 was undone, and the database is still at "
        f"revision {before}: see to the reason and try again, or go on with the kdnas that"
    )
    for _ in range(2):
        with pytest.raises(DatabaseError, match=sentence):
            migrate.upgrade(database_url)
    assert migrate.current(database_url) == before
    assert migrate.check(database_url) == []
    with Database(parse_url(database_url)) as database, database.write() as session:
        row = session.get_one(Job, job_id)
        assert (row.name, row.note) == ("mine", None)
        assert session.scalar(text("SELECT count(*) FROM events")) == 1
        jobs.set_note(session, job_id, "it goes on")


@pytest.mark.parametrize("broken_migration", ["pass"], indirect=True)
def test_a_downgrade_that_fails_changes_nothing(database_url: str, broken_migration: None) -> None:
    with Database(parse_url(database_url)) as database, database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9998'"))
        session.execute(text("CREATE TABLE halfway (id TEXT)"))
    try:
        with pytest.raises(DatabaseError, match=r"no way back.*undone.*still at revision 9998"):
            migrate.downgrade(database_url, migrate._revisions()[1])
        with Database(parse_url(database_url)) as database, database.read() as session:
            assert session.scalar(text("SELECT count(*) FROM events")) == 0
    finally:
        with Database(parse_url(database_url)) as database, database.write() as session:
            head = text("UPDATE alembic_version SET version_num = :head")
            session.execute(head, {"head": migrate._revisions()[1]})
            session.execute(text("DROP TABLE halfway"))


def test_a_downgrade_goes_down_only(database_url: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"unknown revision '0o12'.*did you mean '0012'"):
        migrate.downgrade(database_url, "0o12")
    with pytest.raises(SpecError, match=rf"is at revision {migrate.head()}, which is not above"):
        migrate.downgrade(database_url, migrate.head())
    with pytest.raises(SpecError, match=r"is empty, which is not above 0001"):
        migrate.downgrade(f"sqlite:///{tmp_path / 'empty.db'}", "0001")


def test_downgrade_empties_the_database(database: Database) -> None:
    from alembic import command

    config = migrate._config()
    with database.write() as session:
        config.attributes["connection"] = session.connection()
        command.downgrade(config, "base")
        left = {"sqlite": "sqlite_master", "postgresql": "pg_tables"}[database.dialect]
        count = session.scalar(
            text(
                f"SELECT count(*) FROM {left} WHERE "
                + (
                    "type = 'table' AND name NOT LIKE 'sqlite_%'"
                    if database.dialect == "sqlite"
                    else "schemaname = 'public'"
                )
            )
        )
    assert count == 1  # alembic's own


def test_members_of_an_older_database_stay_and_may_have_an_undistilled_one(empty_url: str) -> None:
    now, column = "2024-01-01 00:00:00", "pipeline_id, position, role, architecture"
    member = f"INSERT INTO pipeline_members (id, {column}, reasons, figures) VALUES "
    shape = "'3,2,288,384,relu', '[]', '{}'"
    _upgrade_to(empty_url, "0007")
    with _connection(empty_url) as connection:
        connection.execute(
            text(
                "INSERT INTO pipelines (id, name, spec, owner_kind, status, stage, notes, "
                f"created_at) VALUES ('p', 'old', '{{}}', 'cli', 'running', 'evaluation', '[]', "
                f"'{now}')"
            )
        )
        connection.execute(text(f"{member} ('m', 'p', 1, 'chosen', {shape})"))
        connection.execute(
            text(
                "INSERT INTO evaluations (id, model, suite, task, seed, spec, status, metrics, "
                "owner_kind, share, pipeline_member_id, created_at) VALUES "
                f"('e', 'x', 'glue', 'RTE', 0, '{{}}', 'queued', '{{}}', 'cli', 0, 'm', '{now}')"
            )
        )
    assert migrate.upgrade(empty_url) == ("0007", migrate.head())
    assert migrate.check(empty_url) == []
    with _connection(empty_url) as connection:
        connection.execute(text(f"{member} ('n', 'p', 2, 'undistilled', {shape})"))
        kept = "SELECT m.id, e.id FROM pipeline_members m LEFT JOIN evaluations e ON "
        kept += "e.pipeline_member_id = m.id ORDER BY m.id"
        assert connection.execute(text(kept)).all() == [("m", "e"), ("n", None)]


def test_candidates_of_an_older_database_are_taken_apart(empty_url: str) -> None:
    now = "2024-01-01 00:00:00"
    _upgrade_to(empty_url, "0002")
    with _connection(empty_url) as connection:
        connection.execute(
            text(
                "INSERT INTO searches (id, name, spec, owner_kind, status, created_at) "
                f"VALUES ('s', 'old', '{{}}', 'cli', 'succeeded', '{now}')"
            )
        )
        connection.execute(
            text(
                "INSERT INTO episodes (search_id, number, started_at) VALUES "
                f"('s', 1, '{now}'), ('s', 2, '{now}')"
            )
        )
        for row, episode, position, state, architecture, status, reward, reused in (
            ("a", 1, 0, 7, "4,12,576,768,gelu", "failed", None, False),
            ("b", 1, 1, 9, "3,2,288,384,relu", "succeeded", 0.5, False),
            ("c", 2, 0, 9, "3,2,288,384,relu", "succeeded", 0.5, True),
            ("d", 2, 1, 8, "3,2,288,384,silu", "proposed", None, False),
        ):
            connection.execute(
                text(
                    "INSERT INTO candidates (id, search_id, episode, position, state_index, "
                    "architecture, source, status, reward, reused, num_attempts, created_at) "
                    "VALUES (:id, 's', :episode, :position, :state, :architecture, 'random', "
                    f":status, :reward, :reused, 1, '{now}')"
                ),
                {
                    "id": row,
                    "episode": episode,
                    "position": position,
                    "state": state,
                    "architecture": architecture,
                    "status": status,
                    "reward": reward,
                    "reused": reused,
                },
            )
    assert migrate.upgrade(empty_url) == ("0002", migrate.head())
    assert migrate.check(empty_url) == []
    with _connection(empty_url) as connection:
        axes = connection.execute(
            text(
                "SELECT layers, heads, hidden, intermediate, activation FROM candidates ORDER BY id"
            )
        ).all()
        states = connection.execute(
            text(
                "SELECT state_index, architecture, num_candidates, num_finished, num_attempts, "
                "trained, failed, candidate_id FROM search_states ORDER BY state_index"
            )
        ).all()
    assert axes[0] == (4, 12, 576, 768, "gelu")
    assert axes[1:] == [(3, 2, 288, 384, "relu")] * 2 + [(3, 2, 288, 384, "silu")]
    assert states == [
        (7, "4,12,576,768,gelu", 1, 1, 1, False, True, None),
        (8, "3,2,288,384,silu", 1, 0, 1, False, False, None),
        (9, "3,2,288,384,relu", 2, 2, 2, True, False, "b"),
    ]


def test_losses_of_an_older_database_have_no_start(empty_url: str) -> None:
    now = "2024-01-01 00:00:00"
    _upgrade_to(empty_url, "0007")
    with _connection(empty_url) as connection:
        connection.execute(
            text(f"INSERT INTO mini_kd_contexts (fingerprint, created_at) VALUES ('c', '{now}')")
        )
        connection.execute(
            text(
                "INSERT INTO distillation_losses (context, architecture, repeat, loss_training, "
                "loss_mean, loss_relative, loss_output, curve, num_steps, train_seconds, "
                f"created_at) VALUES ('c', '3,2,288,384,gelu', 1, 0.1, 0.2, 0.3, 0.4, '[]', 9, 1, "
                f"'{now}')"
            )
        )
    assert migrate.upgrade(empty_url) == ("0007", migrate.head())
    assert migrate.check(empty_url) == []
    with Database(parse_url(empty_url)) as database, database.read() as session:
        known = known_losses(session, "c", [Architecture.parse("3,2,288,384,gelu")])
    assert known == {"3,2,288,384,gelu": KnownLosses(Losses(0.1, 0.2, 0.3, 0.4), None)}


def _upgrade_to(url: str, revision: str) -> None:
    from alembic import command

    config = migrate._config()
    with _connection(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _connection(url: str) -> AbstractContextManager[Connection]:
    return migrate._connected(url, writes=True)
