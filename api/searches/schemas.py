"""Shapes of searches, their episodes, candidates and charts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from api.http.schemas import ListQuery, Shape, Text, sort_pattern
from api.jobs.schemas import JobDetail, JobShape, KindQuery
from kdnas.architecture import ACTIVATIONS
from kdnas.db.lists.candidate_pages import SORTS as CANDIDATE_SORTS
from kdnas.records import CandidateStatus, LossName
from kdnas.specs.search import Goal

LARGEST_NUMBER = 2**31 - 1
LOSS_START = "Held-out relative loss before the first step; null where it was not read."

Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
Attempted = Literal["succeeded", "failed", "stopped", "interrupted"]


class SearchQuery(KindQuery):
    """Which searches are wanted, and how they are sorted."""

    q: Text | None = Field(None, description="A part of the name.")


class CandidateQuery(ListQuery):
    """Which candidates are wanted, and how they are sorted; lists may be repeated."""

    status: list[CandidateStatus] = Field([], max_length=20)
    source: list[Text] = Field([], max_length=20)
    activation: list[Text] = Field(
        [], max_length=20, description=f"Among {', '.join(ACTIVATIONS)}."
    )
    episode: list[Number] = Field([], max_length=200)
    layers: list[Number] = Field([], max_length=100)
    heads: list[Number] = Field([], max_length=100)
    hidden: list[Number] = Field([], max_length=100)
    intermediate: list[Number] = Field([], max_length=100)
    reused: bool | None = None
    architecture: Text | None = Field(None, description="Exactly this one.")
    min_reward: Bound | None = None
    max_reward: Bound | None = None
    min_loss_relative: Bound | None = None
    max_loss_relative: Bound | None = None
    min_latency_ms: Bound | None = None
    max_latency_ms: Bound | None = None
    min_params_millions: Bound | None = None
    max_params_millions: Bound | None = None
    sort: str = Field("-reward", pattern=sort_pattern(CANDIDATE_SORTS))


class BestShape(Shape):
    """The best candidate of a search; `loss` is the one that its reward is made of."""

    architecture: str
    reward: float
    loss: float | None
    latency_ms: float | None


class SearchShape(JobShape):
    """A search in a list."""

    teacher: str | None = Field(description="As it was asked for.")
    corpus: list[str] | None = Field(description="Its sources, as they were asked for.")
    num_episodes: int
    num_episodes_finished: int
    num_candidates: int
    num_candidates_finished: int
    goal: Goal
    best: BestShape | None = Field(
        description="By reward, which with goal `limit` is the lowest loss within the limits; of a "
        "front no single one is the best."
    )
    hypervolume: float | None = Field(
        description="Of goal `front`, as `GET /searches/{id}/ranking` has it; null with other "
        "goals, and before the first state."
    )


class SearchDetail(SearchShape, JobDetail):
    """A search with what was asked for, and what it found so far."""

    warnings: list[str] = Field(description="What preparing it found; empty before.")
    space_size: int | None = Field(description="States of its space; null before preparing.")
    latency_profile: str | None = Field(
        description="Fingerprint of the profile of its latencies; null before preparing."
    )
    summary: dict[str, Any] = Field(
        description="As `kdnas search --json` prints it, `best` with 20 states at most."
    )


class SourceRewards(Shape):
    """What the candidates of one source came to in an episode."""

    count: int
    best_reward: float | None
    mean_reward: float | None


class EpisodeShape(Shape):
    """A round of a search; the bests are architectures, as they were when it began."""

    number: int
    epsilon: float | None
    global_best: str | None
    previous_best: str | None
    controller_loss: float | None
    started_at: datetime
    finished_at: datetime | None
    num_candidates: int
    num_finished: int
    best_reward: float | None
    mean_reward: float | None
    hypervolume: float | None = Field(
        description="Of goal `front`: of all states by then; null with other goals, and before the "
        "first state."
    )
    by_source: dict[str, SourceRewards]


class ReadingShape(Shape):
    """Held-out losses of a student on its way; `loss_training` is that of the last steps."""

    step: int
    loss_mean: float
    loss_relative: float
    loss_output: float
    loss_training: float | None


class CandidateShape(Shape):
    """An architecture proposed in a search; one that was `stopped` at a rung has no losses."""

    id: str
    search_id: str
    episode: int
    position: int
    index: int
    architecture: str
    layers: int
    heads: int
    hidden: int
    intermediate: int
    activation: str
    source: str
    predicted_reward: float | None
    status: CandidateStatus
    reward: float | None
    loss_relative: float | None
    loss_output: float | None
    loss_mean: float | None
    loss_training: float | None
    loss_start: float | None = Field(description=LOSS_START)
    latency_ms: float | None
    latency_ratio: float | None
    params_millions: float | None
    reused: bool
    num_attempts: int
    num_steps: int | None = Field(
        description="That its own training made; null if it was looked up, or is not trained yet."
    )
    readings: list[ReadingShape] = Field(description="At the rungs of its search.")
    error: str | None
    note: str | None
    created_at: datetime
    finished_at: datetime | None


class AttemptShape(Shape):
    """One training of a candidate; `outcome` is null while it goes on."""

    worker: str
    outcome: Attempted | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None


class CurvePointShape(Shape):
    """One point of a training curve."""

    step: int
    loss: float
    learning_rate: float


class CandidateDetail(CandidateShape):
    """A candidate with its trainings, and with the curve of the one that was kept."""

    attempts: list[AttemptShape]
    curve: list[CurvePointShape] = Field(description="Empty where losses were looked up.")


class Candidates(Shape):
    """Some candidates."""

    items: list[CandidateShape]


class StateShape(Shape):
    """An explored state with its figures."""

    architecture: str
    reward: float
    loss_start: float | None = Field(description=LOSS_START)
    latency_ms: float
    latency_ratio: float
    params_millions: float


class RankedState(StateShape):
    """A state with its rank and reward now, and with those of the search's own reward."""

    rank: int
    stored_rank: int
    stored_reward: float
    loss: float
    contribution: float | None = Field(
        description="What the hypervolume of a front would lose without it; null with other goals."
    )
    like_best: bool | None = Field(
        description="Whether noise between seeds cannot tell it from the first; null where noise "
        "is not known, and of a front."
    )


