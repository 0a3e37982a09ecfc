from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState, create_trial

from controller.adapters.optuna_sampler import KdnasSampler, suggest
from controller.adapters.rounds import StudentSearch
from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError, SearchSpaceError, SpecError
from kdnas.search_space import SearchSpace
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_losses

MakeSearch = Callable[..., StudentSearch]
STRATEGIES = ("controller", "gp", "tpe", "random", "evolution")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def objective(trial: optuna.Trial) -> float:
    return benchmark_losses(suggest(trial, BENCHMARK_SPACE)).relative


def studied(search: StudentSearch, count: int) -> optuna.Study:
    study = optuna.create_study(sampler=KdnasSampler(search))
    study.optimize(objective, n_trials=count)
    return study


def states(study: optuna.Study) -> list[str]:
    return [str(Architecture(**trial.params)) for trial in study.trials]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_state_is_proposed_twice_and_the_seed_decides(
    make_search: MakeSearch, strategy: str
) -> None:
    first = states(studied(make_search(strategy, seed=1), 11))
    assert len(set(first)) == 11
    assert first == states(studied(make_search(strategy, seed=1), 11))
    assert first != states(studied(make_search(strategy, seed=2), 11))


@pytest.mark.parametrize("strategy", ["controller", "tpe"])
def test_a_resumed_study_goes_on_as_if_undisturbed(
    make_search: MakeSearch, strategy: str, tmp_path: Path
) -> None:
    through, url = states(studied(make_search(strategy), 14)), f"sqlite:///{tmp_path / 's.db'}"
    for count in (3, 5, 1, 5):
        study = optuna.create_study(
            storage=url,
            study_name="s",
            load_if_exists=True,
            sampler=KdnasSampler(make_search(strategy)),
        )
        study.optimize(objective, n_trials=count)
    assert states(study) == through


def test_a_study_ends_with_its_last_state(make_search: MakeSearch) -> None:
    search = make_search(limits={"max_latency_ratio": 0.2})
    study = studied(search, 1000)
    assert sorted(map(BENCHMARK_SPACE.index, map(Architecture.parse, states(study)))) == (
        search.allowed
    )
    with pytest.raises(SpecError, match=f"has tried all of {len(search.allowed)} states"):
        study.optimize(objective, n_trials=1)


def test_asked_and_told_from_outside(make_search: MakeSearch) -> None:
    search = make_search(limits={"max_latency_ratio": 0.2})
    study = optuna.create_study(sampler=KdnasSampler(search))
    for _ in search.allowed:
        trial = study.ask()
        study.tell(trial, objective(trial))
    assert states(study) == states(studied(search, 1000))


def test_trials_that_come_to_nothing_are_failures(make_search: MakeSearch) -> None:
    """They are told as such, and their states are not proposed again."""

    def troubled(trial: optuna.Trial) -> float:
        if trial.number == 0:
            trial.suggest_float("rate", 0, 1)
            raise RuntimeError("before it asks for its student")
        loss = objective(trial)
        if trial.number == 1:
            raise RuntimeError("out of memory")
        if trial.number == 2:
            raise optuna.TrialPruned
        return {3: float("inf"), 4: float("nan")}.get(trial.number, loss)

    study = optuna.create_study(sampler=KdnasSampler(make_search()))
    study.optimize(troubled, n_trials=12, catch=(RuntimeError,))
    undisturbed = states(studied(make_search(), 4))  # the first episode
    assert [str(Architecture(**t.params)) for t in study.trials[1:4]] == undisturbed[1:]
    assert undisturbed[0] not in [str(Architecture(**t.params)) for t in study.trials[1:]]
    assert len({str(t.params) for t in study.trials}) == 12


def test_a_state_whose_process_was_killed_is_proposed_again_last(make_search: MakeSearch) -> None:
    through = states(studied(make_search(), 9))
    study = optuna.create_study(sampler=KdnasSampler(make_search()))
    suggest(study.ask(), BENCHMARK_SPACE)
    study.optimize(objective, n_trials=9)
    first, *others = states(study)
    assert first == through[0]
    assert others[:4] == [*through[1:4], through[0]]
    assert others[4:] == through[4:]  # told in the order of the proposals
    study.tell(0, state=TrialState.FAIL)  # as a heartbeat finds out
    study.optimize(objective, n_trials=2)
    assert len(set(states(study))) == 11


