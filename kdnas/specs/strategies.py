"""The strategies of searches, told apart by ``name``: one class each, with its own options."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import Field, create_model, model_validator

from kdnas.errors import SpecError
from kdnas.plugins import installed
from kdnas.specs.named import Family, NamedSpec
from kdnas.specs.ranges import Confidence, Population, Share

ENTRY_POINT_GROUP: Final = "kdnas.strategies"

Kind = TypeVar("Kind", bound="StrategySpec")


class StrategySpec(NamedSpec):
    """Who proposes candidates. As the type of a field it stands for all strategies, by ``name``."""

    @classmethod
    def family(cls) -> Family:
        """All strategies."""
        return Family("strategy", DEFAULT_STRATEGY, strategy_names, _find, _kinds)

    def read_as(self, kind: type[Kind]) -> Kind:
        """The options of one of ours, for who builds it.

        Raises:
            SpecError: these are those of another one.
        """
        if isinstance(self, kind):
            return self
        raise SpecError(f"strategy {self.name!r} has no options of {kind.tag()!r}; choose that one")


class ControllerStrategySpec(StrategySpec):
    """The feedback controller."""

    called: ClassVar[str] = "LSTMs that learn from what was trained"

    name: Literal["controller"] = "controller"
    variant: Literal["learning", "paper", "once"] = Field(
        "learning",
        description="learning predicts the loss from all that was trained; paper is the published "
        "one, which predicts rewards from the last episode, and may propose a state again (from "
        "the look-up table, at no cost); once is the same but never does.",
    )
    confidence: Confidence = Field(
        1.0, description="Of variant learning: by how many standard deviations a loss may be lower."
    )
    epsilon_start: Share = Field(
        1.0,
        title="First ε",
        description="Of paper and once: share of random picks in episode 1.",
    )
    epsilon_min: Share = Field(
        0.05, title="Smallest ε", description="Of paper and once: the share never falls below it."
    )
    epsilon_decay: Share | Literal["spread"] = Field(
        0.05,
        title="Decay of ε",
        description="Of paper and once: what the share loses an episode, or spread to reach the "
        "smallest in the last.",
    )

    @model_validator(mode="after")
    def _fit_the_variant(self) -> Self:
        learns = self.variant == "learning"
        foreign = ("epsilon_start", "epsilon_min", "epsilon_decay") if learns else ("confidence",)
        for key in foreign:
            given = getattr(self, key)
            if given != type(self).model_fields[key].default:
                theirs = "variants paper and once" if learns else "variant learning"
                raise ValueError(
                    f"{key} {given!r} is for {theirs}, not for {self.variant}; leave it out, or "
                    "choose another variant"
                )
        return self


class GaussianProcessSpec(StrategySpec):
    """A Gaussian process on the loss."""

    called: ClassVar[str] = "a Gaussian process on the loss"

    name: Literal["gp"] = "gp"
    acquisition: Literal["upper-confidence", "thompson"] = Field(
        "upper-confidence",
        description="Picks go by the lowest loss within the confidence, or by losses drawn from "
        "what is believed.",
    )
    confidence: Confidence = Field(
        1.0, description="By how many standard deviations a loss may be lower than predicted."
    )


class TPESpec(StrategySpec):
    """Optuna's tree-structured Parzen estimators."""

    called: ClassVar[str] = "Optuna's tree-structured Parzen estimators"

    name: Literal["tpe"] = "tpe"


class NSGA2Spec(StrategySpec):
    """Optuna's NSGA-II on loss and latency."""

    called: ClassVar[str] = "Optuna's NSGA-II on loss and latency"

    name: Literal["nsga2"] = "nsga2"
    population: Annotated[Population, Field(ge=2)] = Field(
        20, description="States of a generation."
    )


class EvolutionSpec(StrategySpec):
    """Regularised evolution."""

    called: ClassVar[str] = "regularised evolution"

    name: Literal["evolution"] = "evolution"
    population: Population = Field(20, description="The youngest states that may have children.")
    sample: Population = Field(5, description="Of which the best one of so many drawn has a child.")

    @model_validator(mode="after")
    def _sample_of_the_population(self) -> Self:
        if self.sample > self.population:
            raise ValueError(
                f"sample {self.sample} is more than the population {self.population} that it is "
                "drawn from; lower it, or raise population"
            )
        return self


class RandomSpec(StrategySpec):
    """Random states."""

    called: ClassVar[str] = "random states"

    name: Literal["random"] = "random"


class FastestFirstSpec(StrategySpec):
    """The smallest latency first."""

    called: ClassVar[str] = "the smallest latency first"

    name: Literal["fastest-first"] = "fastest-first"


class LargestFirstSpec(StrategySpec):
    """The most parameters first."""

    called: ClassVar[str] = "the most parameters first"

    name: Literal["largest-first"] = "largest-first"


class SizeOnlySpec(StrategySpec):
    """The best first, if the larger always loses less."""

    called: ClassVar[str] = "the best by size alone"

    name: Literal["size-only"] = "size-only"


