from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kdnas.architecture import Architecture
from kdnas.records import Candidate, Episode, Losses, SearchRecord
from kdnas.search.summary import summarise
from kdnas.specs.search import RewardSpec, SearchSpec

RECORD = SearchRecord(
    "s1", "trial", "succeeded", SearchSpec().to_json(), "cli", datetime(2024, 1, 1, tzinfo=UTC)
)


def row(index: int, reward: float | None, ms: float, episode: int = 1, **more: object) -> Candidate:
    candidate = Candidate(
        id=f"{episode}.{index}",
        search_id="s1",
        episode=episode,
        position=index,
        index=index,
        architecture=Architecture(index + 1, 2, 96, 96),
        source="random" if episode == 1 else "controller",
        predicted_reward=None,
        status="failed" if reward is None else "succeeded",
        losses=None if reward is None else Losses(1.0, 0.1, 1 - reward, 0.9 - 0.1 * reward),
        loss_start=None if reward is None else 1 - reward / 2,
        latency_ms=ms,
        latency_ratio=ms / 10,
        params_millions=1.5,
        reward=reward,
        num_attempts=1,
    )
    return replace(candidate, **more)  # type: ignore[arg-type]


EPISODES = [
    Episode("s1", 1, 1.0, True, candidates=(row(0, 0.5, 2.0), row(1, None, 3.0, num_attempts=3))),
    Episode(
        "s1",
        2,
        0.5,
        True,
        candidates=(
            row(0, 0.5, 2.0, 2, reused=True, num_attempts=0),
            row(2, 0.8, 6.0, 2),
            row(3, 0.4, 4.0, 2, reused=True, num_attempts=0),
        ),
    ),
]


def test_what_was_stopped_is_explored_and_has_no_rank() -> None:
    whole = [row(i, 0.1 * i, 2.0 + i, num_steps=100) for i in range(1, 3)]
    ended = [row(i, None, 2.0, 2, status="stopped", num_steps=n) for i, n in ((7, 20), (8, 60))]
    episodes = [Episode("s1", n, 1.0, True, candidates=(*c,)) for n, c in ((1, whole), (2, ended))]
    summary = summarise(RECORD, episodes)
    assert (summary["explored"], summary["trained"], summary["failed"]) == (4, 2, 0)
    assert (summary["stopped"], summary["steps_saved"]) == (2, pytest.approx(0.3))
    ranks = [*summary["best"], *summary["pareto"]]
    assert {entry["architecture"] for entry in ranks} == {str(c.architecture) for c in whole}
    rescored = summarise(RECORD, episodes, RewardSpec(alpha=0.0))
    assert [entry["reward"] for entry in rescored["best"]] == pytest.approx([0.2, 0.1])


def test_counts_and_order() -> None:
    summary = summarise(RECORD, EPISODES)
    assert {k: v for k, v in summary.items() if not isinstance(v, (list, dict))} == {
        "id": "s1",
        "name": "trial",
        "status": "succeeded",
        "goal": "reward",
        "error": None,
        "explored": 4,
        "trained": 2,
        "reused": 1,
        "failed": 1,
        "attempts": 5,
        "stopped": 0,
        "steps_saved": None,
        "hypervolume": None,
    }
    assert [b["reward"] for b in summary["best"]] == [0.8, 0.5, 0.4]
    assert summary["best"][1] == {
        "architecture": "1,2,96,96,gelu",
        "reward": 0.5,
        "loss": 0.5,
        "relative_loss": 0.5,
        "output_loss": pytest.approx(0.85),
        "loss_start": 0.75,
        "latency_ms": 2.0,
        "latency_ratio": 0.2,
        "params_millions": 1.5,
        "episode": 1,
        "source": "random",
    }
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_front_budgets_and_baseline() -> None:
    summary = summarise(RECORD, EPISODES)
    assert [p["latency_ms"] for p in summary["pareto"]] == [2.0, 6.0]
    assert [(b["latency_ms"], b["best"]["reward"]) for b in summary["budgets"]] == [
        (3.0, 0.5),
        (4.0, 0.5),
        (5.0, 0.5),
    ]
    assert summary["baseline"] == {
        "controller": {
            "count": 2,
            "best_reward": 0.8,
            "mean_reward": pytest.approx(0.6),
            "hypervolume": None,
        },
        "random": {"count": 1, "best_reward": 0.5, "mean_reward": 0.5, "hypervolume": None},
    }


def test_a_front_is_worth_its_hypervolume() -> None:
    """Losses are 0.5, 0.6 and 0.2, latency ratios 0.2, 0.4 and 0.6: the second is beaten."""
    spec = SearchSpec(goal="front").to_json()
    summary = summarise(replace(RECORD, spec=spec), EPISODES)
    own = 0.8 * math.log2(1 / 0.6) + 0.4 * math.log2(0.6 / 0.4)
    assert summary["hypervolume"] == pytest.approx(
        0.8 * math.log2(1 / 0.6) + 0.5 * math.log2(0.6 / 0.2)
    )
    baseline = summary["baseline"]
    assert baseline["random"]["hypervolume"] == pytest.approx(0.5 * math.log2(1 / 0.2))
    assert baseline["controller"]["hypervolume"] == pytest.approx(own)
    nothing = summarise(replace(RECORD, spec=spec, status="queued"), [])
    assert nothing["hypervolume"] is None


def test_another_reward_ranks_anew() -> None:
    summary = summarise(RECORD, EPISODES, RewardSpec(loss="output", alpha=-5.0))
    assert [b["latency_ms"] for b in summary["best"]] == [2.0, 4.0, 6.0]
    assert summary["best"][0]["loss"] == pytest.approx(0.85)


def test_an_empty_search() -> None:
    summary = summarise(replace(RECORD, status="queued"), [])
    assert (summary["explored"], summary["best"], summary["budgets"]) == (0, [], [])
    assert summary["baseline"] == {}
