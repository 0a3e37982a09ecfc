"""The request for a search."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from kdnas.errors import SpecError
from kdnas.records import LossName
from kdnas.specs.base import Spec
from kdnas.specs.naming import Name
from kdnas.specs.objective_base import ObjectiveSpec
from kdnas.specs.objectives import DEFAULT as DEFAULT_OBJECTIVE
from kdnas.specs.parts import CorpusSpec, StudentSpec, TeacherSpec, TrainingSpec
from kdnas.specs.ranges import (
    Epochs,
    Fraction,
    Limit,
    Seed,
    StepsIfAny,
    Threads,
    TimedTokens,
    Workers,
)
from kdnas.specs.strategies import DEFAULT as DEFAULT_STRATEGY
from kdnas.specs.strategies import StrategySpec, with_options_inside, without_leftovers

Goal = Literal["reward", "limit", "front"]
"""What a search is after; :class:`SearchSpec` says what each means."""

BOUNDS = ("max_latency_ms", "max_latency_ratio", "max_params_millions")
"""Limits of which a search with goal ``limit`` needs one."""

MOST_PROPOSED = 100_000
"""Candidates of a search, over all its episodes."""

MOST_RUNGS = 20


class SpaceSpec(Spec):
    """Which architectures are candidates: ``paper``, ``scaled`` to the teacher, or own axes."""

    kind: Literal["paper", "scaled", "custom"] = "scaled"
    axes: dict[str, tuple[int | str, ...]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        if isinstance(value, dict) and value.get("axes") and "kind" not in value:
            return {**value, "kind": "custom"}
        return value

    @model_validator(mode="after")
    def _axes_fit_kind(self) -> SpaceSpec:
        if (self.kind == "custom") != bool(self.axes):
            raise ValueError("axes go with kind custom, and only with it")
        return self


class ProxySpec(TrainingSpec):
    """mini-KD: the short distillation that stands for the full one.

    Attributes:
        fraction: seeded share of the training sequences, the proxy set.
        reuse: look up states trained before in the same context instead of training them again.
        rungs: steps after which a search reads the held-out losses of a student on its way, and
            ends its training if they foretell too high a loss; in rising order, all before the
            last step. After 0 no step was made: who starts too badly is not trained at all.
        keep: with rungs and the goals ``reward`` and ``limit``, a student goes on while it may be
            one of so many best.
    """

    epochs: Epochs | None = 4.0
    fraction: Fraction = 0.3
    reuse: bool = True
    rungs: Annotated[tuple[StepsIfAny, ...], Field(max_length=MOST_RUNGS)] = ()
    keep: int = Field(5, ge=1, le=MOST_PROPOSED)

    @field_validator("rungs")
    @classmethod
    def _rising_before_the_end(
        cls, rungs: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        if list(rungs) != sorted(set(rungs)):
            raise ValueError(f"give each rung once and in rising order, not {list(rungs)}")
        steps = info.data.get("steps")
        problem = None if steps is None else _too_late(rungs, steps)
        if problem is not None:
            raise ValueError(problem)
        return rungs

    def rungs_problem(self, steps: int) -> str | None:
        """Say what is wrong with the rungs of a training of so many steps; None if nothing is."""
        return _too_late(self.rungs, steps)


def _too_late(rungs: tuple[int, ...], steps: int) -> str | None:
    late = [rung for rung in rungs if rung >= steps]
    if not late:
        return None
    return (
        f"rungs lie before the last step of a training, which has {steps} steps, and {late} do "
        "not; give smaller ones"
    )


class RewardSpec(Spec):
    """Reward (Trivedi Eq. 4): (1 − L) · (lat(S) / (β·lat(T)))^α.

    Attributes:
        loss: which held-out loss is L. ``mean``, the paper's, cannot rank students of different
            depth, whose mapped pairs differ; see docs/science.md.
        alpha: exponent of the latency, at most 0; None derives it from ``latency_price``, which
            counts for nothing otherwise.
        latency_price: share of explained signal that a doubling of latency must buy: with the
            default a student that takes twice as long must explain ten per cent more of the signal.
        beta: share of the teacher's latency that counts as the target.
    """

    loss: LossName = "relative"
    alpha: float | None = Field(None, ge=-1000, le=0)
    latency_price: float = Field(0.10, ge=0, lt=1)
    beta: Limit = 0.6

    @property
    def exponent(self) -> float:
        """α: as given, or log2(1 − price)."""
        return self.alpha if self.alpha is not None else math.log2(1 - self.latency_price)

    def under(self, goal: Goal) -> RewardSpec:
        """The reward of a search with a goal: ``limit`` has no price, since limits are hard."""
        return self.model_copy(update={"alpha": 0.0}) if goal == "limit" else self


class LimitsSpec(Spec):
    """States beyond a limit are never proposed; ``max_hours`` ends the search in good order."""

    max_latency_ms: Limit | None = None
    max_latency_ratio: Limit | None = None
    max_params_millions: Limit | None = None
    max_hours: Limit | None = None


class ControllerSpec(Spec):
    """Who proposes candidates, and how many.

    Attributes:
        strategy: who, with its options; a bare text is its name.
        episodes: M.
        candidates: N of an episode.
    """

    strategy: StrategySpec = DEFAULT_STRATEGY
    episodes: int = Field(15, ge=1, le=MOST_PROPOSED)
    candidates: int = Field(20, ge=1, le=MOST_PROPOSED)

    @model_validator(mode="before")
    @classmethod
    def _as_formerly(cls, value: Any) -> Any:
        """Read requests of when the options of the controller stood beside the strategy."""
        return without_leftovers(with_options_inside(value)) if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _not_too_many(self) -> ControllerSpec:
        count = self.episodes * self.candidates
        if count > MOST_PROPOSED:
            raise ValueError(
                f"episodes ({self.episodes}) times candidates ({self.candidates}) is {count}, more "
                f"than the {MOST_PROPOSED} that a search proposes at most; lower one of them"
            )
        return self


class LatencySpec(Spec):
    """Under which profile latency is measured, and how thoroughly.

    Attributes:
        device: where latency counts; ``auto`` is the CPU.
        threads: intra-op threads on a CPU.
        length: tokens of the one sequence.
        dtype: of weights and activations.
        budget_seconds: rough time that building the table may take.
        exhaustive: measure every whole student instead of modelling blocks.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Threads = 1
    length: TimedTokens = 32
    dtype: Literal["float32", "bfloat16"] = "float32"
    budget_seconds: Limit = 300.0
    exhaustive: bool = False


