"""`kdnas schema` of every request."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from kdnas.cli.schema import schema
from kdnas.errors import SpecError
from kdnas.specs.requests import REQUEST_NAMES, RequestName, request_spec

app = typer.Typer(rich_markup_mode=None)
app.command()(schema)


@pytest.mark.parametrize("name", REQUEST_NAMES)
def test_every_request_has_one(name: RequestName) -> None:
    printed = CliRunner().invoke(app, [name], catch_exceptions=False).stdout
    assert json.loads(printed) == request_spec(name).model_json_schema()


def test_help_and_refusal_name_them_all() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert "search, sweep, distillation, task-distillation, evaluation or pipeline." in shown
    said = "unknown kind of request 'serch', did you mean 'search'\\? Known: distillation, eval"
    with pytest.raises(SpecError, match=said):
        CliRunner().invoke(app, ["serch"], catch_exceptions=False)
