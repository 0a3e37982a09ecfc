"""`--strategy-option`: options of the strategy that the command line, a file or a preset names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdnas.cli.options import common
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import request_of
from kdnas.errors import SpecError
from kdnas.settings import Settings
from kdnas.specs.search import SearchSpec
from kdnas.specs.strategies import (
    ControllerStrategySpec,
    EvolutionSpec,
    GaussianProcessSpec,
    OwnStrategySpec,
    StrategySpec,
)


def command(
    strategy: common.Strategy = None, strategy_option: common.StrategyOption = None
) -> dict[str, Any]:
    """A command that says what it was given."""
    return locals()


def asked(
    tmp_path: Path,
    *options: str,
    strategy: str | None = None,
    preset: str | None = None,
    config: Path | None = None,
) -> StrategySpec:
    given = command(strategy=strategy, strategy_option=list(options))
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})
    values = request_of(command, given)
    data = gather("search", values, settings, preset=preset, config=config).data
    return SearchSpec.read(data, "test").controller.strategy


def test_they_are_of_the_strategy_that_is_named(tmp_path: Path) -> None:
    wanted = ("population=30", "sample=7")
    found = asked(tmp_path, *wanted, strategy="evolution")
    assert found == EvolutionSpec(population=30, sample=7)
    paper = ("variant=paper", "epsilon_decay=spread", "epsilon_min=1e-1")
    assert asked(tmp_path, *paper, strategy="controller") == ControllerStrategySpec(
        variant="paper", epsilon_decay="spread", epsilon_min=0.1
    )


def test_else_of_the_presets_or_the_files(tmp_path: Path) -> None:
    thompson = "acquisition = thompson"
    assert asked(tmp_path, thompson) == GaussianProcessSpec(acquisition="thompson")
    assert asked(tmp_path, "epsilon_min=0", preset="paper") == ControllerStrategySpec(
        variant="paper", epsilon_min=0
    )
    config = tmp_path / "search.yaml"
    config.write_text("controller: {strategy: {name: evolution, sample: 3}}\n", "utf-8")
    assert asked(tmp_path, "population=9", config=config) == EvolutionSpec(population=9, sample=3)
    assert asked(tmp_path, strategy="gp", config=config) == GaussianProcessSpec()


def test_those_of_a_class_are_its_own(tmp_path: Path) -> None:
    wanted = ("options.depth=3", "options.rate=.5", "options.deep.kind=a=b", "options.most=inf")
    assert asked(tmp_path, *wanted, strategy="package.module:Class") == OwnStrategySpec(
        name="package.module:Class",
        options={"depth": 3, "rate": 0.5, "deep": {"kind": "a=b"}, "most": "inf"},
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("acquisition", "--strategy-option 'acquisition' is no NAME=VALUE; write one, as"),
        ("=3", "--strategy-option '=3' is no NAME=VALUE"),
        ("name=random", "'name=random' names a strategy; say by --strategy which one"),
        ("acquisition=tomson", "not 'tomson'; did you mean 'thompson'?"),
        ("confidnce=3", "did you mean 'controller.strategy.confidence'?"),
        ("confidence=-2", "controller.strategy.confidence: give a number from 0"),
        ("confidence=nan", "controller.strategy.confidence: give a number from 0"),
        ("population=9", "population is for nsga2 and evolution, not for gp"),
    ],
)
def test_a_wrong_one_is_one_sentence(tmp_path: Path, option: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        asked(tmp_path, option)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
