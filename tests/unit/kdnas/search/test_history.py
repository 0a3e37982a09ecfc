from __future__ import annotations

from dataclasses import replace

from kdnas.architecture import Architecture
from kdnas.records import Candidate, Episode, Losses
from kdnas.search.history import extended, history_of
from kdnas.search.protocols import History


def episode(number: int, rewards: list[float | None], finished: bool = True) -> Episode:
    candidates = tuple(
        Candidate(
            id=f"{number}.{i}",
            search_id="s",
            episode=number,
            position=i,
            index=10 * number + i,
            architecture=Architecture(1, 1, 12, 12),
            source="random",
            predicted_reward=None,
            status="failed" if reward is None else "succeeded",
            reward=reward,
            losses=None if reward is None else Losses(1.0, 0.1, 1 - reward, 0.5),
        )
        for i, reward in enumerate(rewards)
    )
    return Episode("s", number, 0.5, finished, candidates=candidates)


def test_failures_are_told_as_the_worst_reward_seen_by_then() -> None:
    episodes = [episode(1, [None, 0.7]), episode(2, [0.9, None]), episode(3, [0.1, None])]
    told = [[(o.reward, o.failed) for o in e] for e in history_of(episodes, "relative").episodes]
    assert told == [
        [(0.7, True), (0.7, False)],
        [(0.9, False), (0.7, True)],
        [(0.1, False), (0.1, True)],
    ]


def test_nothing_but_failures_is_told_as_zero() -> None:
    history = history_of([episode(1, [None, None])], "relative")
    assert [o.reward for o in history.episodes[0]] == [0.0, 0.0]
    assert history.global_best(2) is None


def test_unfinished_episodes_are_left_out() -> None:
    history = history_of([episode(1, [0.5]), episode(2, [0.6], finished=False)], "relative")
    assert len(history.episodes) == 1
    assert history.indices == {10}


def test_bests_are_those_of_earlier_episodes() -> None:
    history = history_of(
        [episode(1, [0.9, 0.2]), episode(2, [0.5, 0.5]), episode(3, [1.0])], "relative"
    )
    bests = [(history.global_best(n), history.previous_best(n)) for n in (1, 2, 3, 4)]
    assert [(g and g.index, p and p.index) for g, p in bests] == [
        (None, None),
        (10, 10),
        (10, 20),
        (30, 30),
    ]


def test_extending_equals_reading_all() -> None:
    episodes = [episode(1, [None, 0.7]), episode(2, [None, 0.3])]
    history = History()
    for one in episodes:
        history = extended(history, one, "relative")
    assert history == history_of(episodes, "relative")


def test_the_loss_that_rewards_are_made_of_is_told() -> None:
    told = history_of([episode(1, [0.75, None])], "relative").episodes[0]
    assert [o.loss for o in told] == [0.25, None]
    assert [o.loss for o in history_of([episode(1, [0.75])], "output").episodes[0]] == [0.5]


def test_stopped_states_are_told_with_what_is_foretold_of_them() -> None:
    """They are no failures, and count neither as the best nor as the worst that was seen."""
    first = episode(1, [0.75, None, None])
    stopped = replace(first.candidates[2], status="stopped")
    told = history_of(
        [replace(first, candidates=(*first.candidates[:2], stopped))],
        "relative",
        lambda candidate: (0.9, 0.99 if candidate is stopped else 0.0),
    )
    trained, failed, foretold = told.episodes[0]
    assert (trained.reward, trained.stopped) == (0.75, False)
    assert (failed.reward, failed.failed, failed.stopped) == (0.75, True, False)
    assert (foretold.loss, foretold.reward) == (0.9, 0.99)
    assert (foretold.failed, foretold.stopped) == (False, True)
    assert told.global_best(2) == told.previous_best(2) == trained
    assert told.trained == {10: 0.25}
    assert told.indices == {10, 11, 12}
