"""The house is in order: packages, pins, commands, and what no file may say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("kdnas", "controller", "workers", "api")
FOLDERS = (*PACKAGES, "migrations", "tests", "tools", "benchmarks", "docs", ".ci")
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".ini", ".html", ".js", ".css", ".sh", ""}
TARGETS = {
    *("setup", "demo", "test", "test-slow", "compat", "lint", "format", "help", "sbom", "audit"),
}


def text_files() -> Iterator[Path]:
    """All files of the project that people write."""
    yield from (p for p in ROOT.iterdir() if p.is_file() and p.suffix in TEXT)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path


def normalised(requirement: str) -> str:
    """Name of a requirement, without extras and version, as indexes spell it."""
    name = re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def makefile_rules() -> dict[str, str]:
    """Target → its lines, of the targets that have a description."""
    text = (ROOT / "Makefile").read_text("utf-8")
    rules = re.findall(r"^([a-z-]+):[^\n]*## [^\n]+\n((?:\t[^\n]*\n)+)", text, re.MULTILINE)
    return dict(rules)


def test_every_folder_with_modules_is_a_package_with_a_docstring() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    for folder in sorted(folders):
        init = folder / "__init__.py"
        assert init.is_file(), f"{folder.relative_to(ROOT)} has modules and no __init__.py"
        assert ast.get_docstring(ast.parse(init.read_text("utf-8"))), f"{init} has no docstring"


def test_tests_are_no_packages() -> None:
    """A folder called ``api`` with an __init__.py would hide the package of that name."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_pins_are_those_of_the_direct_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {
        normalised(requirement)
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in group
    }
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert {normalised(pin) for pin in pins} == wanted
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)


def test_the_makefile_has_its_targets() -> None:
    assert set(makefile_rules()) == TARGETS


def test_hooks_run_the_commands_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    assert hooks == [line.strip() for line in makefile_rules()["lint"].splitlines()]


def test_ci_can_be_run_and_calls_the_targets() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111 == 0o111
    called = set(re.findall(r"^part [a-z-]+ make ([a-z-]+)$", script.read_text("utf-8"), re.M))
    assert called == {"setup", "lint", "test", "test-slow"}


@pytest.mark.parametrize(("folder", "marker"), [("integration", "slow"), ("browser", "browser")])
def test_no_suite_is_lost(folder: str, marker: str) -> None:
    """CI runs whatever it finds; that it finds nothing of a kind would be no failure there."""
    files = (ROOT / "tests" / folder).glob("test_*.py")
    assert any(f"pytest.mark.{marker}" in path.read_text("utf-8") for path in files)


@pytest.mark.parametrize(
    ("reason", "pattern"),
    [
        ("a path of one developer's machine", r"(?<![\w.}\])])/(?:home|Users|root|work)/\w"),
        (
            "a package index, which is the machine's own choice",
            r"--(?:extra-)?index-url|find-links",
        ),
        ("work left undone", r"\b(?:TODO|FIXME|XXX)\b"),
    ],
)
def test_no_file_mentions(reason: str, pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert not found, f"{reason}: {', '.join(found)}"


WITHOUT_A_READER = (
    *("kdnas/evaluation/data", "kdnas/evaluation/tasks", "kdnas/evaluation/finetuning"),
    *("kdnas/specs", "kdnas/models", "kdnas/taskspecific", "kdnas/db", "workers"),
)
"""Packages that do the work of commands and of the service alike."""


def test_sentences_for_all_name_entries_of_requests_and_not_options_of_commands() -> None:
    """The command line adds its option to an entry between back quotes (``with_options``)."""
    found = []
    for folder in WITHOUT_A_READER:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "card.py":
                continue  # cards hold whole commands
            tree = ast.parse(path.read_text("utf-8"))
            docstrings = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
            found += [
                f"{path.relative_to(ROOT)}:{one.lineno}: {one.value.strip()}"
                for one in ast.walk(tree)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
                if id(one) not in docstrings
                if re.search(r"(?<![\w-])--[a-z]", one.value)
                if not re.search(r"\b(?:kdnas|ray) [a-z-]+ ", one.value)
            ]
    assert not found, "\n".join(found)


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
