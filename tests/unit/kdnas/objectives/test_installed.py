"""An objective that an installed package brings along, from its entry point to the model card."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.main import get_command

import kdnas.plugins
from kdnas.architecture import Architecture
from kdnas.cli.main import app
from kdnas.distill.checkpoint import Checkpoints
from kdnas.distill.export import export_student
from kdnas.distill.full import FullDistillation, load_distilled
from kdnas.distill.group import MiniKD
from kdnas.distill.model_card import CardFacts
from kdnas.distill.numerics import num_threads
from kdnas.errors import SpecError
from kdnas.objectives.base import Objective
from kdnas.objectives.registry import build_stages
from kdnas.records import MiniKDRequest, MiniKDResult
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.load import load_preset
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.objective_registry import (
    find_objective,
    objective_names,
    objective_spec,
    objectives,
)
from kdnas.specs.objectives import OBJECTIVES
from kdnas.specs.search import SearchSpec
from kdnas.testing.objective_contract import ObjectiveContract
from kdnas.testing.objective_spec_contract import ObjectiveSpecContract
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

PACKAGES = Path(__file__).parents[3] / "data" / "installed"
STUDENT = "2,4,24,48,gelu"


class Unfinished(ObjectiveSpec):
    """An entry that says nothing but its name."""

    name: Literal["poor"] = "poor"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package's modules and its entry point lie where Python looks for packages."""
    monkeypatch.syspath_prepend(str(PACKAGES))
    yield
    for name in ("kdnas_channels_spec", "kdnas_channels_training"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


class TestItsTraining(ObjectiveContract):
    def make(self) -> Objective:
        return build_stages(objective_spec("channels"))[0].objective


class TestItsEntry(ObjectiveSpecContract):
    given = {"name": "channels", "channels": 5}  # noqa: RUF012


def test_it_is_asked_for_as_ours_are() -> None:
    asked = {"architecture": STUDENT, "objective": {"name": "channels", "channels": 4}}
    spec = DistillationSpec.read(asked, "spec")
    assert spec.objective.to_json() == asked["objective"]
    assert DistillationSpec.read(spec.to_json(), "stored") == spec
    assert SearchSpec.read({"objective": "channels"}, "spec").objective.name == "channels"
    for wrong, sentence in (
        ({"channel": 4}, "'objective.channel', did you mean 'objective.channels'"),
        ({"channels": 0}, "objective.channels: give a whole number of at least 1"),
        ({"relations": ["qq"]}, "relations is for minilmv2, not for channels"),
    ):
        with pytest.raises(SpecError, match=sentence):
            DistillationSpec.read({**asked, "objective": {"name": "channels", **wrong}}, "spec")
    with pytest.raises(SpecError, match="did you mean 'channels'"):
        DistillationSpec.read({**asked, "objective": "chanels"}, "spec")


def test_forms_help_and_presets_speak_of_it() -> None:
    schema = SearchSpec.model_json_schema()
    entry = schema["$defs"]["ChannelsSpec"]
    assert entry["title"] == "some channels of the last hidden state"
    assert entry["properties"]["channels"]["title"] == "Number of channels"
    assert {"$ref": "#/$defs/ChannelsSpec"} in schema["properties"]["objective"]["oneOf"]
    command: Any = get_command(app)
    search = command.commands["search"]
    asked = search.make_context("search", [], resilient_parsing=True, terminal_width=1000)
    ours = {name: find_objective(name) for name in objective_names() if name != "channels"}
    with pytest.MonkeyPatch.context() as patch:  # who asked before it was installed asks again
        patch.setattr("kdnas.specs.objective_registry.objectives", lambda: ours)
        assert "channels (" not in search.get_help(asked)
    shown = " ".join(search.get_help(asked).split())
    assert "channels (some channels of the last hidden state)" in shown
    told = load_preset("laptop", "search", "channels")["objective"]
    assert told == {"name": "channels", "channels": 16}


def test_it_distils_a_student_and_the_card_tells_of_it(lab: TinyLab, tmp_path: Path) -> None:
    spec = lab.distillation(STUDENT, {"name": "channels", "channels": 4}, steps=40)
    places = Checkpoints(str(tmp_path / "checkpoints"))
    FullDistillation(spec, lab.teacher, lab.corpus, lab.store, places, "cpu", "float32").run()
    found = load_distilled(spec, lab.teacher, places)
    assert found is not None
    assert found.finished
    assert found.best.losses.relative < 0.9 * found.held_out[0].losses.relative
    facts = CardFacts("d-1", lab.corpus.fingerprint, 270, "float32", "cpu", None)
    export_student(found, spec, lab.teacher, facts, tmp_path / "student")
    card = (tmp_path / "student" / "README.md").read_text("utf-8")
    assert "distilled by learning the first 4 channels of its teacher's last layer." in card
    assert "Relative loss: 0 is a student that knows these channels, 1" in card
    assert "| objective | channels: channels `4` |" in card
    request = json.loads((tmp_path / "student" / "distillation.json").read_text("utf-8"))
    assert request["objective"] == {"name": "channels", "channels": 4}


def test_it_ranks_the_students_of_a_search(lab: TinyLab) -> None:
    engine = MiniKD(lab.context(objective="channels"), lab.teacher, lab.corpus, lab.store, "cpu")
    with num_threads(1):
        done = list(engine.train([MiniKDRequest("one", Architecture.parse(STUDENT))]))
    (result,) = [item for item in done if isinstance(item, MiniKDResult)]
    assert result.losses is not None
    assert 0 < result.losses.relative < 1.5


def test_its_entry_is_read_without_torch_and_no_other_is_looked_for() -> None:
    code = (
        "import sys; from kdnas.specs.objective_registry import objective_spec;"
        "objective_spec('hs'); print('kdnas_channels_spec' in sys.modules);"
        "objective_spec('channels'); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{PACKAGES}:{Path(kdnas.plugins.__file__).parents[1]}"},
    )
    assert done.stdout.split() == ["False", "False"]


