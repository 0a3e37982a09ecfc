"""No part of the program knows an objective: not its name, and not its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path

import pytest

from kdnas.specs.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
CODE = ("kdnas", "controller", "workers", "api")
ENTRIES = ROOT / "kdnas" / "specs" / "objectives.py"
OTHERWISE = {
    "kdnas/models/families.py": {"distilbert"},  # the family of encoders
}
"""What a file means by a word that is an objective's name, too."""

OWN_MODULES = {
    ROOT / f"{kind.implementation.partition(':')[0].replace('.', '/')}.py"
    for kind in OBJECTIVES.values()
}
NAMED = re.compile(
    r"(?<![\w+-])(" + "|".join(re.escape(n) for n in sorted(OBJECTIVES, key=len, reverse=True))
    + r")(?![\w+-])"
)  # fmt: skip


def files(*suffixes: str) -> Iterator[Path]:
    """What is shipped, but for tests' helpers and other people's tables."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            if path.suffix in suffixes and not {"testing", "published_tables"} & set(parts):
                yield path


def classes_of_objectives() -> set[str]:
    """Names of the entries, and of the classes that their modules define."""
    found = {kind.__name__ for kind in OBJECTIVES.values()}
    for kind in OBJECTIVES.values():
        module = import_module(kind.implementation.partition(":")[0])
        own = getmembers(module, isclass)
        found |= {name for name, one in own if one.__module__ == module.__name__}
    return found


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """All text of a module, but for its docstrings and those of attributes."""
    told = {
        node.value
        for parent in ast.walk(tree)
        for node in ast.iter_child_nodes(parent)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
            yield node.lineno, node.value


def names_in(path: Path) -> list[str]:
    """Objectives that a module speaks of by name, as ``line: name``."""
    tree = ast.parse(path.read_text("utf-8"))
    other = OTHERWISE.get(str(path.relative_to(ROOT)), set())
    return [
        f"{line}: {match[1]}"
        for line, text in texts(tree)
        for match in NAMED.finditer(text)
        if match[1] not in other
    ]


def test_this_test_finds_them() -> None:
    line = 'x = 1 if spec.name in ("hs", "od") else f"choose hs+od or {x}, minilmv2-like ods"'
    found = [match[1] for _, text in texts(ast.parse(line)) for match in NAMED.finditer(text)]
    assert sorted(found) == ["hs", "hs+od", "od"]
    assert {"HiddenStateSpec", "DistilBertHead", "OutputDistribution"} <= classes_of_objectives()
    assert len(OWN_MODULES) == len(OBJECTIVES)
    assert all(path.is_file() for path in OWN_MODULES)


def test_no_text_of_the_program_names_an_objective() -> None:
    """Neither a comparison nor a message nor help; each objective's own module may name itself."""
    found = {
        str(path.relative_to(ROOT)): names
        for path in files(".py")
        if path not in {ENTRIES, *OWN_MODULES} and (names := names_in(path))
    }
    assert found == {}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_objective_names_another(name: str) -> None:
    module = OBJECTIVES[name].implementation.partition(":")[0]
    path = ROOT / f"{module.replace('.', '/')}.py"
    assert {found.partition(": ")[2] for found in names_in(path)} <= {name}


def test_no_module_asks_for_an_objectives_class() -> None:
    """Only their own modules use them, where one is made of others."""
    theirs = classes_of_objectives()
    found = []
    for path in files(".py"):
        if path in {ENTRIES, *OWN_MODULES}:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = getattr(node, "id", None) or getattr(node, "attr", None)
            if name in theirs:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
            if isinstance(node, ast.ImportFrom):
                imported = {alias.name for alias in node.names} & theirs
                found += [f"{path.relative_to(ROOT)}:{node.lineno}: {n}" for n in sorted(imported)]
    assert found == []


def test_no_page_script_or_preset_names_an_objective() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[1]}"
        for path in files(".js", ".html", ".yaml", ".yml", ".css")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (match := NAMED.search(re.sub(r"(^|\s)(#|//).*|^\s*/?\*.*", "", line)))
    ]
    assert found == []
