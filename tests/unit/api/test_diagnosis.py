"""What the doctor finds, and what it says to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from api import diagnosis
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.repository.tokens import create_token
from kdnas.settings import Settings

DOCTOR = (sys.executable, "-c", "from kdnas.cli.main import main; main()", "doctor", "--port", "0")
TOKEN = "a-token-of-this-test-only"


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")})


@pytest.mark.slow
def test_a_sound_machine(tmp_path: Path) -> None:
    """Everything once, from the outside: nothing is created."""
    roots = tmp_path / "data"
    roots.mkdir()
    done = subprocess.run(
        [*DOCTOR, "--json"],
        env={"KDNAS_HOME": str(tmp_path / "home"), "KDNAS_DATA_ROOTS": str(roots), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert set(findings) == {
        *("home", "database", "store", "locks", "Ray", "devices", "machine"),
        *("data roots", "tokens", "webhook", "address"),
    }
    assert "is made when it is first used" in findings["database"]["text"]
    assert findings["data roots"]["text"] == str(roots)
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_one_failure_makes_the_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        DOCTOR,
        env={"KDNAS_HOME": str(tmp_path), "KDNAS_OPERATOR_TOKEN": "short", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL  tokens      KDNAS_OPERATOR_TOKEN has 5 characters" in done.stdout
    assert "short" not in done.stdout


def test_databases(here: Settings, database: Database) -> None:
    url = database.url.render_as_string(hide_password=False)
    migrated = diagnosis._database(replace(here, database_url=url))
    assert migrated.state == "ok"
    assert "answers, at revision" in migrated.text
    wrong = diagnosis._database(replace(here, database_url="mysql://x/y"))
    assert wrong.state == "fail"
    away = diagnosis._database(replace(here, database_url="postgresql://127.0.0.1:1/kdnas"))
    assert away.state == "fail"
    assert "check that the server runs" in away.text


@pytest.mark.postgres
def test_an_empty_postgresql_wants_a_command(here: Settings, postgres_url: str) -> None:
    empty = replace(here, database_url=postgres_url)
    found = diagnosis._database(empty)
    assert (found.state, found.text.endswith("is empty; run `kdnas db upgrade`")) == ("fail", True)
    assert diagnosis._database(replace(empty, auto_migrate=True)).state == "ok"


def test_a_cluster_that_is_away(here: Settings) -> None:
    found = diagnosis._ray(replace(here, ray_address="127.0.0.1:1"))
    assert found.state == "fail"
    assert "check KDNAS_RAY_ADDRESS" in found.text


def test_stores(here: Settings) -> None:
    assert diagnosis._store(here).state == "ok"
    assert diagnosis._store(replace(here, store_url="memory://store")).state == "ok"
    unknown = diagnosis._store(replace(here, store_url="nosuch://store"))
    assert unknown.state == "fail"
    assert "check KDNAS_STORE" in unknown.text


def test_data_roots(here: Settings, tmp_path: Path) -> None:
    roots = (str(tmp_path), str(tmp_path / "missing"), "/", "s3://bucket/x")
    found = list(diagnosis._data_roots(replace(here, data_roots=roots)))
    assert [finding.state for finding in found] == ["ok", "fail", "warn", "ok"]
    assert "make it, or correct KDNAS_DATA_ROOTS" in found[1].text


def test_webhooks(here: Settings) -> None:
    assert diagnosis._webhook(here).state == "ok"
    told = replace(here, webhook_url="https://u:pw@example.org/hook", webhook_secret="whsec_short")
    assert diagnosis._webhook(told).state == "fail"
    found = diagnosis._webhook(replace(told, webhook_secret="x" * 24))
    assert (found.state, "https://example.org/hook; " in found.text) == ("warn", True)
    found = diagnosis._webhook(replace(told, webhook_secret="whsec_" + "A" * 32))
    assert (found.state, found.text) == (
        "ok",
        "https://example.org/hook is told when work has ended",
    )
    found = diagnosis._webhook(replace(told, webhook_url="http://10.0.0.5/"))
    assert "KDNAS_WEBHOOK_ALLOW_PRIVATE=1" in found.text


def test_a_port_that_is_taken_and_a_door_that_is_open(here: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = diagnosis._port(here, "127.0.0.1", taken.getsockname()[1])
    assert found.state == "fail"
    assert "Address already in use" in found.text
    assert diagnosis._port(here, "0.0.0.0", 0).state == "fail"
    assert diagnosis._port(replace(here, operator_token=TOKEN), "0.0.0.0", 0).state == "ok"


def test_tokens_of_users_are_counted_and_open_the_door(here: Settings) -> None:
    assert diagnosis._tokens(here).text.startswith("none: ")
    with open_database(here) as database, database.write() as session:
        create_token(session, "bob", "viewer")
    assert diagnosis._tokens(here).text == "1 of users"
    assert diagnosis._port(here, "0.0.0.0", 0).state == "fail"
    with open_database(here) as database, database.write() as session:
        create_token(session, "anna", "operator")
    assert diagnosis._port(here, "0.0.0.0", 0).state == "ok"
    told = diagnosis._tokens(replace(here, operator_token=TOKEN)).text
    assert told == "set for operators only, and 2 of users"