def registered(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Let a package register something else under a name."""
    module = import_module("kdnas_channels_spec")
    monkeypatch.setattr(module, "Registered", value, raising=False)
    known = {"channels": "kdnas_channels_spec:ChannelsSpec", name: "kdnas_channels_spec:Registered"}
    monkeypatch.setattr("kdnas.specs.objective_registry.installed", lambda group: known)


def test_a_name_of_ours_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, "hs", object())
    assert find_objective("hs") is OBJECTIVES["hs"]
    assert objective_names() == [*OBJECTIVES, "channels"]


def test_what_is_no_objective_is_refused_by_name_and_left_out_of_lists(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spec = find_objective("channels")
    for value, sentence in (
        (7, "objective 'poor' is registered as 7, which is no class that inherits"),
        (spec, "objective 'poor' calls itself 'channels'; give its field name the default 'poor'"),
        (Unfinished, "objective 'poor' lacks called, implementation, words; see"),
    ):
        registered(monkeypatch, "poor", value)
        with pytest.raises(SpecError, match=sentence):
            find_objective("poor")
        with pytest.raises(SpecError, match=f"objective: {sentence}"):
            SearchSpec.read({"objective": "poor"}, "spec")
        caplog.clear()
        assert list(objectives()) == [*OBJECTIVES, "channels"]
        assert sentence.split(";")[0] in caplog.text
    monkeypatch.delattr("kdnas_channels_spec.Registered")
    with pytest.raises(SpecError, match="'kdnas_channels_spec:Registered' cannot be imported"):
        find_objective("poor")


def test_what_makes_no_stages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = objective_spec("channels")
    monkeypatch.setattr("kdnas_channels_training.stages", lambda spec: [])
    with pytest.raises(SpecError, match=r"'kdnas_channels_training:stages', which gave \[\]"):
        build_stages(spec)
    monkeypatch.setattr(type(spec), "implementation", "kdnas_channels_training:nothing")
    with pytest.raises(SpecError, match="objective 'kdnas_channels_training:nothing' cannot be"):
        build_stages(spec)