class ReadingOnlySpec(StrategySpec):
    """The best first by the loss at the start."""

    called: ClassVar[str] = "the best by the loss at the start"

    name: Literal["reading-only"] = "reading-only"


class ReadingFitSpec(StrategySpec):
    """The best first by a line from the loss at the start to that after training."""

    called: ClassVar[str] = "the best by a line from the loss at the start"

    name: Literal["reading-fit"] = "reading-fit"


class OwnStrategySpec(StrategySpec):
    """A strategy of another package: ``package.module:Class``, or a name that it registered.

    Attributes:
        options: for the class, which finds them in the spec that it is called with.
    """

    called: ClassVar[str] = "a strategy of another package"

    name: Annotated[str, Field(pattern=":")]
    options: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def tag(cls) -> str:
        """The name that it was registered under, or what names such as it look like."""
        return cls.model_fields["name"].default if cls is not OwnStrategySpec else _ANY_CLASS

    def read_as(self, kind: type[Kind]) -> Kind:
        """Its options as those of one of ours, on which it builds.

        Raises:
            SpecError: ours does not understand them.
        """
        return kind.read(self.options, "controller.strategy.options")


STRATEGIES: Final[Mapping[str, type[StrategySpec]]] = {
    kind.tag(): kind
    for kind in (
        ControllerStrategySpec,
        GaussianProcessSpec,
        TPESpec,
        NSGA2Spec,
        EvolutionSpec,
        RandomSpec,
        FastestFirstSpec,
        LargestFirstSpec,
        SizeOnlySpec,
        ReadingOnlySpec,
        ReadingFitSpec,
    )
}
DEFAULT = ControllerStrategySpec()
DEFAULT_STRATEGY: Final[str] = DEFAULT.name
_ANY_CLASS: Final = "package.module:Class"

_FORMERLY_BESIDE: Final[Mapping[str, tuple[Any, ...]]] = {
    "variant": ("once", "paper", "learning"),
    "epsilon_start": (1.0,),
    "epsilon_min": (0.05,),
    "epsilon_decay": (0.05, "spread"),
}
"""Options of the controller that stood beside the name of any strategy, with the values that
defaults and presets wrote out whichever it was."""


def strategy_names() -> list[str]:
    """Names of all strategies, ours first; loads no other package."""
    return [*STRATEGIES, *_plugins()]


def with_options_inside(controller: Mapping[str, Any]) -> dict[str, Any]:
    """Put what formerly stood beside the strategy into it, where it is the controller's.

    Args:
        controller: plain JSON of a :class:`~kdnas.specs.search.ControllerSpec`, or a part of it.
    """
    beside = {key: controller[key] for key in _FORMERLY_BESIDE if key in controller}
    inside = controller.get("strategy", {})
    inside = {"name": inside} if isinstance(inside, str) else inside
    if not beside or not isinstance(inside, Mapping):
        return dict(controller)
    if inside.get("name", DEFAULT_STRATEGY) != DEFAULT_STRATEGY or beside.keys() & inside.keys():
        return dict(controller)
    rest = {key: value for key, value in controller.items() if key not in beside}
    return {**rest, "strategy": {**inside, **beside}}


def without_leftovers(controller: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what defaults formerly wrote beside another strategy than the controller.

    Raises:
        ValueError: somebody asked for it.
    """
    strategy = controller.get("strategy")
    name = strategy.get("name", DEFAULT_STRATEGY) if isinstance(strategy, Mapping) else strategy
    for key in (key for key in _FORMERLY_BESIDE if key in controller):
        if name == DEFAULT_STRATEGY:
            raise ValueError(f"{key} stands both in strategy and beside it; leave out the latter")
        if controller[key] not in _FORMERLY_BESIDE[key]:
            raise ValueError(
                f"{key} {controller[key]!r} is for {DEFAULT_STRATEGY}, not for {name}; leave it "
                "out, or choose another strategy"
            )
    return {key: value for key, value in controller.items() if key not in _FORMERLY_BESIDE}


def _plugins() -> list[str]:
    return [name for name in installed(ENTRY_POINT_GROUP) if name not in STRATEGIES]


def _find(name: str) -> type[StrategySpec] | None:
    if name in STRATEGIES:
        return STRATEGIES[name]
    if ":" in name:
        return OwnStrategySpec
    return _registered(name) if name in _plugins() else None


def _kinds() -> Mapping[str, type[StrategySpec]]:
    plugins = {name: _registered(name) for name in _plugins()}
    return {**STRATEGIES, **plugins, OwnStrategySpec.tag(): OwnStrategySpec}


@cache
def _registered(name: str) -> type[OwnStrategySpec]:
    """The spec of a strategy that an installed package registered: its name is its only one."""
    only: Any = Literal[name]
    return create_model(
        f"Registered_{name}",
        __base__=OwnStrategySpec,
        __doc__=OwnStrategySpec.called,
        name=(only, name),
    )
