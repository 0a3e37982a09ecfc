"""A search as a study of Optuna, for those who look at studies with Optuna's tools."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from kdnas.cli.tables.files import write_whole
from kdnas.records import SearchRecord
from kdnas.search_space import AXES
from kdnas.specs.search import RewardSpec

Row = Mapping[str, Any]

_STATES: Final = {
    "succeeded": TrialState.COMPLETE,
    "failed": TrialState.FAIL,
    "stopped": TrialState.PRUNED,
    "running": TrialState.RUNNING,
    "proposed": TrialState.WAITING,
}
_ATTRIBUTES: Final = (
    *("id", "episode", "source", "predicted_reward", "reward"),
    *("loss_relative", "loss_output", "loss_mean", "loss_training", "loss_start"),
    *("latency_ms", "latency_ratio", "params_millions", "num_steps", "error", "note"),
)
"""Columns of a candidate that a trial has as user attributes, where they hold something."""


def write_study(
    search: SearchRecord, axes: Mapping[str, Sequence[Any]] | None, rows: Sequence[Row], path: Path
) -> int:
    """Write every candidate, a trial each, as a study in a file of SQLite; whole or not at all.

    The study has the search's name. Its value is the reward, or, if the search's goal is the
    front, loss and latency. The losses that were read at rungs are intermediate values, also where
    the value is the reward; a trial that was stopped there is pruned.

    Args:
        search: as it is stored.
        axes: of its space; None takes the values that candidates have.
        rows: its candidates by episode and position, as ``candidates_after`` reads them.
        path: of the file.

    Returns:
        The number of trials.

    Raises:
        StoreError: it cannot be written.
    """
    if axes is None:
        axes = {axis: sorted({row[axis] for row in rows}) for axis in AXES}
    choices: dict[str, BaseDistribution] = (
        {axis: CategoricalDistribution(axes[axis]) for axis in AXES} if rows else {}
    )
    values, loss = _values(search), f"loss_{_reward(search).loss}"
    # SQLite's own name of a file would take some characters of a path for something else.
    with closing(sqlite3.connect(":memory:")) as connection, _quiet():
        storage = RDBStorage("sqlite://", engine_kwargs={"creator": lambda: connection})
        directions = [direction for _, direction in values.values()]
        study = optuna.create_study(storage=storage, study_name=search.name, directions=directions)
        study.set_metric_names(list(values))
        about = {"search": search.id, "status": search.status, "spec": dict(search.spec)}
        for name, value in about.items():
            study.set_user_attr(name, value)
        columns = [column for column, _ in values.values()]
        study.add_trials(_trial(row, choices, columns, loss) for row in rows)
        content = connection.serialize()

    def write(draft: Path) -> None:
        draft.write_bytes(content)

    write_whole(path, write)
    return len(rows)


def _values(search: SearchRecord) -> dict[str, tuple[str, StudyDirection]]:
    """Name of each value → the column that it is in, and where it is to go."""
    if search.spec.get("goal", "reward") != "front":
        return {"reward": ("reward", StudyDirection.MAXIMIZE)}
    return {
        "loss": (f"loss_{_reward(search).loss}", StudyDirection.MINIMIZE),
        "latency_ms": ("latency_ms", StudyDirection.MINIMIZE),
    }


def _reward(search: SearchRecord) -> RewardSpec:
    return RewardSpec.read(search.spec.get("reward", {}), "reward")


def _trial(
    row: Row, choices: dict[str, BaseDistribution], columns: Sequence[str], loss: str
) -> FrozenTrial:
    state = _STATES[row["status"]]
    done = state is TrialState.COMPLETE
    trial = create_trial(
        state=state,
        values=[row[column] for column in columns] if done else None,
        params={axis: row[axis] for axis in AXES},
        distributions=choices,
        user_attrs={name: row[name] for name in _ATTRIBUTES if row[name] is not None},
        intermediate_values={reading["step"]: reading[loss] for reading in row["readings"]},
    )
    if state is not TrialState.WAITING:
        trial.datetime_start = _local(row["created_at"])
    if state.is_finished():
        trial.datetime_complete = _local(row["finished_at"])
    return trial


def _local(time: datetime) -> datetime:
    """As Optuna has times: of this machine, without a zone."""
    return time.astimezone().replace(tzinfo=None)


@contextmanager
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Names of values are an experiment of Optuna's; without them a chart numbers them.
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