class Ranking(Shape):
    """Explored states in the order that suits a goal; `loss` names the one that counts."""

    goal: Goal
    alpha: float
    beta: float
    max_latency_ratio: float | None = Field(
        description="Share of the teacher's latency beyond which there are no states; null if the "
        "search has no such limit."
    )
    loss: LossName
    hypervolume: float | None = Field(
        description="Of a front: the share of the signal that is explained, added up over the "
        "halvings of the teacher's latency; null with other goals."
    )
    warning: str | None = Field(
        description="Why this loss cannot rank these states: `mean` where they differ in depth."
    )
    items: list[RankedState]


class PointShape(StateShape):
    """An explored state in a chart; `id` is that of its first candidate with a reward."""

    id: str
    source: str
    episode: int
    predicted_reward: float | None
    predicted_loss: float | None = Field(description="That the predicted reward is made of.")
    loss_relative: float
    loss_output: float
    loss_mean: float


class Points(Shape):
    """Explored states for charts."""

    items: list[PointShape]


class PairShape(Shape):
    """Candidates by the values of two axes."""

    rows: str
    columns: str
    counts: list[list[int]]


class CoverageShape(Shape):
    """How often each value of each pair of axes was tried."""

    axes: dict[str, list[int | str]]
    pairs: list[PairShape]


class NoiseShape(Shape):
    """By how much the loss of a state differs between seeds."""

    sd: float = Field(description="Standard deviation of a single training.")
    dof: int = Field(description="Its degrees of freedom: trainings less states.")
    num_states: int = Field(description="States that were trained with several seeds.")
    table: str | None = Field(
        description="The table that comes with the program and tells it; null if trainings in the "
        "database do."
    )


class PredictionsShape(Shape):
    """Predicted and true losses of an episode's picks, random ones apart."""

    episode: int
    pairs: int
    spearman: float | None = Field(description="Rank correlation; null with fewer than three.")
    rmse: float | None = Field(description="Root mean square error; null with fewer than three.")


class AxisShareShape(Shape):
    """The share of an axis in what is explained, over repeats in the mean and in 95 %."""

    axis: str
    share: float
    low: float
    high: float


class ImportanceShape(Shape):
    """Which axis explains a figure, the largest share first."""

    explained: float = Field(
        description="Share of its variance that a model explains, of states that it has not seen."
    )
    axes: list[AxisShareShape]


class ExpectedShape(Shape):
    """What a search has found, beside 1000 random ones of its size."""

    measure: Literal["reward", "hypervolume"]
    found: float
    expected: float
    low: float = Field(description="2.5 % of the draws are below.")
    high: float = Field(description="2.5 % of the draws are above.")
    as_good: float = Field(description="Share of the draws that come to at least `found`.")
    by_own_random: float | None = Field(
        description="Of the search's own random picks; null if it has none."
    )


class ChanceShape(Shape):
    """What random search would have found: an estimate from a model of the loss."""

    budget: int = Field(description="States of a draw: as many as have a result.")
    num_allowed: int
    num_random: int = Field(description="Random picks among the search's states.")
    error: float = Field(description="The model's root mean square error on unseen states.")
    explained: float
    measures: list[ExpectedShape]


class AnalysisShape(Shape):
    """How sure the figures of a search are."""

    loss: LossName
    num_states: int = Field(description="That have a result.")
    sentences: list[str] = Field(description="The same in words.")
    noise: NoiseShape | None = Field(
        description="Null if no state was trained with two seeds, nor a table is of such trainings."
    )
    within_noise: list[str] | None = Field(
        description="Architectures that noise cannot tell from the best, by reward; with goal "
        "front those off the front that it cannot tell from those on it, the fastest first. Null "
        "where noise is not known."
    )
    predictions: list[PredictionsShape]
    loss_importance: ImportanceShape | None
    reward_importance: ImportanceShape | None
    chance: ChanceShape | None = Field(
        description="Null with fewer than 12 states, or if latencies are not stored."
    )
