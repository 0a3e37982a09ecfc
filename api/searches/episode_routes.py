"""The episodes of a search, and what its states look like together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.http.dependencies import DatabaseDep
from api.http.schemas import ListQuery, Page
from api.searches.analysis import analysis_of, known_noise
from api.searches.reading import answer_remembered
from api.searches.remembered import explored_states
from api.searches.routes import Reference
from api.searches.schemas import (
    AnalysisShape,
    Candidates,
    CoverageShape,
    EpisodeShape,
    Points,
    Ranking,
)
from kdnas.architecture import Architecture
from kdnas.db.engine import Session
from kdnas.db.exploration import explored
from kdnas.db.lists import search_pages
from kdnas.db.lists.candidate_pages import read_candidates
from kdnas.db.lists.job_pages import Row
from kdnas.db.lists.pages import PageOf
from kdnas.errors import SpecError
from kdnas.records import ExploredState, LossName, SearchRecord
from kdnas.search.analysis.findings import within_noise
from kdnas.search.analysis.noise import Noise
from kdnas.search.coverage import coverage, known_axes
from kdnas.search.hypervolume import Covered
from kdnas.search.reranking import Reranked, front_of, rerank
from kdnas.search.reward import RewardFunction, depth_warning
from kdnas.search.summary import pareto_states
from kdnas.search.thinning import thinned_states
from kdnas.specs.search import Goal, LimitsSpec, RewardSpec, SpaceSpec

NUM_RANKED, NUM_POINTS, MOST_STATES = 100, 2000, 10_000

router = APIRouter(tags=["searches"])


@router.get("/searches/{search}/episodes", response_model=Page[EpisodeShape])
def list_episodes(
    search: Reference, query: Annotated[ListQuery, Query()], database: DatabaseDep
) -> Response:
    """List a search's episodes in order, each with the rewards of its candidates."""

    def find(session: Session, record: SearchRecord) -> PageOf[Row]:
        page = search_pages.list_episodes(
            session, record.id, limit=query.limit, cursor=query.cursor
        )
        is_front = record.spec.get("goal", "reward") == "front"
        states = explored_states(session, record.id) if is_front else []
        rows = _with_hypervolume(page.items, states, _reward(record).loss)
        return PageOf(list(rows), page.next_cursor)

    return answer_remembered(database, search, ("episodes", query.limit, query.cursor), find)


@router.get("/searches/{search}/pareto", response_model=Candidates)
def read_pareto(search: Reference, database: DatabaseDep) -> Response:
    """Give the candidates that no other beats in loss and latency, the fastest first."""

    def find(session: Session, record: SearchRecord) -> Row:
        front = pareto_states(explored_states(session, record.id), _reward(record).loss)
        return {"items": read_candidates(session, [state.candidate_id for state in front])}

    return answer_remembered(database, search, ("pareto",), find)


@router.get("/searches/{search}/ranking", response_model=Ranking)
def read_ranking(
    search: Reference,
    database: DatabaseDep,
    goal: Annotated[Goal | None, Query(description="What is wanted of the states.")] = None,
    alpha: Annotated[
        float | None,
        Query(ge=-10, le=0, allow_inf_nan=False, description="Latency's exponent: of reward."),
    ] = None,
    beta: Annotated[
        float | None,
        Query(
            ge=0.001,
            le=1000,
            allow_inf_nan=False,
            description="Target share of the latency: of reward.",
        ),
    ] = None,
    max_latency_ratio: Annotated[
        float | None,
        Query(
            gt=0,
            le=1000,
            allow_inf_nan=False,
            description="Share of the teacher's latency that states may take: of limit.",
        ),
    ] = None,
    loss: LossName | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_STATES)] = NUM_RANKED,
) -> Response:
    """Order the explored states anew, from their stored losses and latencies, for a goal.

    With reward all of them, the highest first; with limit those within the latency, the lowest loss
    first; with front those that no other beats in loss and latency, the fastest first.
    """

    def find(session: Session, record: SearchRecord) -> Row:
        wanted = goal or cast(Goal, record.spec.get("goal", "reward"))
        _refuse_others(wanted, "reward", alpha=alpha, beta=beta)
        _refuse_others(wanted, "limit", max_latency_ratio=max_latency_ratio)
        own = RewardFunction.from_spec(_reward(record).under(wanted))
        function = RewardFunction(
            own.loss if loss is None else loss,
            own.alpha if alpha is None else alpha,
            own.beta if beta is None else beta,
        )
        states = explored_states(session, record.id)
        ranked, volume = _for_goal(wanted, states, function, max_latency_ratio)
        limits = LimitsSpec.read(record.spec.get("limits", {}), "limits")
        like_best = _like_best(ranked[:limit], wanted, function, noise(session, record))
        return {
            "goal": wanted,
            "alpha": function.alpha,
            "beta": function.beta,
            "max_latency_ratio": max_latency_ratio or limits.max_latency_ratio,
            "loss": function.loss,
            "hypervolume": volume,
            "warning": depth_warning(
                function.loss, (Architecture.parse(state.architecture) for state in states)
            ),
            "items": [
                _ranked(entry, function.loss, within)
                for entry, within in zip(ranked[:limit], like_best, strict=True)
            ],
        }

    def noise(session: Session, record: SearchRecord) -> Noise | None:
        return known_noise(session, record, loss or _reward(record).loss)

    what = ("ranking", goal, alpha, beta, max_latency_ratio, loss, limit)
    return answer_remembered(database, search, what, find, noise)


