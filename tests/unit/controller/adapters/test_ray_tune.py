"""The searcher without a cluster; with one it is tried in tests/integration."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.adapters.ray_tune import KdnasSearcher
from controller.adapters.rounds import StudentSearch
from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.search_space import SearchSpace
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_losses

MakeSearch = Callable[..., StudentSearch]


def finish(searcher: KdnasSearcher, trial_id: str, config: dict[str, Any]) -> None:
    loss = benchmark_losses(Architecture(**config)).relative
    searcher.on_trial_complete(trial_id, {"loss": loss, "done": True})


def played(searcher: KdnasSearcher, numbers: range) -> list[str]:
    """Run these trials one after the other."""
    seen = []
    for number in numbers:
        config = searcher.suggest(f"t{number}")
        assert isinstance(config, dict)
        seen.append(str(Architecture(**config)))
        finish(searcher, f"t{number}", config)
    return seen


@pytest.mark.parametrize("strategy", ["controller", "tpe", "evolution"])
def test_no_state_is_suggested_twice_and_the_seed_decides(
    make_search: MakeSearch, strategy: str
) -> None:
    one, same, other = (
        played(KdnasSearcher(make_search(strategy, seed=seed)), range(11)) for seed in (1, 1, 2)
    )
    assert one == same != other
    assert len(set(one)) == 11


def test_proposals_do_not_depend_on_how_many_run_at_once(make_search: MakeSearch) -> None:
    searcher, seen = KdnasSearcher(make_search()), []
    for episode in range(3):
        ids = [f"{episode}.{position}" for position in range(4)]
        configs = [searcher.suggest(trial_id) for trial_id in ids]
        assert searcher.suggest("waits") is None
        for trial_id, config in reversed(list(zip(ids, configs, strict=True))):
            assert isinstance(config, dict)
            finish(searcher, trial_id, config)
        seen += [str(Architecture(**config)) for config in configs if isinstance(config, dict)]
    assert seen == played(KdnasSearcher(make_search()), range(12))


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, True),
        (None, False),
        ({"loss": 0.1}, True),
        ({"loss": float("nan")}, False),
        ({}, False),
    ],
)
def test_trials_that_come_to_nothing_are_failures(
    make_search: MakeSearch, result: dict[str, float] | None, error: bool
) -> None:
    searcher, reference = KdnasSearcher(make_search()), KdnasSearcher(make_search())
    first, told = searcher.suggest("t0"), reference.suggest("t0")
    assert isinstance(first, dict)
    assert first == told
    searcher.on_trial_complete("t0", result, error)
    reference.on_trial_complete("t0", error=True)
    seen = played(searcher, range(1, 9))
    assert seen == played(reference, range(1, 9))
    assert str(Architecture(**first)) not in seen


def test_trials_of_others_are_passed_over(make_search: MakeSearch) -> None:
    searcher = KdnasSearcher(make_search())
    searcher.on_trial_complete("nobody's", {"loss": 0.0})
    assert played(searcher, range(4)) == played(KdnasSearcher(make_search()), range(4))


def test_it_finishes_with_the_last_state(make_search: MakeSearch) -> None:
    search = make_search(limits={"max_latency_ratio": 0.2})
    searcher = KdnasSearcher(search)
    seen = played(searcher, range(len(search.allowed)))
    assert sorted(BENCHMARK_SPACE.index(Architecture.parse(text)) for text in seen) == (
        search.allowed
    )
    assert searcher.suggest("one more") == KdnasSearcher.FINISHED


@pytest.mark.parametrize("at", [0, 3, 6])
def test_a_restored_searcher_goes_on_as_if_undisturbed(
    make_search: MakeSearch, at: int, tmp_path: Path
) -> None:
    """Also with a trial on its way, which ends after that."""
    through = played(KdnasSearcher(make_search()), range(12))
    first, second = KdnasSearcher(make_search()), KdnasSearcher(make_search())
    before = played(first, range(at))
    running = first.suggest(f"t{at}")
    first.save(str(tmp_path / "state"))
    second.restore(str(tmp_path / "state"))
    assert isinstance(running, dict)
    finish(second, f"t{at}", running)
    after = played(second, range(at + 1, 12))
    assert [*before, str(Architecture(**running)), *after] == through


def test_a_state_of_another_space_or_version_is_refused(
    make_search: MakeSearch, tmp_path: Path
) -> None:
    path, searcher = tmp_path / "state", KdnasSearcher(make_search())
    searcher.save(str(path))
    other = SearchSpace((1,), (2,), (96, 192), (192,), ("gelu",))
    with pytest.raises(SpecError, match="restore it with the space that it was made for"):
        KdnasSearcher(make_search(space=other)).restore(str(path))
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 0}))
    with pytest.raises(SpecError, match="'version': 0"):
        searcher.restore(str(path))


def test_ray_tune_may_write_it_down(make_search: MakeSearch) -> None:
    searcher = KdnasSearcher(make_search())
    before = played(searcher, range(5))
    copy = pickle.loads(pickle.dumps(searcher))
    assert before + played(copy, range(5, 9)) == played(KdnasSearcher(make_search()), range(9))


def test_losses_are_minimised(make_search: MakeSearch) -> None:
    with pytest.raises(SpecError, match="mode is 'max'; losses are minimised"):
        KdnasSearcher(make_search(), mode="max")
