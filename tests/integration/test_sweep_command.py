"""`kdnas sweep` and `kdnas tabular` from the outside: whole, killed, on Ray, and by the service."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from kdnas.architecture import Architecture
from kdnas.db.migrate import open_database
from kdnas.db.repository import sweeps
from kdnas.settings import Settings
from kdnas.tabular.files import read_table
from kdnas.tabular.table import Key
from kdnas.testing.commands import Finished, Program

SWEEP = ("sweep", "--config", "sweep.yaml", "--steps", "0,3")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    program = Program.make(tmp_path_factory.mktemp("a folder with spaces"))
    lines = (program.folder / "tiny.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("controller:", "goal:"))]
    (program.folder / "sweep.yaml").write_text("\n".join(kept) + "\n")
    return program


@pytest.fixture(scope="module")
def whole(program: Program) -> Finished:
    result = program.run(*SWEEP, "--name", "whole", "--states", "12", "--json")
    assert result.code == 0, result.err
    return result


def count(program: Program, name: str) -> int:
    path = program.folder / "home" / "kdnas.db"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        query = (
            "select count(*) from sweep_states s join jobs j on j.id = s.sweep_id where j.name=?"
        )
        return int(connection.execute(query, [name]).fetchone()[0])
    finally:
        connection.close()


def losses(program: Program, *sources: str) -> dict[Key, float]:
    output = program.folder / "made.parquet"
    made = program.run("tabular", "make", *sources, "--output", str(output))
    assert made.code == 0, made.err
    return {row.key: row.loss for row in read_table(output).rows}


def test_it_prints_what_the_service_answers(program: Program, whole: Finished) -> None:
    found = whole.json
    assert (found["status"], found["done"], found["total"]) == ("succeeded", 12, 12)
    assert (found["steps"], found["seeds"], found["kind"]) == ([0, 3], [0], "sweep")
    assert "corpus     corpus.txt  (from sweep.yaml)" in whole.err
    shown = program.run("jobs", "show", "whole", "--json").json
    assert shown["id"] == found["id"]
    again = program.run("sweep", "--resume", "whole")
    assert again.code == 0
    assert "sweep whole: succeeded, 12 of 12 states" in again.out


def test_killed_in_the_middle_it_goes_on_and_finds_the_same(
    program: Program, whole: Finished
) -> None:
    killed = program.interrupt_when(
        lambda: count(program, "killed") >= 3, *SWEEP, "--name", "killed", "--states", "12"
    )
    assert killed.code < 0
    done = count(program, "killed")
    assert 3 <= done < 12
    again = program.run("sweep", "--resume", "killed", "--json")
    assert again.code == 0, again.err
    assert again.json["done"] == 12
    assert losses(program, "killed") == losses(program, "whole")


def test_what_failed_is_tried_again_and_is_not_lost_in_a_kill(
    program: Program, whole: Finished
) -> None:
    made = program.run(*SWEEP, "--name", "failing", "--states", "12")
    assert made.code == 0, made.err
    with closing(sqlite3.connect(program.folder / "home" / "kdnas.db", timeout=10)) as connection:
        sweep = "select id from jobs where name = 'failing'"
        chosen = f"select state_index from sweep_states where sweep_id in ({sweep}) limit 9"
        connection.execute(
            "update sweep_states set error = 'out of memory', readings = '[]' "
            f"where sweep_id in ({sweep}) and state_index in ({chosen})"
        )
        connection.commit()
    shown = program.run("jobs", "show", "failing").out
    assert "failed       9 of 12; resumed, it tries them again" in shown
    assert "next         kdnas sweep --resume failing" in shown
    refused = program.run("jobs", "resume", "failing")
    assert refused.code == 2
    assert "which resumes it with kdnas sweep --resume failing" in refused.err
    killed = program.interrupt_when(
        lambda: 4 <= count(program, "failing") < 12, "sweep", "--resume", "failing"
    )
    assert killed.code < 0
    assert len(losses(program, "failing")) < len(losses(program, "whole"))
    again = program.run("sweep", "--resume", "failing", "--json")
    assert again.code == 0, again.err
    assert (again.json["done"], again.json["num_failed"]) == (12, 0)
    assert losses(program, "failing") == losses(program, "whole")


def test_a_search_of_the_same_settings_trains_nothing_that_was_swept(
    program: Program, whole: Finished
) -> None:
    text = (program.folder / "tiny.yaml").read_text().replace("steps: 6", "steps: 3")
    (program.folder / "three.yaml").write_text(text)
    wide = ("--episodes", "1", "--candidates", "40")
    searched = program.run("search", "--config", "three.yaml", *wide, "--json")
    assert searched.code == 0, searched.err
    assert searched.json["explored"] == 40
    assert searched.json["reused"] >= 12 - (48 - 40)
    swept = {key.architecture: loss for key, loss in losses(program, "whole").items() if key.step}
    for state in searched.json["best"]:
        known = swept.get(Architecture.parse(state["architecture"]))
        assert known in {None, state["relative_loss"]}


def test_a_search_takes_the_losses_at_the_start_from_a_sweep(program: Program) -> None:
    """Of all states; what is swept later changes nothing of a search that has begun."""
    asked = ("search", "--config", "tiny.yaml", "--strategy", "reading-only", "--episodes", "1")
    refused, plan = program.run(*asked), program.run(*asked, "--dry-run")
    assert refused.code == plan.code == 2
    said = "of 48 were not read; run `kdnas sweep` with the same settings first"
    assert said in refused.err
    assert plan.err.splitlines()[-1] == refused.err.splitlines()[-1]
    swept = program.run("sweep", "--config", "sweep.yaml", "--name", "starts")
    assert swept.code == 0, swept.err
    made = program.run("tabular", "make", "starts", "--output", "starts.parquet", "--json")
    assert made.json["num_states"] == 48
    searched = program.run(*asked, "--name", "read", "--json")
    assert searched.code == 0, searched.err
    assert {state["source"] for state in searched.json["best"]} == {"reading-only"}
    starts = {str(key.architecture): loss for key, loss in losses(program, "starts").items()}
    for state in searched.json["best"]:
        assert state["loss_start"] == starts[state["architecture"]]
    assert program.run("jobs", "delete", "starts", "--yes").code == 0
    more = program.run("search", "--resume", "read", "--json")
    assert more.json == searched.json


def test_partial_tables_make_one(program: Program, whole: Finished) -> None:
    more = program.run(*SWEEP, "--name", "more", "--states", "2", "--seeds", "4,5")
    assert more.code == 0, more.err
    made = program.run("tabular", "make", "more", "--output", "more.parquet", "--json")
    assert made.code == 0, made.err
    assert made.json["seeds"] == [4, 5]
    parts = losses(program, "whole") | losses(program, "more.parquet")
    assert losses(program, "whole", "more.parquet") == parts
    shown = program.run("tabular", "show", "made.parquet")
    assert shown.code == 0
    assert "seeds 0, 4, 5" in shown.out
    timed = program.run(
        "tabular", "make", "made.parquet", "--timed-by", "more", "--output", "t.csv"
    )
    assert timed.code == 0, timed.err
    (program.folder / "t.csv").unlink()
    known = ("--without", "made.parquet")
    again = program.run(*SWEEP, "--name", "again", "--states", "12", *known)
    assert again.code == 2
    assert "without (made.parquet) has all 12 states of this sweep already" in again.err
    further = program.run(*SWEEP, "--name", "further", "--states", "14", *known)
    assert further.code == 0, further.err
    assert "sweep further: succeeded, 2 of 2 states" in further.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sweep", "--steps", "60,0"), "give each step once and in rising order"),
        (("sweep", "--states", "0"), "a whole number from 1 to 1000000000"),
        (("sweep", "--config", "sweep.yaml", "--states", "999"), "states (999) are more than"),
        (("sweep", "--without", "nobody"), "'nobody' is neither a .parquet or .csv file nor one"),
        (("sweep", "--resume", "nobody"), "there is no sweep 'nobody'"),
        (("sweep", "--resume", "whole", "--steps", "3"), "--steps cannot be given with it"),
        (("tabular", "make", "nobody", "--output", "t.csv"), "there is no sweep 'nobody'"),
        (("tabular", "make", "no.csv", "--output", "t.csv"), "no.csv cannot be read"),
        (("tabular", "make", "whole", "--output", "t.xlsx"), "unknown file ending '.xlsx'"),
        (
            ("tabular", "show", "corpus.txt"),
            "'corpus.txt' is neither a .parquet or .csv file nor one of minilm",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(
    program: Program, whole: Finished, arguments: tuple[str, ...], said: str
) -> None:
    result = program.run(*arguments)
    assert result.code == 2, result.err
    (line,) = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert said in line
    assert not (program.folder / "t.csv").exists()


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray_it_finds_the_same(program: Program, whole: Finished) -> None:
    on_ray = program.run(
        *SWEEP, "--name", "on-ray", "--states", "12", "--backend", "ray", "--num-workers", "2"
    )
    assert on_ray.code == 0, on_ray.err
    assert losses(program, "on-ray") == losses(program, "whole")


@pytest.mark.slow
def test_a_coordinator_does_it_with_its_events(program: Program, whole: Finished) -> None:
    whole_spec = program.run("jobs", "show", "whole", "--json").json["requested"]
    asked = {**whole_spec, "name": "served", "states": 4}
    with (
        open_database(Settings.from_environment(program.environment)) as database,
        database.write() as session,
    ):
        sweeps.create_sweep(session, asked, name="served", owner_kind="service")
    with program.coordinator():
        watched = program.run("jobs", "watch", "served")
    assert watched.code == 0, watched.err
    shown = program.run("jobs", "show", "served", "--json").json
    assert (shown["status"], shown["done"], shown["total"]) == ("succeeded", 4, 4)
    assert losses(program, "served").items() <= losses(program, "whole").items()
