"""Any strategy as a sampler of Optuna.

All that it knows is in the study: its finished trials, told anew in the order of their ends, and a
mark on each trial that says which state was proposed for it. So a study goes on in another process
as if it had never rested.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import BaseTrial, FrozenTrial, TrialState

from controller.adapters.rounds import Rounds, StudentSearch
from kdnas.architecture import Architecture
from kdnas.errors import SpecError
from kdnas.search_space import AXES, SearchSpace

PROPOSED: Final = "kdnas:proposed"
"""System attribute of a trial: index of the state that was proposed for it."""


def suggest(trial: BaseTrial, space: SearchSpace) -> Architecture:
    """Take a trial's student: one categorical parameter for each axis of the space.

    Raises:
        ArchitectureError: another sampler asks for heads that do not divide the hidden size.
        SearchSpaceError: another sampler asks for a state that is not in the space.
    """
    values = {axis: trial.suggest_categorical(axis, axes) for axis, axes in space.axes.items()}
    state = Architecture(**values)
    space.index(state)
    return state


class KdnasSampler(BaseSampler):
    """Proposes students by a strategy of kdnas, in a study that minimises their held-out loss.

    Trials that fail or are pruned count as failures, and so do losses that are not finite. Trials
    of other samplers and queued ones count as well, as far as they are states of the space.
    Parameters that are no axes are drawn at random. When all states within the limits are tried
    ``study.optimize`` ends.

    It is made for one trial after the other (``n_jobs=1``): a state whose trial is still running
    is proposed again where its episode has no other left, since the trial's process may be gone.

    Args:
        search: what is searched.

    Raises:
        SpecError: see :class:`~controller.adapters.rounds.Rounds`.
    """

    def __init__(self, search: StudentSearch) -> None:
        self._search = search
        self._rounds, self._told = Rounds(search), list[tuple[datetime, int]]()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The axes of the space."""
        axes = self._search.space.axes
        return {axis: CategoricalDistribution(axes[axis]) for axis in AXES}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Propose a state.

        Raises:
            SpecError: the study does not minimise one value, or no state is left.
        """
        waiting = self._up_to_date(study).ask()
        if not waiting:
            raise SpecError(
                f"study {study.study_name} has tried all of {len(self._search.allowed)} states "
                "that are allowed; raise a limit or take a larger space"
            )
        running = {self._index(t, t.state) for t in _trials(study, TrialState.RUNNING)}
        index = next((index for index in waiting if index not in running), waiting[0])
        # As Optuna's own samplers do: there is no public way.
        study._storage.set_trial_system_attr(trial._trial_id, PROPOSED, index)
        return self._search.params_of(index)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a parameter that is no axis, from the seed, the trial's number and the name."""
        entropy = [self._search.spec.seed, trial.number, *param_name.encode()]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return RandomSampler(seed).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """End the study with the last state.

        Raises:
            SpecError: the objective takes its students from elsewhere.
        """
        if state is TrialState.COMPLETE and not _has_axes(trial):
            raise SpecError(
                f"trial {trial.number} lacks parameters of {', '.join(AXES)} (it has "
                f"{', '.join(trial.params) or 'none'}); take the student from suggest(trial, space)"
            )
        if self._up_to_date(study).untold <= {self._index(trial, state)}:
            with suppress(RuntimeError):  # asked and told from outside, there is no loop to end
                study.stop()

    def _up_to_date(self, study: Study) -> Rounds:
        """Tell what has come since the last question, or all if this is another study."""
        if study.directions != [StudyDirection.MINIMIZE]:
            wanted = ", ".join(direction.name.lower() for direction in study.directions)
            raise SpecError(
                f"study {study.study_name} wants to {wanted}; make one that minimises the held-out "
                "loss alone, since latencies are known beforehand"
            )
        ended = _trials(study, TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)
        trials = sorted(ended, key=_end)
        ends = [_end(trial) for trial in trials]
        if ends[: len(self._told)] != self._told:
            self._rounds, self._told = Rounds(self._search), []
        for trial in trials[len(self._told) :]:
            if PROPOSED in trial.system_attrs:
                self._rounds.ask()  # as was done before the trial began
            index = self._index(trial, trial.state)
            if index is not None:
                self._rounds.tell(index, _loss(trial))
        self._told = ends
        return self._rounds

    def _index(self, trial: FrozenTrial, state: TrialState) -> int | None:
        """The state that a trial tried, or was to try; None if it is none of the space."""
        if _has_axes(trial):
            return self._search.index_of(trial.params)
        if state is TrialState.COMPLETE:
            return None
        proposed: int | None = trial.system_attrs.get(PROPOSED)
        return proposed


def _trials(study: Study, *states: TrialState) -> list[FrozenTrial]:
    """From the storage, since some pruners show a sampler a part of the study only."""
    return study._storage.get_all_trials(study._study_id, deepcopy=False, states=states)


def _has_axes(trial: FrozenTrial) -> bool:
    return all(axis in trial.params for axis in AXES)


def _end(trial: FrozenTrial) -> tuple[datetime, int]:
    """When a finished trial ended; of several its number decides."""
    assert trial.datetime_complete is not None
    return trial.datetime_complete, trial.number


def _loss(trial: FrozenTrial) -> float | None:
    return trial.value if trial.state is TrialState.COMPLETE else None