@router.get("/searches/{search}/analysis", response_model=AnalysisShape)
def read_analysis(search: Reference, database: DatabaseDep) -> Response:
    """Say how sure the figures are: noise, predictions, what explains them, what chance finds."""

    def noise(session: Session, record: SearchRecord) -> Noise | None:
        return known_noise(session, record, _reward(record).loss)

    return answer_remembered(database, search, ("analysis",), analysis_of, noise)


@router.get("/searches/{search}/points", response_model=Points)
def read_points(
    search: Reference,
    database: DatabaseDep,
    limit: Annotated[int, Query(ge=1, le=MOST_STATES)] = NUM_POINTS,
) -> Response:
    """Give explored states for charts, thinned evenly, with the whole Pareto front if it fits."""

    def find(session: Session, record: SearchRecord) -> Row:
        states = explored_states(session, record.id)
        goal = cast(Goal, record.spec.get("goal", "reward"))
        function = RewardFunction.from_spec(_reward(record).under(goal))
        found = thinned_states(states, function.loss, limit)
        return {"items": [_point(state, function) for state in found]}

    return answer_remembered(database, search, ("points", limit), find)


@router.get("/searches/{search}/coverage", response_model=CoverageShape)
def read_coverage(search: Reference, database: DatabaseDep) -> Response:
    """Count the candidates by the values of each pair of axes."""

    def find(session: Session, record: SearchRecord) -> Any:
        space = SpaceSpec.read(record.spec.get("space", {}), "space")
        return coverage(explored.tried_states(session, record.id), known_axes(space))

    return answer_remembered(database, search, ("coverage",), find)


def _with_hypervolume(
    episodes: Sequence[Row], states: Iterable[ExploredState], loss: LossName
) -> Iterator[Row]:
    """Add to each episode, in their order, what all states up to it cover; None without any."""
    left, covered, volume = deque(sorted(states, key=lambda s: s.episode)), Covered(), None
    for row in episodes:
        while left and left[0].episode <= row["number"]:
            state = left.popleft()
            covered.add(state.losses.named(loss), -math.log2(state.latency_ratio))
            volume = covered.volume
        yield {**row, "hypervolume": volume}


def _reward(record: SearchRecord) -> RewardSpec:
    return RewardSpec.read(record.spec.get("reward", {}), "reward")


def _refuse_others(goal: Goal, theirs: Goal, **given: float | None) -> None:
    """Refuse what belongs to another goal than the one of the ranking."""
    for name, value in given.items():
        if value is not None and goal != theirs:
            raise SpecError(
                f"{name} {value:g} is of goal {theirs}, and this ranking is of goal {goal}; add "
                f"goal={theirs}, or leave {name} out"
            )


def _for_goal(
    goal: Goal, states: list[ExploredState], function: RewardFunction, ratio: float | None
) -> tuple[list[Reranked], float | None]:
    """States in the order that suits a goal, and of a front its hypervolume."""
    if goal == "front":
        front = front_of(states, function)
        return front.states, front.hypervolume
    return rerank(states, function, math.inf if ratio is None else ratio), None


def _like_best(
    ranked: list[Reranked], goal: Goal, function: RewardFunction, noise: Noise | None
) -> list[bool | None]:
    """Which states noise cannot tell from the first; None where it is not known, and of a front."""
    if noise is None or goal == "front":
        return [None] * len(ranked)
    figures = [(entry.reward, entry.state.latency_ratio) for entry in ranked]
    return [*within_noise(figures, noise, function)]


def _ranked(entry: Reranked, loss: LossName, like_best: bool | None) -> Row:
    return {
        "rank": entry.rank,
        "stored_rank": entry.stored_rank,
        "architecture": entry.state.architecture,
        "reward": entry.reward,
        "stored_reward": entry.state.reward,
        "loss": entry.state.losses.named(loss),
        "loss_start": entry.state.loss_start,
        "latency_ms": entry.state.latency_ms,
        "latency_ratio": entry.state.latency_ratio,
        "params_millions": entry.state.params_millions,
        "contribution": entry.contribution,
        "like_best": like_best,
    }


def _point(state: ExploredState, function: RewardFunction) -> Row:
    foreseen, ratio = state.predicted_reward, state.latency_ratio
    return {
        "id": state.candidate_id,
        "architecture": state.architecture,
        "source": state.source,
        "episode": state.episode,
        "reward": state.reward,
        "predicted_reward": foreseen,
        "predicted_loss": None if foreseen is None else function.loss_of(foreseen, ratio),
        "loss_relative": state.losses.relative,
        "loss_output": state.losses.output,
        "loss_mean": state.losses.mean,
        "loss_start": state.loss_start,
        "latency_ms": state.latency_ms,
        "latency_ratio": state.latency_ratio,
        "params_millions": state.params_millions,
    }
