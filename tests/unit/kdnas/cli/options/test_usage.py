"""Wrong command lines: one sentence with the value, and exit code 2."""

from __future__ import annotations

import sys

import pytest
import typer

from kdnas.cli.main import main


def said(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["kdnas", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["jobs", "list", "--limit", "0"],
            "--limit 0: input should be greater than or equal to 1; see kdnas jobs list --help",
        ),
        (
            ["jobs", "list", "--limit", "5", "--limit=x"],
            "--limit x: input should be a valid integer, unable to parse string as an integer; "
            "see kdnas jobs list --help",
        ),
        (["serch"], "no such command 'serch', did you mean 'search', 'searches', 'arch'; see"),
        (["search", "--stps", "3"], "no such option: --stps (Possible options: --dtype, --space"),
        (["full-distill", "--arch"], "option '--arch' requires an argument; see kdnas"),
        (["arch"], "missing argument 'architecture'; see kdnas arch --help"),
        (["jobs", "show"], "missing argument '"),
        (
            ["jobs", "watch", "a", "b", "c"],
            "unexpected argument 'b c'; a value with spaces needs quotes; see kdnas jobs watch",
        ),
    ],
)
def test_it_is_one_sentence(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = said(arguments, monkeypatch, capsys)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"error: {sentence}")


def test_a_group_without_a_command_shows_its_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = said(["jobs"], monkeypatch, capsys)
    assert code == 2
    assert "Usage: kdnas jobs" in err
    assert "cancel" in err


def test_a_question_that_is_answered_with_no_ends_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr("kdnas.cli.main.app", refuse)
    assert said([], monkeypatch, capsys) == (1, "", "nothing was done\n")


@pytest.mark.parametrize("arguments", [["version"], ["search", "--help"], ["jobs", "--help"]])
def test_what_is_right_ends_with_zero(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(arguments, monkeypatch, capsys)
    assert (code, err) == (0, "")
    assert out
