"""What hostile files and requests come to is told as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kdnas.testing.hostile_files import COMMANDS, FILES, command, lay
from kdnas.testing.hostile_specs import SPECS, HostileSpec


def test_there_are_a_hundred_files_and_sixty_requests() -> None:
    assert len({(one.family, one.name) for one in FILES}) == len(FILES) >= 100
    assert len({(one.kind, one.place, str(one.value)) for one in SPECS}) == len(SPECS) >= 60
    assert {one.family for one in FILES} == COMMANDS.keys()


def test_a_file_is_made_in_the_place_of_a_sound_one(tmp_path: Path) -> None:
    (tmp_path / "sound").mkdir()
    (tmp_path / "sound" / "config.json").write_text('{"hidden_size": 48, "vocab_size": 9}')
    (file,) = [one for one in FILES if one.name == "hidden size missing"]
    lay(file, tmp_path / "case", tmp_path / "sound")
    assert json.loads((tmp_path / "case" / "config.json").read_text()) == {"vocab_size": 9}
    assert "case-student" in command(file, "case")


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        (HostileSpec("search", "a.b", 1), b'{"a": {"b": 1, "c": 2}}'),
        (HostileSpec("search", "x.y", [1]), b'{"a": {"c": 2}, "x": {"y": [1]}}'),
        (HostileSpec("search", "", "[["), b"[["),
    ],
)
def test_a_request_is_a_sound_one_but_for_a_place(spec: HostileSpec, body: bytes) -> None:
    sound = {"a": {"c": 2}}
    found = spec.body(sound)
    assert found == body if not spec.place else json.loads(found) == json.loads(body)
    assert sound == {"a": {"c": 2}}
    assert len(spec.name) < 100


def test_the_page_names_what_is_amiss(load: Callable[[str], ModuleType]) -> None:
    hostile = load("hostile")

    def outcome(name: str, code: int, **other: Any) -> Any:
        seen = {"seconds": 1.0, "mib": 100.0, "said": "said", "broken": False, **other}
        return hostile.Outcome("corpus", name, "command", code, **seen)

    told = hostile.page(
        [
            outcome(hostile.SOUND, 0),
            outcome("a", 2),
            outcome("b", 1, mib=1500.0),
            outcome("c", 0, seconds=31.0),
            outcome("d", 2, broken=True),
        ]
    )
    assert "| corpus, by command | 4 | 1 | 2 | 1 | 31.0 | 1400 | 3 |" in told
    assert "- corpus, b (command): took 1400 MiB more: said" in told
    assert "- corpus, c (command): took 31 s: said" in told
    assert "- corpus, d (command): broken: said" in told
    assert "Nothing was amiss." in hostile.page([outcome(hostile.SOUND, 0), outcome("a", 2)])


@pytest.mark.slow
def test_none_of_the_quick_ones_is_amiss(load: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Of each way in some: folders of students, files with requests, and the service."""
    hostile = load("hostile")
    only = re.compile("^(student|request|evaluation|pipeline)/|glob|hole of 4 GB")
    outcomes = list(hostile.Ground(tmp_path).outcomes(only))
    assert len(outcomes) > 40
    amiss = {
        f"{one.family}/{one.name}": (why, one.said)
        for one in outcomes
        if (why := one.amiss(hostile.sound_of(outcomes, one)))
    }
    assert amiss == {}
