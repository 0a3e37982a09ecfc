from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from kdnas.errors import SpecError
from kdnas.objectives.registry import build_stages
from kdnas.specs.distillation import DistillationSpec
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.objectives import (
    OBJECTIVES,
    DirectMiniLMSpec,
    DistilBertSpec,
    HiddenStateSpec,
    MiniLMv2Spec,
    MultiStageSpec,
    OutputSpec,
)
from kdnas.testing.objective_spec_contract import ObjectiveSpecContract

GIVEN: list[tuple[type, dict[str, Any]]] = [
    (HiddenStateSpec, {"name": "hs", "mapping": "uniform_last"}),
    (HiddenStateSpec, {"name": "hs", "mapping": {1: [2, 4], 2: [6]}, "last_weight": 3.0}),
    (MiniLMv2Spec, {"name": "minilmv2", "relations": ["qk", "vv"], "teacher_layer": 5}),
    (MiniLMv2Spec, {"name": "minilmv2", "relations": {"qq": 1.0, "vv": 0.5}}),
    (DirectMiniLMSpec, {"name": "direct-minilm", "orthogonal": True, "relation_heads": 6}),
    (OutputSpec, {"name": "od", "temperature": 2.0, "positions": "all", "fit_lm_head": 100}),
    (DistilBertSpec, {"name": "distilbert", "weights": [1.0, 0.0, 3.0]}),
    (MultiStageSpec, {"name": "hs+od", "hs_share": 0.5, "mapping": "last", "temperature": 3.0}),
]


@pytest.fixture(params=OBJECTIVES)
def _of_each(request: pytest.FixtureRequest) -> None:
    """Whatever is among the objectives of kdnas is held to the contract."""
    request.cls.given = {"name": request.param}


@pytest.mark.usefixtures("_of_each")
class TestEach(ObjectiveSpecContract):
    pass


@pytest.mark.parametrize(("kind", "given"), GIVEN)
def test_round_trip_through_json(kind: type, given: dict[str, Any]) -> None:
    spec = objective_spec(given)
    assert type(spec) is kind
    stored = json.loads(json.dumps(spec.to_json(), allow_nan=False))
    assert objective_spec(stored) == spec
    assert objective_spec(stored).to_json() == stored
    assert set(stored) == set(kind.model_fields)  # every default is written out
    written = json.loads(json.dumps(given))  # keys of a mapping become text
    assert {key: stored[key] for key in given} == written


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_bare_name_is_the_objective_with_its_defaults(name: str) -> None:
    spec = objective_spec(name)
    assert type(spec) is OBJECTIVES[name]
    assert spec == objective_spec({"name": name})
    assert spec.name == name


def test_without_a_name_it_is_hidden_states() -> None:
    assert objective_spec({"mapping": "last"}) == HiddenStateSpec(mapping="last")
    assert objective_spec({}) == HiddenStateSpec()


def test_a_spec_is_taken_as_it_is() -> None:
    for _, given in GIVEN:
        spec = objective_spec(given)
        assert objective_spec(spec) is spec


def test_relations_have_weights() -> None:
    assert MiniLMv2Spec().weighted_relations() == (("qq", 1.0), ("kk", 1.0), ("vv", 1.0))
    given = objective_spec({"name": "minilmv2", "relations": {"qk": 2, "vv": 0.5}})
    assert isinstance(given, MiniLMv2Spec)
    assert given.weighted_relations() == (("qk", 2.0), ("vv", 0.5))


@pytest.mark.parametrize("name", ["hs", "hs+od"])
def test_layers_weigh_alike_as_published(name: str) -> None:
    plain = objective_spec({"name": name})
    assert plain == objective_spec({"name": name, "last_weight": 1})
    heavy = objective_spec({"name": name, "last_weight": 10})
    assert heavy.to_json() == {**plain.to_json(), "last_weight": 10.0}


@pytest.mark.parametrize(("layer", "known"), [("auto", None), ("search", None), (4, 4)])
def test_a_teacher_layer_is_known_or_found(layer: object, known: int | None) -> None:
    spec = objective_spec({"name": "direct-minilm", "teacher_layer": layer})
    assert isinstance(spec, DirectMiniLMSpec)
    assert spec.known_teacher_layer == known


def test_published_defaults() -> None:
    """Science §3: one temperature for OD; DistilBERT as in Udagawa App. E; 7 : 3 of two stages."""
    assert (OutputSpec().temperature, OutputSpec().positions) == (1.0, "masked")
    assert (DistilBertSpec().temperature, DistilBertSpec().weights) == (2.0, (1.0, 5.0, 2.0))
    assert (MultiStageSpec().hs_share, MultiStageSpec().od_rate) == (0.7, 0.6)
    assert HiddenStateSpec().mapping == "kdnas"


@pytest.mark.parametrize(
    "given",
    [
        {"name": "hs", "mapping": "uniformm"},
        {"name": "hs", "temperature": 1.0},
        {"name": "hs", "last_weight": 0},
        {"name": "minilmv2", "last_weight": 2},
        {"name": "minilmv2", "mapping": "last"},
        {"name": "od", "orthogonal": True},
        {"name": "none"},
        ["hs"],
        None,
    ],
)
def test_what_an_objective_cannot_be_told_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        objective_spec(given)


@pytest.mark.parametrize(("kind", "given"), GIVEN)
def test_every_spec_makes_stages_that_say_what_it_says(kind: type, given: dict[str, Any]) -> None:
    stages = build_stages(objective_spec(given))
    assert "+".join(stage.objective.name for stage in stages) == given["name"]
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    told = {
        key: given[key] for key in ("temperature", "orthogonal", "relation_heads") if key in given
    }
    for key, value in told.items():
        assert getattr(stages[-1].objective, key) == value


def test_two_stages_share_steps_and_have_rates_of_their_own() -> None:
    spec = objective_spec({"name": "hs+od", "hs_share": 0.25, "od_rate": 0.5, "mapping": "last"})
    first, second = build_stages(spec)
    assert (first.objective.name, first.share, first.rate) == ("hs", 0.25, 1.0)
    assert (second.objective.name, second.share, second.rate) == ("od", 0.75, 0.5)
    assert not first.objective.masks_tokens
    assert second.objective.masks_tokens


@pytest.mark.parametrize(
    ("objective", "sentence"),
    [
        ({"name": "hs", "relations": ["qq"]}, "relations is for minilmv2, not for hs"),
        ({"fit_lm_head": 5}, "fit_lm_head is for od and distilbert and hs\\+od, not for hs"),
        ({"name": "hs", "mappin": "last"}, "unknown key .*mappin"),
    ],
)
def test_a_key_of_another_objective_is_told_from_one_that_is_misspelt(
    objective: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SpecError, match=sentence):
        DistillationSpec.read({"architecture": "2,2,24,48,gelu", "objective": objective}, "spec")