class BackendSpec(Spec):
    """Where mini-KD runs.

    Attributes:
        name: ``ray`` or ``local`` (in this process).
        num_workers: workers at the same time; None takes one for each GPU, or on a CPU one for
            each core while two candidates are left for each.
        threads: intra-op threads of a CPU worker; None shares the cores evenly. Written out when
            the search is stored, since it is part of what makes losses equal to the bit.
        group_size: students on one teacher pass; None fits the memory.
        device: ``auto`` takes a GPU where there is one.
        gpu_fraction: share of a GPU that a worker reserves, as 1/n.
        address: of a running Ray cluster; None starts a local one.
    """

    name: Literal["ray", "local"] = "ray"
    num_workers: Workers | None = None
    threads: Threads | None = None
    group_size: Workers | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gpu_fraction: Fraction = 1.0
    address: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("gpu_fraction")
    @classmethod
    def _whole_share(cls, value: float) -> float:
        share = 1 / value
        if not math.isfinite(share) or abs(share - round(share)) > 1e-6:
            raise ValueError(f"gpu_fraction must be 1/n (1, 0.5, 0.25 …), not {value:g}")
        return value


class ProxiesSpec(Spec):
    """Students of a space that mini-KD trains, and their latency: of a search or a sweep."""

    name: Name | None = None
    teacher: TeacherSpec = TeacherSpec()
    corpus: CorpusSpec = CorpusSpec()
    space: SpaceSpec = SpaceSpec()
    objective: ObjectiveSpec = DEFAULT_OBJECTIVE
    student: StudentSpec = StudentSpec()
    proxy: ProxySpec = ProxySpec()
    latency: LatencySpec = LatencySpec()
    backend: BackendSpec = BackendSpec()


class SearchSpec(ProxiesSpec):
    """A search, whole: the one shape of YAML files, REST bodies and database rows.

    Attributes:
        goal: ``reward``, the highest one (Trivedi Eq. 4); ``limit``, the lowest loss within the
            limits on latency or size, of which one must be given; ``front``, low losses at every
            latency (hypervolume), in which rewards only order the lists.
    """

    goal: Goal = "reward"
    reward: RewardSpec = RewardSpec()
    limits: LimitsSpec = Field(LimitsSpec(), validate_default=True)
    controller: ControllerSpec = ControllerSpec()
    seed: Seed = 0

    @field_validator("limits")
    @classmethod
    def _limit_is_given(cls, limits: LimitsSpec, info: ValidationInfo) -> LimitsSpec:
        bounded = any(getattr(limits, name) is not None for name in BOUNDS)
        if info.data.get("goal") == "limit" and not bounded:
            raise ValueError(
                "goal limit asks for the lowest loss within limits, and there is none; add "
                "`limits.max_latency_ratio` (or max_latency_ms, max_params_millions), or take "
                "another goal"
            )
        return limits

    @property
    def judged_by(self) -> RewardSpec:
        """The reward of candidates."""
        return self.reward.under(self.goal)

    def refuse_contradictions(self) -> None:
        """Refuse a new request that says what could not count; stored ones may hold such.

        A default beside what it cannot count with may have been written out, and is let through.

        Raises:
            SpecError: names both values.
        """
        reward, proxy = self.reward, self.proxy
        if reward.alpha is not None and _is_given(reward, "latency_price"):
            raise SpecError(
                f"reward.alpha {reward.alpha:g} and reward.latency_price {reward.latency_price:g} "
                "contradict each other, since the price stands for an alpha; give one of them",
                field="reward.latency_price",
            )
        if not proxy.rungs and _is_given(proxy, "keep"):
            raise SpecError(
                f"proxy.keep is {proxy.keep} and proxy.rungs {list(proxy.rungs)}, but only "
                "trainings with rungs end early; add proxy.rungs, or leave proxy.keep out",
                field="proxy.keep",
            )


def _is_given(spec: Spec, name: str) -> bool:
    """Whether a field is something else than its default."""
    return bool(getattr(spec, name) != type(spec).model_fields[name].default)
