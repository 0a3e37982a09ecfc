"""What Ctrl-C and SIGTERM ask of work, and what they say."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kdnas.cli.screens.interrupt import exit_unless_done, interruptible
from kdnas.db.engine import Database, parse_url
from kdnas.errors import DatabaseAwayError
from kdnas.records import SearchStatus
from kdnas.settings import Settings

Place = tuple[Database, Settings]


@pytest.fixture
def place(sqlite_template: Path, tmp_path: Path) -> Iterator[Place]:
    """A database in which work is stored, and settings."""
    path = tmp_path / "kdnas.db"
    path.write_bytes(sqlite_template.read_bytes())
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    with Database(parse_url(settings.database_url)) as database:
        yield database, settings


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """What handles the signals is put back, whatever a test does."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {one: signal.getsignal(one) for one in before} == before


@pytest.mark.parametrize(("status", "code"), [("cancelled", 1), ("paused", 130), ("running", 130)])
def test_work_that_somebody_stopped_is_not_done(status: SearchStatus, code: int) -> None:
    with pytest.raises(typer.Exit) as ended:
        exit_unless_done(status)
    assert ended.value.exit_code == code


def test_work_that_is_done_ends_with_0() -> None:
    exit_unless_done("succeeded")


@pytest.mark.parametrize(
    ("number", "trains", "at_once", "said"),
    [
        (signal.SIGINT, True, False, "students that are being trained come to their end first"),
        (signal.SIGINT, False, False, "stopping the work in good order; press Ctrl-C again"),
        (signal.SIGTERM, True, True, "stopping the work in good order; press Ctrl-C again"),
    ],
)
def test_what_a_signal_asks_for(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    number: int,
    trains: bool,
    at_once: bool,
    said: str,
) -> None:
    with interruptible("the work", place, trains_students=trains) as interrupt:
        assert not interrupt()
        assert not interrupt.at_once()
        os.kill(os.getpid(), number)
        assert interrupt()
        assert interrupt.requested
        assert interrupt.at_once() is at_once
    assert said in capsys.readouterr().err


def test_a_second_one_ends_it_at_once_and_says_the_way_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def press_twice() -> None:
        with interruptible("the work", place, "kdnas work --resume it"):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert "stopped; go on with: kdnas work --resume it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("way_on", "said"),
    [
        ("kdnas work --resume it", "stopped; go on with: kdnas work --resume it"),
        (None, "stopped; go on with the same command"),
    ],
)
@pytest.mark.parametrize("pressed", [False, True])
def test_a_wait_for_the_database_that_is_over_says_the_way_on(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    way_on: str | None,
    said: str,
    pressed: bool,
) -> None:
    def wait() -> None:
        with interruptible("the work", place, way_on) as interrupt:
            if pressed:
                interrupt.ask(signal.SIGINT)
            raise DatabaseAwayError("database x: it is locked", "unlock it")

    with pytest.raises(KeyboardInterrupt if pressed else DatabaseAwayError):
        wait()
    assert said in capsys.readouterr().err
