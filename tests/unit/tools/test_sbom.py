"""What kdnas stands on: each package with its pin and a licence that the project's own allows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

ALLOWED = re.compile(
    r"apache|bsd|mit\b|mit-cmu|isc\b|psf|python|mpl|mozilla|unlicense|zlib|cc0|bsl|cnri|hpnd|lgpl",
    re.I,
)
"""Permissive ones, and those that ask for the source of themselves alone."""
REFUSED = re.compile(r"(?<![L])A?GPL|affero|commercial|proprietary|non-?commercial|SSPL|BUSL", re.I)


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    subprocess.run([sys.executable, ROOT / "tools" / "sbom.py", path], check=True)
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def licences(component: dict[str, Any]) -> list[str]:
    return [
        entry.get("expression") or entry["license"].get("id") or entry["license"]["name"]
        for entry in component.get("licenses", [])
    ]


@pytest.mark.slow
def test_every_package_has_a_licence_that_is_allowed(bill: dict[str, Any]) -> None:
    told = {component["name"]: licences(component) for component in bill["components"]}
    assert len(told) > 90
    refused = {
        name: each
        for name, each in told.items()
        if not any(ALLOWED.search(one) for one in each) or any(REFUSED.search(one) for one in each)
    }
    assert refused == {}


def test_what_is_installed_is_what_is_pinned() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    )
    extra = {"textbrewer"}  # of benchmarks alone
    there = {name: version(name).split("+")[0] for name in pins if name not in extra}
    assert there == {name: pin for name, pin in pins.items() if name not in extra}


def test_nothing_is_installed_that_makes_every_start_of_ray_seconds_slower() -> None:
    # jsonschema, which Ray loads, loads this one wherever it is, and it builds a grammar at that.
    assert find_spec("rfc3987_syntax") is None
