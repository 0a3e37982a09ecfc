"""How the program ends, whatever a command raises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kdnas.cli.main import EXIT_WRONG_REQUEST, main


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
