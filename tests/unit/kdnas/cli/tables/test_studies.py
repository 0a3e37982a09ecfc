"""A search as a study of Optuna, opened again by Optuna."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import TrialState
from typer.testing import CliRunner

from kdnas.architecture import Architecture
from kdnas.cli.main import app
from kdnas.cli.tables.studies import write_study
from kdnas.db.engine import Database
from kdnas.db.exploration import candidates
from kdnas.db.lists.candidate_pages import candidates_after
from kdnas.db.repository import searches
from kdnas.errors import KdnasError, SpecError, StoreError
from kdnas.records import Losses, MiniKDResult, NewCandidate, Proposal, Reading, SearchRecord
from kdnas.search_space import AXES
from kdnas.specs.search import SearchSpec
from kdnas.testing.benchmark_space import BENCHMARK_SPACE, benchmark_ms, benchmark_params

pytestmark = pytest.mark.databases("sqlite")

PROPOSED = (3, 40, 71, 95)
"""States: the first is trained, the second has failed, the third is being trained."""


@dataclass(frozen=True)
class Stored:
    record: SearchRecord
    rows: Sequence[dict[str, Any]]


def new(index: int) -> NewCandidate:
    state = BENCHMARK_SPACE[index]
    ms = benchmark_ms(state)
    return NewCandidate(
        Proposal(index, "controller", 0.5), state, ms, ms / 10, benchmark_params(state)
    )


def store(database: Database, goal: str = "reward") -> Stored:
    spec = SearchSpec.read({"goal": goal, "reward": {"loss": "output"}}, "test")
    with database.write() as session:
        search = searches.create_search(session, spec.to_json(), name="mine", owner_kind="cli")
        episode = candidates.begin_episode(
            session, search.id, 1, 1.0, None, None, [new(index) for index in PROPOSED]
        )
        ids = [candidate.id for candidate in episode.candidates]
        candidates.start_attempts(session, ids[:3], "w")
        for position, losses in ((0, Losses(0.5, 0.25, 0.375, 0.125)), (1, None)):
            result = MiniKDResult(
                candidate_id=ids[position],
                architecture=episode.candidates[position].architecture,
                losses=losses,
                error=None if losses else "out of memory",
                steps=1,
                train_seconds=1.0,
            )
            reward = 0.75 if losses else None
            candidates.finish_candidate(session, ids[position], "made-up", result, reward, None)
    with database.read() as session:
        record = searches.get_search(session, "mine")
        return Stored(record, candidates_after(session, record.id, None, 100))


def opened(path: Path) -> optuna.Study:
    return optuna.load_study(study_name="mine", storage=f"sqlite:///{path}")


def test_every_candidate_is_a_trial(database: Database, tmp_path: Path) -> None:
    stored, path = store(database), tmp_path / "study.db"
    assert write_study(stored.record, BENCHMARK_SPACE.axes, stored.rows, path) == 4
    study = opened(path)
    assert study.directions == [StudyDirection.MAXIMIZE]
    assert study.metric_names == ["reward"]
    assert study.user_attrs == {
        "search": stored.record.id,
        "status": stored.record.status,
        "spec": stored.record.spec,
    }
    assert [trial.state for trial in study.trials] == [
        *(TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING, TrialState.WAITING)
    ]
    assert [BENCHMARK_SPACE.index(Architecture(**t.params)) for t in study.trials] == [*PROPOSED]
    done, failed, running, waiting = study.trials
    assert done.values == [0.75]
    choices = {axis: done.distributions[axis].choices for axis in AXES}  # type: ignore[attr-defined]
    assert choices == BENCHMARK_SPACE.axes
    row = stored.rows[0]
    assert done.user_attrs == {
        "id": row["id"],
        "episode": 1,
        "source": "controller",
        "predicted_reward": 0.5,
        "reward": 0.75,
        "loss_training": 0.5,
        "loss_mean": 0.25,
        "loss_relative": 0.375,
        "loss_output": 0.125,
        "latency_ms": row["latency_ms"],
        "latency_ratio": row["latency_ratio"],
        "params_millions": row["params_millions"],
        "num_steps": 1,
    }
    assert failed.user_attrs["error"] == "out of memory"
    for trial, stored_row in zip(study.trials[:2], stored.rows, strict=False):
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        assert trial.datetime_start.astimezone() == stored_row["created_at"]
        assert trial.datetime_complete.astimezone() == stored_row["finished_at"]
    assert running.datetime_complete is None
    assert waiting.datetime_start is None
    assert study.best_trial.number == 0
    assert [file.name for file in tmp_path.iterdir() if "study" in file.name] == ["study.db"]


def test_a_front_has_two_values(database: Database, tmp_path: Path) -> None:
    stored, path = store(database, goal="front"), tmp_path / "a?b #1%20.db"
    write_study(stored.record, BENCHMARK_SPACE.axes, stored.rows, path)
    study = opened(path.rename(tmp_path / "plain.db"))
    assert study.directions == [StudyDirection.MINIMIZE] * 2
    assert study.metric_names == ["loss", "latency_ms"]
    assert study.trials[0].values == [0.125, stored.rows[0]["latency_ms"]]
    assert [trial.number for trial in study.best_trials] == [0]


@pytest.mark.parametrize("goal", ["reward", "front"])
def test_what_rungs_stopped_is_pruned_and_has_what_was_read_there(
    database: Database, tmp_path: Path, goal: str
) -> None:
    before = store(database, goal)
    readings = tuple(Reading(step, Losses(0.5, 0.25, 0.375, 4 / step)) for step in (8, 16))
    row = before.rows[2]
    result = MiniKDResult(
        candidate_id=row["id"],
        architecture=Architecture.parse(row["architecture"]),
        losses=None,
        error=None,
        steps=16,
        train_seconds=1.0,
        readings=readings,
    )
    with database.write() as session:
        candidates.finish_candidate(session, row["id"], "made-up", result, None, "stopped after 16")
    with database.read() as session:
        rows = candidates_after(session, before.record.id, None, 100)
    write_study(before.record, BENCHMARK_SPACE.axes, rows, tmp_path / "study.db")
    trial = opened(tmp_path / "study.db").trials[2]
    assert trial.state is TrialState.PRUNED
    assert trial.intermediate_values == {8: 0.5, 16: 0.25}
    assert trial.datetime_complete is not None
    assert (trial.user_attrs["num_steps"], trial.user_attrs["note"]) == (16, "stopped after 16")
    assert "reward" not in trial.user_attrs


def test_without_axes_the_values_of_candidates_are_taken(
    database: Database, tmp_path: Path
) -> None:
    stored, path = store(database), tmp_path / "study.db"
    write_study(stored.record, None, stored.rows, path)
    seen = {BENCHMARK_SPACE[index].layers for index in PROPOSED}
    assert opened(path).trials[0].distributions["layers"].choices == (  # type: ignore[attr-defined]
        tuple(sorted(seen))
    )


def test_a_search_without_candidates_is_an_empty_study(tmp_path: Path, database: Database) -> None:
    record = replace(store(database).record, spec={})  # of before goals
    assert write_study(record, None, [], tmp_path / "study.db") == 0
    assert opened(tmp_path / "study.db").trials == []


def test_what_cannot_be_written_leaves_nothing(database: Database, tmp_path: Path) -> None:
    stored = store(database)
    with pytest.raises(StoreError, match=r"could not be written .*; choose another --output"):
        write_study(stored.record, None, stored.rows, tmp_path / "none" / "study.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="could not be written"):
        write_study(stored.record, None, stored.rows, tmp_path / "folder")
    assert not [path for path in tmp_path.iterdir() if "draft" in path.name]


@pytest.fixture
def _home(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    store(database)


def export(*arguments: str) -> str:
    result = CliRunner().invoke(
        app, ["searches", "export", "mine", *arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


@pytest.mark.usefixtures("_home")
def test_the_command_replaces_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    path.write_text("before")
    said = export("--output", str(path), "--format", "optuna", "--json")
    assert json.loads(said)["rows"] == 4
    assert len(opened(path).trials) == 4


@pytest.mark.usefixtures("_home")
def test_the_command_takes_the_format_from_the_ending_or_is_told(tmp_path: Path) -> None:
    export("--output", str(tmp_path / "a.csv"))
    export("--output", str(tmp_path / "b.txt"), "--format", "csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.txt").read_text()


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "a.db"], r"unknown file ending '\.db'.*; --format names others"),
        (
            ["--output", "a.db", "--format", "optun"],
            "unknown format 'optun', did you mean 'optuna'",
        ),
    ],
)
def test_other_formats_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        export(*arguments)
    assert isinstance(caught.value, KdnasError)
    assert not (tmp_path / "a.db").exists()
