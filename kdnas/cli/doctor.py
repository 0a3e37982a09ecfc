"""``kdnas doctor``: what is amiss with this installation, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kdnas.cli.options import common
from kdnas.cli.tables.answers import answer
from kdnas.cli.tables.formats import as_text
from kdnas.settings import Settings

_SIGNS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(
    host: Annotated[str, typer.Option(help="Address that the service is to listen on.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port.")] = 8000,
    as_json: common.Json = False,
) -> None:
    """Check database, Ray, devices, disk, data roots, tokens and port, and say what to fix.

    Ends with exit code 1 if anything fails; a warning is no failure.
    """
    from api.diagnosis import diagnose

    findings = diagnose(Settings.from_environment(), host, port)
    rows = [(_SIGNS[one.state], one.subject, one.text) for one in findings]
    answer([asdict(one) for one in findings], as_json, [as_text(rows[0], rows[1:])])
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)
