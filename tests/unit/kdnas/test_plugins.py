from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import kdnas.plugins
from kdnas.errors import PluginError, SpecError, StoreError
from kdnas.plugins import build_named, call_named, import_named, installed


def test_what_a_group_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def points(group: str) -> list[EntryPoint]:
        asked.append(group)
        return [EntryPoint("mine", "json:JSONDecoder", group)]

    monkeypatch.setattr(kdnas.plugins, "entry_points", points)
    assert installed("kdnas.things") == {"mine": "json:JSONDecoder"}
    assert asked == ["kdnas.things"]


def test_a_name_is_imported() -> None:
    assert import_named("thing", "kdnas.plugins:installed") is installed


@pytest.mark.parametrize("name", ["no_such_module:Thing", "json:Nothing", "json", ":Thing"])
def test_what_cannot_be_imported_is_explained(name: str) -> None:
    with pytest.raises(SpecError, match=rf"^thing '{name}' cannot be imported: .*write package"):
        import_named("thing", name)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise ValueError('a wrong number')", "ValueError: a wrong number"),
        ("raise RuntimeError('no card here')", "RuntimeError: no card here"),
        ("raise SystemExit", "SystemExit"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_raises_something_is_explained(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_somebody.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    start = "thing 'of_somebody:Thing' cannot be imported: of_somebody raised "
    with pytest.raises(SpecError, match=rf"^{start}{said}.*; mend it there$"):
        import_named("thing", "of_somebody:Thing")


def test_what_cannot_be_made_is_explained() -> None:
    def made(number: int) -> int:
        if number == 3:
            raise StoreError("the disk is full")
        if number == 4:
            raise SystemExit
        if number == 5:
            raise RuntimeError("no\n\n  card\nhere")
        return 6 // number

    assert build_named("thing", "a:made", made, 2) == 3
    said = "thing 'a:made' cannot be made: it raised ZeroDivisionError: .*; mend it there"
    with pytest.raises(SpecError, match=said):
        build_named("thing", "a:made", made, 0)
    with pytest.raises(SpecError, match="it raised SystemExit; mend it there"):
        build_named("thing", "a:made", made, 4)
    with pytest.raises(SpecError, match=r"it raised RuntimeError: no card here; mend it there$"):
        build_named("thing", "a:made", made, 5)
    with pytest.raises(StoreError, match="the disk is full"):
        build_named("thing", "a:made", made, 3)


def test_what_fails_at_its_work_is_explained() -> None:
    class Made:
        number = 7

        def half(self, number: int) -> float:
            if number == 3:
                raise StoreError("the disk is full")
            if number == 4:
                raise SystemExit
            return 6 / number

    assert call_named("thing", "a:Made", Made(), "half", 2) == 3
    said = "^thing 'a:Made' failed: its half raised ZeroDivisionError: .*; mend it there$"
    with pytest.raises(PluginError, match=said) as raised:
        call_named("thing", "a:Made", Made(), "half", 0)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(PluginError, match="its half raised SystemExit; mend it there"):
        call_named("thing", "a:Made", Made(), "half", 4)
    with pytest.raises(PluginError, match="its number raised TypeError: 'int' object is not"):
        call_named("thing", "a:Made", Made(), "number")
    with pytest.raises(StoreError, match="the disk is full"):
        call_named("thing", "a:Made", Made(), "half", 3)
