"""The strategies of searches: each with its own options, and requests from before they had any."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import kdnas.plugins
from kdnas.errors import SpecError
from kdnas.specs.load import load_preset, merge
from kdnas.specs.search import ControllerSpec, SearchSpec
from kdnas.specs.strategies import (
    STRATEGIES,
    ControllerStrategySpec,
    EvolutionSpec,
    GaussianProcessSpec,
    NSGA2Spec,
    OwnStrategySpec,
    RandomSpec,
    StrategySpec,
)

OLD: dict[str, Any] = {
    "strategy": "controller",
    "variant": "once",
    "episodes": 4,
    "candidates": 4,
    "epsilon_start": 1.0,
    "epsilon_min": 0.05,
    "epsilon_decay": "spread",
}
"""As searches were stored before strategies had options of their own."""


def read(controller: object) -> ControllerSpec:
    return SearchSpec.read({"controller": controller}, "request").controller


def strategy(asked: object) -> StrategySpec:
    return read({"strategy": asked}).strategy


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "my_own_package:OwnStrategy", "kdnas.strategies")
    monkeypatch.setattr(kdnas.plugins, "entry_points", lambda group: [point])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        *((name, kind()) for name, kind in STRATEGIES.items()),
        ({}, ControllerStrategySpec()),
        ({"confidence": 2}, ControllerStrategySpec(confidence=2.0)),
        (
            {"name": "gp", "acquisition": "thompson"},
            GaussianProcessSpec(acquisition="thompson", confidence=1.0),
        ),
        ({"name": "nsga2", "population": 8}, NSGA2Spec(population=8)),
        ({"name": "evolution", "sample": 20}, EvolutionSpec(population=20, sample=20)),
        ("my.package:Class", OwnStrategySpec(name="my.package:Class")),
        (
            {"name": "a:B", "options": {"depth": [1, 2]}},
            OwnStrategySpec(name="a:B", options={"depth": [1, 2]}),
        ),
    ],
)
def test_a_strategy_is_a_name_or_a_name_with_options(asked: object, expected: StrategySpec) -> None:
    found = strategy(asked)
    assert found == expected
    assert type(found) is type(expected)
    stored = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert strategy(stored) == found
    assert set(stored) == set(type(found).model_fields)  # every default is written out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("gpp", "controller.strategy: unknown name 'gpp', did you mean 'gp'?"),
        (5, "controller.strategy: give one of controller, evolution,"),
        (
            {"name": "gp", "confidnce": 1},
            "'controller.strategy.confidnce', did you mean 'controller.strategy.confidence'?",
        ),
        ({"name": "gp", "population": 9}, "population is for nsga2 and evolution, not for gp"),
        (
            {"name": "gp", "confidence": -1},
            "controller.strategy.confidence: give a number from 0 to 1000000",
        ),
        (
            {"name": "gp", "acquisition": "tompson"},
            "give one of upper-confidence, thompson, not 'tompson'",
        ),
        (
            {"name": "nsga2", "population": 1},
            "controller.strategy.population: give a whole number from 2",
        ),
        (
            {"name": "evolution", "sample": 30},
            "controller.strategy: sample 30 is more than the population 20 that it is drawn from",
        ),
        (
            {"epsilon_start": 0.5},
            "epsilon_start 0.5 is for variants paper and once, not for learning; leave it out",
        ),
        (
            {"variant": "once", "confidence": 2},
            "confidence 2.0 is for variant learning, not for once; leave it out",
        ),
        ({"name": "gp", "options": {}}, "options is for package.module:Class, not for gp"),
        ({"name": "a:B", "optins": {}}, "did you mean 'controller.strategy.options'?"),
    ],
)
def test_what_a_strategy_cannot_be_told_is_one_sentence(asked: object, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        strategy(asked)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text


@pytest.mark.usefixtures("installed")
def test_a_registered_strategy_goes_by_its_name() -> None:
    found = strategy({"name": "mine", "options": {"depth": 3}})
    assert isinstance(found, OwnStrategySpec)
    assert found.options == {"depth": 3}
    assert strategy(found.to_json()) == found
    with pytest.raises(SpecError, match=r"did you mean 'mine'\?.*controller, .*mine, .*random"):
        strategy("mines")
    with pytest.raises(SpecError, match=r"'controller\.strategy\.optins', did you mean"):
        strategy({"name": "mine", "optins": {}})
    choices = json.dumps(ControllerSpec.model_json_schema())
    assert '"const": "mine"' in choices


def test_a_plugin_may_build_on_one_of_ours() -> None:
    own = OwnStrategySpec(name="a:B", options={"population": 9})
    assert own.read_as(EvolutionSpec) == EvolutionSpec(population=9)
    assert EvolutionSpec(sample=3).read_as(EvolutionSpec) == EvolutionSpec(sample=3)
    with pytest.raises(SpecError, match=r"unknown key 'population'"):
        own.read_as(GaussianProcessSpec)
    with pytest.raises(SpecError, match="strategy 'random' has no options of 'gp'"):
        RandomSpec().read_as(GaussianProcessSpec)


@pytest.mark.parametrize("variant", ["once", "paper"])
def test_a_stored_controller_is_read_with_its_options(variant: str) -> None:
    found = read({**OLD, "variant": variant})
    options = {"name": "controller", "variant": variant, "epsilon_decay": "spread"}
    assert found == read({"strategy": options, "episodes": 4, "candidates": 4})
    assert read(found.to_json()) == found


@pytest.mark.parametrize("name", ["random", "gp", "my.package:Class"])
@pytest.mark.parametrize(
    "beside", [{}, {"epsilon_decay": 0.05}, {"variant": "paper", "epsilon_decay": 0.05}]
)
def test_what_was_written_out_beside_another_strategy_is_left_out(
    name: str, beside: dict[str, Any]
) -> None:
    """Presets wrote theirs, whichever strategy was asked for."""
    assert read({**OLD, "strategy": name, **beside}).strategy == strategy(name)


@pytest.mark.parametrize(
    ("controller", "words"),
    [
        ({**OLD, "strategy": "gp", "epsilon_start": 0.5}, "epsilon_start 0.5 is for controller, "),
        ({"strategy": "random", "variant": "none"}, "variant 'none' is for controller, not for"),
        ({"strategy": {"variant": "once"}, "variant": "paper"}, "variant stands both in strategy"),
        ({**OLD, "variant": "onse"}, "give one of learning, paper, once, not 'onse'; did you"),
        ({**OLD, "strategy": "contoller"}, "unknown name 'contoller', did you mean 'controller'?"),
    ],
)
def test_what_was_asked_for_beside_a_strategy_is_not_lost(
    controller: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read(controller)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{"strategy": "gp"}], GaussianProcessSpec()),
        (
            [{"strategy": {"name": "gp", "confidence": 2}}, {"strategy": {"name": "random"}}],
            "random",
        ),
        (
            [{"strategy": {"name": "gp", "confidence": 2}}, {"strategy": "gp"}],
            GaussianProcessSpec(confidence=2.0),
        ),
        (
            [{"strategy": "gp"}, {"strategy": {"acquisition": "thompson"}}],
            GaussianProcessSpec(acquisition="thompson"),
        ),
        ([{"strategy": "controller", "variant": "once"}], ControllerStrategySpec(variant="once")),
        (
            [{"strategy": "controller", "variant": "once"}, {"epsilon_decay": "spread"}],
            ControllerStrategySpec(variant="once", epsilon_decay="spread"),
        ),
        ([{"variant": "once", "epsilon_start": 0.5}, {"strategy": {"name": "tpe"}}], "tpe"),
        ([{**OLD, "strategy": "gp"}, {"strategy": "random"}], "random"),
        ([OLD], ControllerStrategySpec(variant="once", epsilon_decay="spread")),
    ],
)
@pytest.mark.parametrize("preset", ["cluster", "laptop", "paper"])
def test_options_are_laid_over_a_preset(
    preset: str, layers: list[dict[str, Any]], expected: object
) -> None:
    """Those of the same strategy are kept, whichever way they were written."""
    merged = merge(load_preset(preset, "search"), *({"controller": layer} for layer in layers))
    found = SearchSpec.read(merged, "merged").controller.strategy
    assert found == (strategy(expected) if isinstance(expected, str) else expected)


def test_an_option_of_the_controller_is_refused_beside_a_presets_other_strategy() -> None:
    merged = merge(load_preset("laptop", "search"), {"controller": {"variant": "paper"}})
    with pytest.raises(SpecError, match="variant is for controller, not for gp; leave it out"):
        SearchSpec.read(merged, "merged")
