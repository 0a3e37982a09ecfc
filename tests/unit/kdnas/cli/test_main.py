"""How the program ends, whatever a command raises."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from kdnas.cli.main import EXIT_WORK_FAILED, EXIT_WRONG_REQUEST, main


def test_a_name_that_no_file_can_have_is_a_wrong_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["kdnas", "evaluate", "x" * 300, "--suite", "glue"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == EXIT_WRONG_REQUEST
    said = f"error: '{'x' * 60}… (300 characters)' is too long for the name of a file or a folder"
    assert capsys.readouterr().err.startswith(said)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["kdnas", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "~no-such-user/model", "--suite", "glue"),
        ("predict", "~no-such-user/model", "a"),
        ("search", "--teacher", "~no-such-user/model"),
        ("search", "--corpus", "~no-such-user/texts"),
        ("task-distill", "--task", "rte", "--data-dir", "~no-such-user/glue"),
    ],
)
def test_the_home_of_nobody_is_a_wrong_request(
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    assert run(monkeypatch, *arguments) == EXIT_WRONG_REQUEST
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "begins with the home of a user that is not known here (~no-such-user)" in said


def test_what_may_not_be_read_is_not_told_as_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def closed(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/models/bert/vocab.txt")

    monkeypatch.setattr("kdnas.cli.main.app", closed)
    assert run(monkeypatch) == EXIT_WORK_FAILED
    assert capsys.readouterr().err == (
        "error: /models/bert/vocab.txt may not be used by this user (Permission denied); change "
        "its permissions, or name another\n"
    )
