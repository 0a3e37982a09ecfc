"""Searches and their episodes as lists, with what came of each so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ScalarSelect, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from kdnas.db.lists.candidate_pages import read_candidates
from kdnas.db.lists.job_pages import Listing, Row
from kdnas.db.lists.pages import Order, PageOf, as_dicts, read_page
from kdnas.db.models import Candidate, Episode, Event, Job, Search, SearchState

Point = tuple[float, float]
"""Loss of a state, and its latency as a share of the teacher's."""


class Asked(NamedTuple):
    """What was asked for of a search: the loss of its reward, its episodes, and its goal."""

    loss: str | None
    episodes: int | None
    goal: str


def read_figures(session: Session, searches: Mapping[str, Asked]) -> dict[str, Row]:
    """What came of several searches so far, in four reads; the same until their next events."""
    episodes = _counted(
        session,
        select(Episode.search_id, func.count(), func.count(Episode.finished_at))
        .where(Episode.search_id.in_(searches))
        .group_by(Episode.search_id),
    )
    candidates = _counted(
        session,
        select(
            SearchState.search_id,
            func.sum(SearchState.num_candidates),
            func.sum(SearchState.num_finished),
        )
        .where(SearchState.search_id.in_(searches))
        .group_by(SearchState.search_id),
    )
    best = _best(session, {search_id: one.loss for search_id, one in searches.items()})
    rows = {}
    for search_id, (_, asked, _) in searches.items():
        begun, finished = episodes.get(search_id, (0, 0))
        proposed, done = candidates.get(search_id, (0, 0))
        rows[search_id] = {
            "num_episodes": begun if asked is None else asked,
            "num_episodes_finished": finished,
            "num_candidates": proposed,
            "num_candidates_finished": done,
            "best": best.get(search_id),
        }
    return rows


def read_points(session: Session, searches: Mapping[str, Asked]) -> dict[str, list[Point]]:
    """Every explored state of several searches, as its loss and its share of the latency."""
    losses = (Candidate.loss_relative, Candidate.loss_output, Candidate.loss_mean)
    query = (
        select(SearchState.search_id, Candidate.latency_ratio, *losses)
        .join(SearchState, SearchState.candidate_id == Candidate.id)
        .where(SearchState.search_id.in_(searches))
    )
    found: dict[str, list[Point]] = {search_id: [] for search_id in searches}
    rows: Iterable[Any] = session.execute(query)
    for search_id, ratio, *known in rows:
        place = ("relative", "output", "mean").index(searches[search_id].loss or "relative")
        found[search_id].append((known[place], ratio))
    return found


def list_episodes(
    session: Session, search_id: str, *, limit: int = 50, cursor: str | None = None
) -> PageOf[Row]:
    """Read a page of a search's episodes in order, with the rewards of their candidates.

    Raises:
        RequestError: the cursor is that of another list.
    """
    columns: list[Any] = [
        Episode.number,
        Episode.epsilon,
        _architecture(Episode.global_best).label("global_best"),
        _architecture(Episode.previous_best).label("previous_best"),
        Episode.controller_loss,
        Episode.started_at,
        Episode.finished_at,
    ]
    query = select(*columns).where(Episode.search_id == search_id)
    scope = {"list": "episodes", "search": search_id}
    order = Order(Episode.number, Episode.number)
    page = as_dicts(read_page(session, query, order, scope, limit, cursor))
    rewards = _rewards(session, search_id, [row["number"] for row in page.items])
    return PageOf([{**row, **rewards[row["number"]]} for row in page.items], page.next_cursor)


def _counted(session: Session, query: Any) -> dict[str, tuple[int, int]]:
    return {row[0]: (int(row[1]), int(row[2])) for row in session.execute(query)}


def _best(session: Session, losses: Mapping[str, str | None]) -> dict[str, Row]:
    """The best candidate of each search, in the order of ``kdnas.search.reward.rank_key``."""
    first = (
        select(Candidate.id)
        .where(Candidate.search_id == Search.id, Candidate.reward.is_not(None))
        .order_by(Candidate.reward.desc(), Candidate.latency_ms, Candidate.state_index)
        .limit(1)
        .correlate(Search)
        .scalar_subquery()
    )
    ids = session.scalars(select(first).where(Search.id.in_(losses))).all()
    found = read_candidates(session, [candidate_id for candidate_id in ids if candidate_id])
    return {
        row["search_id"]: {
            "architecture": row["architecture"],
            "reward": row["reward"],
            "loss": row[f"loss_{losses[row['search_id']] or 'relative'}"],
            "latency_ms": row["latency_ms"],
        }
        for row in found
    }


def _architecture(index: InstrumentedAttribute[int | None]) -> ScalarSelect[str]:
    return (
        select(SearchState.architecture)
        .where(SearchState.search_id == Episode.search_id, SearchState.state_index == index)
        .correlate(Episode)
        .scalar_subquery()
    )


def _rewards(session: Session, search_id: str, numbers: Sequence[int]) -> dict[int, Row]:
    """Counts and rewards of episodes, as a whole and by who proposed the candidates."""
    query = (
        select(
            Candidate.episode,
            Candidate.source,
            func.count(),
            func.count(Candidate.finished_at),
            func.count(Candidate.reward),
            func.max(Candidate.reward),
            func.sum(Candidate.reward),
        )
        .where(Candidate.search_id == search_id, Candidate.episode.in_(numbers))
        .group_by(Candidate.episode, Candidate.source)
        .order_by(Candidate.episode, Candidate.source)
    )
    parts: dict[int, list[Any]] = {number: [] for number in numbers}
    for row in session.execute(query):
        parts[row[0]].append(row[1:])
    return {
        number: {
            "num_candidates": sum(part[1] for part in found),
            "num_finished": sum(part[2] for part in found),
            "best_reward": _best_of(part[4] for part in found),
            "mean_reward": _mean(
                sum(part[5] or 0.0 for part in found), sum(part[3] for part in found)
            ),
            "by_source": {
                source: {
                    "count": count,
                    "best_reward": best,
                    "mean_reward": _mean(total or 0.0, num_rewards),
                }
                for source, count, _, num_rewards, best, total in found
            },
        }
        for number, found in parts.items()
    }


def _best_of(rewards: Iterable[float | None]) -> float | None:
    return max((reward for reward in rewards if reward is not None), default=None)


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


_NEWEST = select(func.max(Event.id)).where(Event.job_id == Job.id)

LISTING: Final = Listing(
    Search,
    columns={
        "teacher": Search.spec["teacher"]["ref"].as_string(),
        "corpus": Search.spec["corpus"]["source"],
        "_event": _NEWEST.correlate(Job).scalar_subquery(),
        "goal": func.coalesce(Search.spec["goal"].as_string(), "reward"),
        "_loss": Search.spec["reward"]["loss"].as_string(),
        "_episodes": Search.spec["controller"]["episodes"],
    },
)
"""The list of searches without their figures, which are remembered elsewhere."""
