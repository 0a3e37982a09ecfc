"""A search with a great many candidates, written fast: for measuring how the service reads."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from kdnas.db.base import new_id, utc_now
from kdnas.db.engine import Database, Session
from kdnas.db.models import Candidate, Episode, SearchState
from kdnas.db.repository import jobs, searches
from kdnas.records import LossName, SearchStatus
from kdnas.search.reward import RewardFunction
from kdnas.search_space import SearchSpace
from kdnas.specs.search import SearchSpec
from kdnas.testing.benchmark_space import (
    TEACHER,
    benchmark_losses,
    benchmark_ms,
    benchmark_params,
    benchmark_start,
)

_ROWS_AT_ONCE = 10_000
_FAILED_EVERY = 100


def add_many_candidates(
    database: Database,
    num_candidates: int = 100_000,
    *,
    per_episode: int = 20,
    name: str = "many",
    status: SearchStatus = "succeeded",
    seed: int = 0,
    space: SearchSpace | None = None,
) -> str:
    """Store a search with finished episodes only, in one transaction; no events, no attempts.

    States are drawn at random, so a space is soon seen whole and most candidates are looked up.
    One in a hundred has failed; half are the controller's, with a predicted reward.

    Returns:
        The id of the search.
    """
    spec = SearchSpec.read(
        {
            "space": "paper",
            "controller": {
                "strategy": {"name": "controller", "variant": "paper"},
                "episodes": -(-num_candidates // per_episode),
                "candidates": per_episode,
            },
        },
        "many candidates",
    )
    rows = list(_candidates(num_candidates, per_episode, space or SearchSpace.paper(), spec, seed))
    with database.write() as session:
        search_id = searches.create_search(
            session, spec.to_json(), name=name, owner_kind="service"
        ).id
        _write(session, search_id, rows)
        jobs.set_status(session, search_id, "running")
        jobs.set_status(session, search_id, status)
    return search_id


def _candidates(
    count: int, per_episode: int, space: SearchSpace, spec: SearchSpec, seed: int
) -> Iterator[dict[str, Any]]:
    generator = random.Random(seed)
    facts = [_facts(space, index, spec) for index in range(len(space))]
    began = utc_now() - timedelta(seconds=count)
    seen: set[int] = set()
    for number in range(count):
        state = generator.randrange(len(space))
        failed = number % _FAILED_EVERY == 0
        chosen = generator.random() < 0.5
        reward = facts[state]["reward"]
        known = facts[state]
        if failed:
            known = {**known, **dict.fromkeys(_RESULTS)}
        yield {
            **known,
            "id": new_id(),
            "episode": number // per_episode + 1,
            "position": number % per_episode,
            "source": "controller" if chosen else "random",
            "predicted_reward": reward + generator.gauss(0, 0.05) if chosen else None,
            "status": "failed" if failed else "succeeded",
            "error": "the loss is not finite at step 3" if failed else None,
            "reused": not failed and state in seen,
            "num_attempts": int(failed or state not in seen),
            "created_at": _moment(began, number - number % per_episode),
            "finished_at": _moment(began, number),
        }
        if not failed:
            seen.add(state)


_RESULTS = ("loss_training", "loss_mean", "loss_relative", "loss_output", "loss_start", "reward")


def _facts(space: SearchSpace, index: int, spec: SearchSpec) -> dict[str, Any]:
    architecture = space[index]
    losses = benchmark_losses(architecture)
    ratio = benchmark_ms(architecture) / benchmark_ms(TEACHER)
    loss: LossName = spec.reward.loss
    scored = RewardFunction(loss, spec.reward.exponent, spec.reward.beta)(losses, ratio)
    return {
        "state_index": index,
        "architecture": str(architecture),
        **{axis: getattr(architecture, axis) for axis in space.axes},
        "latency_ms": benchmark_ms(architecture),
        "latency_ratio": ratio,
        "params_millions": benchmark_params(architecture),
        "loss_training": losses.training,
        "loss_mean": losses.mean,
        "loss_relative": losses.relative,
        "loss_output": losses.output,
        "loss_start": benchmark_start(architecture),
        "reward": scored.reward,
        "note": scored.note,
    }


def _moment(began: datetime, seconds: int) -> datetime:
    return began + timedelta(seconds=seconds)


def _write(session: Session, search_id: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["search_id"] = search_id
    by_episode: dict[int, list[dict[str, Any]]] = defaultdict(list)
    by_state: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_episode[row["episode"]].append(row)
        by_state[row["state_index"]].append(row)
    episodes = [
        {
            "search_id": search_id,
            "number": number,
            "epsilon": max(0.05, 1 - 0.05 * (number - 1)),
            "controller_loss": 1 / number,
            "started_at": members[0]["created_at"],
            "finished_at": members[-1]["finished_at"],
        }
        for number, members in by_episode.items()
    ]
    states = [_state(search_id, state, members) for state, members in by_state.items()]
    for table, values in ((Episode, episodes), (Candidate, rows), (SearchState, states)):
        for start in range(0, len(values), _ROWS_AT_ONCE):
            session.bulk_insert_mappings(table, values[start : start + _ROWS_AT_ONCE])


def _state(search_id: str, state: int, members: list[dict[str, Any]]) -> dict[str, Any]:
    succeeded = [row for row in members if row["status"] == "succeeded"]
    return {
        "search_id": search_id,
        "state_index": state,
        "architecture": members[0]["architecture"],
        "num_candidates": len(members),
        "num_finished": len(members),
        "num_attempts": sum(row["num_attempts"] for row in members),
        "trained": any(not row["reused"] for row in succeeded),
        "failed": len(succeeded) < len(members),
        "candidate_id": succeeded[0]["id"] if succeeded else None,
    }
