"""Help in which the objectives speak for themselves."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kdnas.cli.main import app
from kdnas.specs.objectives import OBJECTIVES


@pytest.mark.parametrize(
    "command", [["search"], ["full-distill"], ["launch"], ["distillations", "list"]]
)
def test_help_has_every_objective_and_no_place_left_open(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], terminal_width=1000)
    assert shown.exit_code == 0
    assert "{" not in shown.output
    assert all(name in shown.output for name in OBJECTIVES)


def test_a_setting_says_whose_it_is() -> None:
    shown = CliRunner().invoke(app, ["full-distill", "--help"], terminal_width=1000).output
    for line in (
        "hs (hidden states), minilmv2 (relations of queries, keys and values), direct-minilm",
        "hs+od (hidden states, then output distributions).  [default: hs]",
        "hs, hs+od: which of the teacher's layers each layer of the student learns from.",
        "od, distilbert, hs+od: first train a head for a teacher that has none;",
    ):
        assert line in " ".join(shown.split()).replace("[default", " [default")
