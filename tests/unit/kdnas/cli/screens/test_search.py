"""What a search shows: while it waits, a line a candidate, and its result as tables and files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kdnas.architecture import Architecture
from kdnas.cli.screens.search import (
    SearchScreen,
    _plan_facts,
    candidate_line,
    found_so_far,
    show_result,
)
from kdnas.cli.tables.candidates import write_table
from kdnas.records import Candidate, Episode, GroupProgress, Losses, Reading, SearchRecord
from kdnas.search.progress import EpisodeDone
from kdnas.search.summary import summarise

RECORD = SearchRecord("s", "trial", "succeeded", {}, "cli", datetime(2024, 1, 1, tzinfo=UTC))
DONE = Candidate(
    id="c0",
    search_id="s",
    episode=1,
    position=0,
    index=0,
    architecture=Architecture(12, 12, 768, 3072, "gelu"),
    source="controller",
    predicted_reward=None,
    status="succeeded",
    losses=Losses(0.1, 0.2, 0.25, 0.375),
    loss_start=0.625,
    latency_ms=12.5,
    latency_ratio=0.5,
    params_millions=110.1,
    reward=0.7,
)
UNKNOWN = replace(DONE, id="c1", position=1, index=1, reward=0.6, loss_start=None)
RUINED = replace(
    DONE, id="c2", position=2, index=2, status="failed", reward=None, error="has not learned: 1.03"
)
STOPPED = replace(
    DONE,
    id="c3",
    position=3,
    index=3,
    status="stopped",
    losses=None,
    reward=None,
    note="stopped after 30 of 480 steps: a loss of 0.612 by then foretells 0.524",
    readings=(Reading(30, Losses(0.1, 0.2, 0.612, 0.375)),),
    num_steps=30,
)
EPISODES = [Episode("s", 1, 1.0, True, candidates=(DONE, UNKNOWN, RUINED))]


def test_it_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchScreen() as screen:
        screen.watchers.waiting("waiting for trainings on this machine to end")
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.split(maxsplit=1) == [
        "latency",
        "no table for this device yet; waiting for trainings on this machine to end\n",
    ]


def test_a_group_that_waits_says_for_whom_once(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchScreen() as screen:
        for waits in ("waiting for a", "waiting for a", "waiting for b", ""):
            screen.watchers.progress(GroupProgress(("a",), "local", 0, 60, waits))
    assert capsys.readouterr().err == "  waiting for a\n  waiting for b\n"


def test_measuring_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with SearchScreen() as screen:
        for share in (0.0, 0.5, 1.0, 1.0):
            screen.watchers.latency(share, "whole students")
    assert capsys.readouterr().err.count("measuring the students") == 1


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("reward", "  = best so far 12,12,768,3072,gelu with 0.700, 60 students/hour\n"),
        ("limit", "  = lowest loss so far 12,12,768,3072,gelu with 0.300, 60 students/hour\n"),
        ("front", "  = 60 students/hour\n"),
    ],
)
def test_the_end_of_an_episode_tells_the_best_so_far(
    capsys: pytest.CaptureFixture[str], goal: str, said: str
) -> None:
    with SearchScreen(goal) as screen:
        screen.watchers.progress(EpisodeDone(1, DONE, 2, 60.0, (), None))
    assert capsys.readouterr().err == said


def test_a_failed_candidate_says_why_also_with_losses() -> None:
    assert candidate_line(RUINED).split() == (
        ["12,12,768,3072,gelu", "failed:", "has", "not", "learned:", "1.03"]
    )
    assert "relative 0.250  output 0.375" in candidate_line(DONE)


def test_a_stopped_candidate_says_where_and_why() -> None:
    assert candidate_line(STOPPED) == f"12,12,768,3072,gelu      {STOPPED.note}"


def test_the_result_says_what_rungs_have_saved(capsys: pytest.CaptureFixture[str]) -> None:
    whole = replace(DONE, num_steps=480)
    search = [Episode("s", 1, 1.0, True, candidates=(whole, STOPPED, RUINED))]
    show_result(summarise(RECORD, search), to_stderr=False)
    _, head, saved, *_ = capsys.readouterr().out.splitlines()
    assert head.endswith("3 explored (1 trained, 0 looked up, 1 failed, 1 stopped early)")
    assert saved == "rungs saved 47 % of the steps"
    show_result(summarise(RECORD, EPISODES), to_stderr=False)
    assert "rungs" not in (out := capsys.readouterr().out)
    assert "stopped" not in out


def test_the_table_shows_starts_within_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_result(summarise(RECORD, EPISODES), to_stderr=False)
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("architecture"))
    table = lines[at : at + 3]
    assert max(map(len, table)) <= 80
    start = table[0].split().index("start")
    assert [line.split()[start] for line in table[1:]] == ["0.625", "-"]


@pytest.mark.parametrize(
    ("goal", "title"),
    [
        ("reward", "best by reward"),
        ("limit", "lowest loss within the limits"),
        ("front", "Pareto front of loss and latency, fastest first"),
    ],
)
def test_the_first_table_is_what_the_search_was_after(
    capsys: pytest.CaptureFixture[str], goal: str, title: str
) -> None:
    show_result(summarise(replace(RECORD, spec={"goal": goal}), EPISODES), to_stderr=False)
    _, head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.startswith(f"search trial, goal {goal}: succeeded, ")
    assert first.strip() == title


@pytest.mark.parametrize(
    ("goal", "said", "picks", "row"),
    [
        (
            "reward",
            "L 0.250, 12.50 ms, reward 0.700",
            "best reward 0.700, mean 0.650",
            "reward 0.700",
        ),
        ("limit", "L 0.250, 12.50 ms\n", "lowest loss 0.300, mean 0.350", "loss 0.250"),
        (
            "front",
            "hypervolume 0.750: the share of the signal",
            "hypervolume 0.750",
            "hypervolume 0.750",
        ),
    ],
)
def test_what_was_found_is_said_in_the_words_of_the_goal(
    capsys: pytest.CaptureFixture[str], goal: str, said: str, picks: str, row: str
) -> None:
    summary = summarise(replace(RECORD, spec={"goal": goal}), EPISODES)
    show_result(summary, to_stderr=False)
    shown = capsys.readouterr().out
    assert said in shown
    assert f"2 controller picks: {picks}\n" in shown
    assert ("reward 0.7" in shown) == (goal == "reward")
    assert found_so_far({**summary, "best": summary["best"][0]}) == row
    assert found_so_far({"goal": goal, "best": None, "hypervolume": None}) == "nothing yet"


def test_a_file_has_every_candidate_with_its_start(tmp_path: Path) -> None:
    path = tmp_path / "candidates.csv"
    assert write_table(EPISODES, path, "csv") == 3
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["loss_start"] for row in rows] == ["0.625", "", "0.625"]
    assert [row["output_loss"] for row in rows] == ["0.375"] * 3


def test_a_file_without_candidates_has_its_columns(tmp_path: Path) -> None:
    some, none = tmp_path / "some.csv", tmp_path / "none.csv"
    write_table(EPISODES, some, "csv")
    assert write_table([], none, "csv") == 0
    header = none.read_text(encoding="utf-8").splitlines()
    assert header == some.read_text(encoding="utf-8").splitlines()[:1]
    assert header[0].startswith("search_id,episode,position,")
    write_table([], tmp_path / "none.parquet", "parquet")
    assert pq.read_table(tmp_path / "none.parquet").column_names == header[0].split(",")


@pytest.mark.parametrize(
    ("tflops", "said"),
    [
        (0.00042, "0.42 GFLOP"),
        (0.02, "20 GFLOP"),
        (0.9994, "999 GFLOP"),
        (1.0, "1 TFLOP"),
        (1234.5, "1234 TFLOP"),
    ],
)
def test_small_costs_are_told_in_small_units(tflops: float, said: str) -> None:
    plan = {
        **{"num_states": 48, "num_allowed": 48, "num_known": 0, "num_candidates": 4},
        **{"num_episodes": 1, "steps": 3, "batch_size": 8, "rungs": [], "total_tflops": tflops},
        **{"teacher_share": 0.5, "group_gib": 0.1, "group_size": 4, "teacher_gib": 0.1},
        **{"num_workers": 1, "device": "cpu", "threads": 1, "dtype": "float32"},
        **{"training_seconds": 60.0, "seconds_per_student": 1.0, "latency_known": True},
    }
    assert _plan_facts(plan)["cost"].startswith(f"{said} for students of middle size")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_file_has_what_was_read_at_rungs(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"candidates.{kind}"
    search = [Episode("s", 1, 1.0, True, candidates=(DONE, STOPPED))]
    write_table(search, path, kind)
    if kind == "csv":
        with path.open(newline="", encoding="utf-8") as stream:
            rows = [{**r, "readings": json.loads(r["readings"])} for r in csv.DictReader(stream)]
    elif kind == "json":
        rows = json.loads(path.read_text())
    else:
        rows = pq.read_table(path).to_pylist()
    losses = {"training_loss": 0.1, "mean_loss": 0.2, "relative_loss": 0.612, "output_loss": 0.375}
    assert [row["readings"] for row in rows] == [[], [{"step": 30, **losses}]]
    assert [row["status"] for row in rows] == ["succeeded", "stopped"]
    assert str(rows[1]["num_steps"]) == "30"
    assert rows[1]["note"] == STOPPED.note