def test_queued_trials_and_those_of_others_count(make_search: MakeSearch) -> None:
    search = make_search("random")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=6)
    study.sampler = KdnasSampler(search)
    queued = next(i for i in search.allowed if str(BENCHMARK_SPACE[i]) not in states(study))
    others = len(set(states(study)))
    study.enqueue_trial(search.params_of(queued))
    study.optimize(objective, n_trials=1000)
    assert states(study)[6] == str(BENCHMARK_SPACE[queued])
    later = states(study)[6:]
    assert len(later) == len(set(later)) == len(BENCHMARK_SPACE) - others


def test_trials_that_are_no_states_are_passed_over(make_search: MakeSearch) -> None:
    values = {"layers": 3, "heads": 5, "hidden": 96, "intermediate": 192, "activation": "gelu"}
    axes = {axis: CategoricalDistribution((value,)) for axis, value in values.items()}
    study = optuna.create_study(sampler=KdnasSampler(make_search()))
    for params in ({"rate": 1}, values):
        choices = {name: axes.get(name, CategoricalDistribution((1,))) for name in params}
        study.add_trial(create_trial(params=params, distributions=choices, value=0.0))
    study.optimize(objective, n_trials=4)
    proposed = [str(Architecture(**trial.params)) for trial in study.trials[2:]]
    assert proposed == states(studied(make_search(), 4))


def test_one_sampler_serves_several_studies(make_search: MakeSearch) -> None:
    sampler = KdnasSampler(make_search())
    studies = [optuna.create_study(sampler=sampler) for _ in range(2)]
    for _ in range(5):
        for study in studies:
            study.optimize(objective, n_trials=1)
    assert states(studies[0]) == states(studies[1]) == states(studied(make_search(), 5))


def test_other_parameters_are_drawn_by_seed_and_number(make_search: MakeSearch) -> None:
    def with_rate(trial: optuna.Trial) -> float:
        return objective(trial) + trial.suggest_float("rate", 0, 1)

    drawn = []
    for seed in (0, 0, 1):
        study = optuna.create_study(sampler=KdnasSampler(make_search(seed=seed)))
        study.optimize(with_rate, n_trials=5)
        drawn.append([trial.params["rate"] for trial in study.trials])
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 5


def test_goal_front_takes_losses_alone(make_search: MakeSearch) -> None:
    assert len(set(states(studied(make_search("tpe", goal="front"), 9)))) == 9


@pytest.mark.parametrize("directions", [["maximize"], ["minimize", "minimize"]])
def test_other_directions_are_refused(make_search: MakeSearch, directions: list[str]) -> None:
    study = optuna.create_study(directions=directions, sampler=KdnasSampler(make_search()))
    with pytest.raises(SpecError, match=f"wants to {', '.join(directions)}; make one"):
        study.optimize(objective, n_trials=1)


def test_an_objective_that_takes_no_student_is_refused(make_search: MakeSearch) -> None:
    study = optuna.create_study(sampler=KdnasSampler(make_search()))
    with pytest.raises(SpecError, match=r"trial 0 lacks .* \(it has rate\); take the student"):
        study.optimize(lambda trial: trial.suggest_float("rate", 0, 1), n_trials=3)
    with pytest.raises(SpecError, match=r"trial 1 lacks .* \(it has none\)"):
        study.optimize(lambda _: 0.5, n_trials=3)


def test_what_other_samplers_ask_for_is_checked() -> None:
    space = SearchSpace((2,), (3,), (96, 100), (96,), ("gelu",))
    fixed = {"layers": 2, "heads": 3, "hidden": 100, "intermediate": 96, "activation": "gelu"}
    with pytest.raises(ArchitectureError, match="must divide"):
        suggest(optuna.trial.FixedTrial(fixed), space)
    wide = SearchSpace((2,), (2, 4), (96, 100), (96,), ("gelu",), head_multiple=16)
    with pytest.raises(SearchSpaceError, match="is not in the search space"):
        suggest(optuna.trial.FixedTrial({**fixed, "heads": 4}), wide)
