from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

import kdnas.plugins
from kdnas.errors import SpecError
from kdnas.plugins import import_named, installed


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
