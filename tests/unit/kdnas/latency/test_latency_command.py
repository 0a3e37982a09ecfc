"""``kdnas latency`` on a tiny teacher and an SQLite file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.inputs import preparation
from kdnas.cli.latency import app
from kdnas.errors import ArchitectureError, LatencyError, NotFoundError, SpecError
from kdnas.latency import table as table_module
from kdnas.latency.device_lock import measuring_lock
from kdnas.latency.measure import Effort
from kdnas.models.teacher import TeacherHandle
from kdnas.records import LatencyTable
from kdnas.search_space import SearchSpace


@pytest.fixture(autouse=True)
def _tiny_world(
    handle: TeacherHandle, space: SearchSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))
    monkeypatch.delenv("KDNAS_DATABASE_URL", raising=False)
    monkeypatch.setattr("kdnas.models.teacher.prepare_teacher", lambda ref: handle)
    monkeypatch.setattr(SearchSpace, "scaled_to", lambda shape: space)
    for name in ("CAREFUL", "THOROUGH", "QUICK"):
        monkeypatch.setattr(table_module, name, Effort(rounds=1, repeats=2, warmups=0))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--length", "8"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_build_show_verify(space: SearchSpace) -> None:
    built = run_json("build", "--budget-seconds", "0.01")
    assert built["num_entries"] == len(space)
    assert built["teacher_ms"] > 0
    row = run_json("show", "--arch", "3,2,12,48,relu")
    assert row["ratio"] == pytest.approx(row["latency_ms"] / built["teacher_ms"])
    assert not row["measured"]
    assert "from the block model" in run("show", "--arch", "3, 2, 12, 48, relu")
    assert len(run_json("show")["entries"]) == len(space)
    assert "slowest" in run("show")
    assert len(run_json("verify", "--students", "5")["students"]) == 5
    assert "Spearman" in run("verify", "--students", "5")


def test_a_build_has_the_machine_for_itself_and_takes_the_place_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build = preparation.build_latency_table

    def watched(*arguments: Any, **options: Any) -> LatencyTable:
        with pytest.raises(LatencyError, match="still taken"), measuring_lock(wait_seconds=0):
            pass
        return build(*arguments, **options)

    monkeypatch.setattr(preparation, "build_latency_table", watched)
    first, second = (run_json("build", "--budget-seconds", "0.01") for _ in range(2))
    assert run_json("show")["teacher_ms"] == second["teacher_ms"] != first["teacher_ms"]


def test_an_exhaustive_build_goes_on_where_it_stopped(
    space: SearchSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    time_batch = table_module._Workshop.time

    def broken_off(self: Any, architectures: Any, effort: Effort) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(architectures))
        return time_batch(self, architectures, effort)

    monkeypatch.setattr(table_module._Workshop, "time", broken_off)
    assert CliRunner().invoke(app, ["build", "--exhaustive", "--length", "8"]).exit_code != 0
    with pytest.raises(NotFoundError, match="kdnas latency build"):
        run("show")
    monkeypatch.setattr(table_module._Workshop, "time", time_batch)
    assert run_json("build", "--exhaustive")["num_entries"] == len(space)
    assert "(measured)" in run("show", "--arch", "3,2,12,48,relu")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (["show"], NotFoundError, "kdnas latency build"),
        (["build", "--space", "papr"], SpecError, "did you mean 'paper'"),
        (["build", "--threads", "0"], SpecError, "threads"),
        (["build", "--dtype", "float8"], SpecError, "dtype"),
    ],
)
def test_wrong_requests(arguments: list[str], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        run(*arguments)


def test_a_length_beyond_the_positions_is_refused() -> None:
    with pytest.raises(SpecError, match=r"\(17\) is above .* \(16\)"):
        CliRunner().invoke(app, ["build", "--length", "17"], catch_exceptions=False)


def test_an_architecture_that_is_not_there() -> None:
    run("build", "--budget-seconds", "0.01")
    with pytest.raises(NotFoundError, match="not in the latency table"):
        run("show", "--arch", "7,2,12,48,relu")
    with pytest.raises(ArchitectureError, match="5"):
        run("show", "--arch", "7,2")
