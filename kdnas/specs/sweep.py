"""The request for a sweep: every state of a space, read or trained without a search."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from kdnas.specs.ranges import Seed, States, StepsIfAny
from kdnas.specs.search import ProxiesSpec, ProxySpec

MOST_READINGS = 20
MOST_SEEDS = 100


class SweepSpec(ProxiesSpec):
    """A sweep, whole.

    Attributes:
        steps: after which held-out losses are read, in rising order. The last one ends a training
            and its schedule, in place of ``proxy.steps``; ``[0]`` trains nothing and reads students
            as they start.
        states: how many, drawn so that fewer are among more; None takes all.
        draw_seed: which ones are drawn.
        seeds: of mini-KD, in place of ``proxy.seed``; each trains every state.
        without: a table, by its file or as one that comes with the program: states of which it has
            all that is asked are left out.
    """

    steps: Annotated[tuple[StepsIfAny, ...], Field(min_length=1, max_length=MOST_READINGS)] = (0,)
    states: States | None = None
    draw_seed: Seed = 0
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=MOST_SEEDS)] = (0,)
    without: Annotated[str, Field(min_length=1)] | None = None

    @field_validator("steps")
    @classmethod
    def _rising(cls, steps: tuple[int, ...]) -> tuple[int, ...]:
        if list(steps) != sorted(set(steps)):
            raise ValueError(f"give each step once and in rising order, not {list(steps)}")
        return steps

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds):
            raise ValueError(f"give each seed once, not {list(seeds)}")
        return seeds

    @field_validator("proxy")
    @classmethod
    def _has_no_rungs(cls, proxy: ProxySpec) -> ProxySpec:
        if proxy.rungs:
            raise ValueError(
                f"a sweep trains every state to its end, and proxy.rungs {list(proxy.rungs)} would "
                "stop some; leave them out, or give them as steps to have losses read there"
            )
        return proxy

    @property
    def trains(self) -> bool:
        """Whether students are trained, not only read as they start."""
        return self.steps[-1] > 0

    def proxy_of(self, seed: int) -> ProxySpec:
        """The training of each state under one of the seeds.

        Of students that are read as they start it is what decides the start: the length of the
        schedule is the proxy's own then, and no step of it is made.
        """
        # Epochs stay as they are, for the look-up table's sake: beside steps they mean nothing.
        length = {"steps": self.steps[-1]} if self.trains else {}
        return self.proxy.model_copy(update={**length, "seed": seed})
