"""Where a command writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdnas.cli.options.outputs import output_folder
from kdnas.errors import ConflictError, RequestError


def test_a_folder_that_nothing_was_put_into_is_gone(tmp_path: Path) -> None:
    output = tmp_path / "new" / "report"

    def work() -> None:
        with output_folder(output):
            assert output.is_dir()
            raise RequestError("no such model")

    with pytest.raises(RequestError):
        work()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "new" / "report"
    with output_folder(output):
        (output / "report.md").touch()
    assert (output / "report.md").is_file()


def test_a_folder_that_was_there_before_is_kept(tmp_path: Path) -> None:
    with output_folder(tmp_path / "there"):
        (tmp_path / "there" / "report.md").touch()
    (tmp_path / "there" / "report.md").unlink()
    with output_folder(tmp_path / "there"):
        pass
    assert (tmp_path / "there").is_dir()


def test_a_folder_that_cannot_be_made_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConflictError, match=r"file cannot be made .* name another with --output"),
        output_folder(tmp_path / "file"),
    ):
        pytest.fail("the work began")
