"""`kdnas tabular` from the command line: tables shown, and strategies compared, or refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import api.tabular
from kdnas.architecture import Architecture
from kdnas.cli.main import app, main
from kdnas.cli.screens.tabular import standing_lines
from kdnas.errors import KdnasError, OutputError, SpecError
from kdnas.specs.strategies import STRATEGIES, ControllerStrategySpec, GaussianProcessSpec
from kdnas.tabular.files import packaged_tables, write_table
from kdnas.tabular.replay import replay
from kdnas.tabular.surface import SYNTHETIC
from kdnas.tabular.table import Key, StateRow, Table, TableRow

QUICK = ("tabular", "strategies", "--table", "rough", "--seeds", "2", "--budgets", "4,8")
NAMES = ("--candidates", "4", "--workers", "1", "--strategies", "random,fastest-first")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=True)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_tables_that_come_with_the_program_are_listed() -> None:
    listed = run("tabular", "show").splitlines()
    assert [line.split()[0] for line in listed] == list(packaged_tables())
    minilm = next(line for line in listed if line.startswith("minilm "))
    assert "2400 of 2400 states, read after step 0, 60 of 60; seeds 0, 1, 2" in minilm
    told = json.loads(run("tabular", "show", "--json"))
    assert told == {
        name: json.loads(run("tabular", "show", name, "--json")) for name in packaged_tables()
    }


def test_each_reading_says_which_states_and_seeds_it_has(tmp_path: Path) -> None:
    """As of a sweep that is still at its second seed, on readings of two schedules."""
    states = [Architecture.parse(f"{layers},2,16,32,gelu") for layers in (1, 2)]
    keys = [Key(state, 0, 480, step) for state in states for step in (0, 30, 480)]
    keys += [Key(states[0], 1, 480, step) for step in (0, 30, 480)]
    keys += [Key(states[1], 0, 960, 960)]
    rows = tuple(TableRow(key, 0.5) for key in keys)
    file = tmp_path / "rungs.parquet"
    write_table(Table(rows, {state: StateRow(1.0) for state in states}), file)
    assert run("tabular", "show", str(file)).splitlines() == [
        "2 of the 2 states of the space",
        "seeds 0, 1",
        "after step    0 of  480: 2 states (seed 0: 2, seed 1: 1)",
        "after step   30 of  480: 2 states (seed 0: 2, seed 1: 1)",
        "after step  480 of  480: 2 states (seed 0: 2, seed 1: 1)",
        "after step  960 of  960: 1 state, seed 0",
        "trainings of 480 steps: between seeds the loss deviates by 0 (1 state, seeds 0,",
        "1)",
        "trainings of 960 steps: one seed, so that their noise is not known",
    ]
    found = json.loads(run("tabular", "show", str(file), "--json"))
    assert found["trainings"][0]["noise"] == {"sd": 0.0, "dof": 1, "num_states": 1}
    assert found["readings"][-1] == {
        **{"schedule": 960, "step": 960},
        **{"states": 1, "seeds": [0], "states_by_seed": {"0": 1}},
    }
    whole = run("tabular", "show", "minilm").splitlines()
    assert max(map(len, whole)) <= 80
    assert "teacher_ms 14.93, the teacher's latency" in whole
    read = "2400 states (seed 0: 2400, seed 1: 200, seed 2: 200)"
    assert [line[25:] for line in whole[-4:-2]] == [read, read]
    noise = "of 60 steps of 16 sequences: between seeds the loss deviates by 0.002"
    assert whole[-2:] == [f"trainings {noise}", "(200 states, seeds 0, 1, 2)"]


def test_a_table_of_strategies_is_printed() -> None:
    shown = run(*QUICK, *NAMES)
    head, unit, columns, random, fastest, *rest = shown.splitlines()
    volume = "99% of their hypervolume solves it"
    assert head.startswith(f"rough, goal front: 2400 of 2400 states may be taken, {volume}")
    assert "thousandths of hypervolume that is missing" in unit
    assert columns.split() == ["strategy", "after", "4", "after", "8", "trainings"]
    assert random.startswith("random ")
    assert fastest.split()[-1] == "never"
    assert "*" not in shown  # two seeds tell nobody from another
    assert rest[1].startswith("after 8: share of the hypervolume")
    assert [line.split()[0] for line in rest[3:]] == ["random", "fastest-first"]


def own_table(path: Path, states: list[str]) -> str:
    """A table of a user: axes, loss and latency, which grows with the state's place."""
    rows = [f"{state},{0.5 / n},{n}" for n, state in enumerate(states, 1)]
    head = "layers,heads,hidden,intermediate,activation,loss,latency_ms"
    path.write_text("\n".join([head, *rows]) + "\n")
    return str(path)


OWN = [f"{layers},2,24,{inner},gelu" for layers in (1, 2, 3) for inner in (24, 48)]
STANDS = (
    "no row has teacher_ms: the largest latency, 6 ms, stands for the teacher's",
    "no row has params_millions: the parameters of the layers stand for the size",
)


def test_a_users_own_table_needs_axes_loss_and_latency(tmp_path: Path) -> None:
    file = own_table(tmp_path / "own.csv", OWN)
    asked = (*QUICK, "--table", file, "--candidates", "4", "--workers", "1")
    wanted = (*asked, "--strategies", "random,largest-first,size-only")
    shown = run(*wanted).splitlines()
    assert shown[1:3] == list(STANDS)
    found = json.loads(run(*wanted, "--json"))
    assert (found["teacher_ms"], found["knows_teacher"], found["knows_sizes"]) == (6, False, False)
    assert run("tabular", "show", file).startswith("6 of the 6 states of the space\n")
    known = json.loads(run(*QUICK, *NAMES, "--json"))
    assert (known["knows_teacher"], known["knows_sizes"]) == (True, True)
    assert not set(STANDS) & set(run(*QUICK, *NAMES).splitlines())


def test_gaps_of_a_table_are_told(tmp_path: Path) -> None:
    asked = (*QUICK, *NAMES, "--table")
    gaps = own_table(tmp_path / "gaps.csv", OWN[1:])
    said = "5 of the 6 states of its axes are in the table"
    assert run(*asked, gaps).splitlines()[1] == said
    found = json.loads(run(*asked, gaps, "--json"))
    assert (found["num_states"], found["num_states_of_axes"], found["steps"]) == (5, 6, 1)
    drawn = "200 of the 2400 states of its axes are in the table, trained for 480 steps"
    assert run(*asked, "minilm-rungs").splitlines()[1] == drawn
    for whole in ("minilm", "rough", own_table(tmp_path / "own.csv", OWN)):
        assert "states of its axes" not in run(*asked, whole)
    one = own_table(tmp_path / "one.csv", OWN[:1])
    with pytest.raises(SpecError, match=r"one state alone with a loss, 1,2,24,24,gelu, and a"):
        run(*asked, one)
    assert run("tabular", "show", one).startswith("1 of the 1 states of the space\n")


def test_regrets_within_a_limit_are_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig",
        lambda figure, *_, **__: labels.append(figure.axes[0].get_ylabel()),
    )
    limit = ("--goal", "limit", "--max-latency-ratio", "0.35", "--seeds", "1")
    shown = run(*QUICK, *NAMES, *limit, "--plot", str(tmp_path / "limit.png"))
    assert "regret in thousandths of loss, " in shown
    assert "; 1 seed, episodes of 4" in shown
    assert labels == ["regret (loss)"]
    assert "with goal limit in loss" in " ".join(run("tabular", "strategies", "--help").split())


def test_regrets_of_rewards_are_rewards() -> None:
    shown = run(*QUICK, *NAMES, "--seeds", "1", "--goal", "reward").splitlines()
    assert shown[0].startswith("rough, goal reward: 2400 of 2400 states may be taken, the best 12")
    assert "thousandths of reward" in shown[1]


def test_others_are_tested_against_gp_where_it_is_compared() -> None:
    def reference(*strategies: str) -> str:
        few = ("--seeds", "1", "--budgets", "4", "--strategies", ",".join(strategies))
        return str(json.loads(run(*QUICK, *NAMES, *few, "--json"))["reference"])

    assert reference("random", "gp") == "gp"
    assert reference("random", "fastest-first") == "random"
    told = " ".join(run("tabular", "strategies", "--help").split())
    assert "gp where it is compared, else the first" in told
    assert "[default: front]" in told


@pytest.mark.parametrize(
    ("option", "of"), [("--max-latency-ms", "latency_ms"), ("--max-params", "params_millions")]
)
def test_any_limit_is_one(option: str, of: str) -> None:
    values = sorted(getattr(api.tabular.synthetic("rough"), of))
    asked = (*QUICK, *NAMES, "--seeds", "1", "--goal", "limit", option, str(values[700]))
    found = json.loads(run(*asked, "--json"))
    assert found["num_allowed"] == sum(value <= values[700] for value in values)


def test_stars_are_explained_where_there_are_any() -> None:
    found = json.loads(run(*QUICK, *NAMES, "--json"))
    assert not any("differs from" in line for line in standing_lines(found))
    found["standings"][1]["p_trainings"] = 0.01
    assert "* differs from random (p < 0.05, paired by seed, Holm)" in standing_lines(found)
    found |= {"goal": "limit", "num_of_goal": 1}
    assert "the best one solves it; 2 seeds" in next(iter(standing_lines(found)))
    found["standings"][1]["best_losses"][-1][0] = [None, None, None]
    *_, last = standing_lines(found)
    assert "–" in last.split()


def test_the_help_names_all_tables_that_can_be_had() -> None:
    told = "".join(run("tabular", "strategies", "--help").split())
    for name in (*packaged_tables(), *SYNTHETIC):
        assert re.search(rf"[:,]{name}[,;.]", told)


def test_a_front_is_solved_by_its_hypervolume(tmp_path: Path) -> None:
    plot = tmp_path / "found.png"
    asked = (*QUICK, *NAMES, "--seeds", "1", "--no-starts", "--plot", str(plot))
    shown = run(*asked)
    assert "99% of their hypervolume solves it" in shown
    assert "no strategy knows the losses with which states start" in shown
    assert "hypervolume that is missing" in shown
    assert plot.read_bytes().startswith(b"\x89PNG")
    found = json.loads(run(*asked, "--json"))
    curves = {curve["name"]: curve for curve in found["curves"]}
    assert curves["random"]["trainings"] == sorted({*curves["random"]["trainings"]})
    assert curves["random"]["trainings"][-1] == 8
    for row in found["standings"]:
        assert row["regrets"][-1] == curves[row["name"]]["regrets"][-1]
        assert row["covered"][-1][0] == pytest.approx(1 - row["regrets"][-1][0])


def test_where_nothing_can_be_written_is_told_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("kdnas.tabular.comparison.replay")
    with pytest.raises(OutputError, match=r"there is no folder .*/no; make it, or choose another"):
        run(*QUICK, *NAMES, "--plot", str(tmp_path / "no" / "such.png"))
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    with pytest.raises(OutputError, match=r"--plot .*/such\.png cannot be written; choose another"):
        run(*QUICK, *NAMES, "--plot", str(tmp_path / "such.png"))
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file/found\.json could not be written \(\w+ "):
        run(*QUICK, *NAMES, "--output", str(tmp_path / "file" / "found.json"))


OWN_STRATEGIES = """
from controller.strategies import RandomStrategy

class Raises(RandomStrategy):
    def ask(self, *asked):
        raise ValueError("no state" + chr(10) + "is left")

class Nothing(RandomStrategy):
    def ask(self, *asked):
        pass
"""


@pytest.mark.parametrize(
    ("name", "workers", "code", "said"),
    [
        ("Raises", "1", 1, "failed: its ask raised ValueError: no state is left; mend it there"),
        ("Raises", "2", 1, "failed: its ask raised ValueError: no state is left; mend it there"),
        ("Nothing", "1", 2, "proposed None; its ask returns a list of kdnas.records.Proposal, "),
    ],
)
def test_a_strategy_of_somebody_else_that_fails_is_named(
    name: str,
    workers: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever wrote it sees where it failed, before the sentence."""
    (tmp_path / "own_strategies.py").write_text(OWN_STRATEGIES, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    asked = ("--strategies", f"own_strategies:{name}", "--workers", workers)
    monkeypatch.setattr("sys.argv", ["kdnas", *QUICK, "--candidates", "4", *asked])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    *before, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: strategy 'own_strategies:{name}' {said}")
    where = [line for line in before if "own_strategies.py" in line]
    assert bool(where) == (name == "Raises")


def test_what_rungs_save_is_shown_and_kept(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    asked = (*QUICK, *NAMES, "--budgets", "24", "--rungs", "0", "--keep", "2")
    shown = run(*asked, "--output", str(output)).splitlines()
    assert "trainings that promise too little end after step 0, and count as one each" in shown
    assert any("steps saved, %" in line for line in shown)
    found = json.loads(run(*asked, "--output", str(output), "--json"))
    assert (found["rungs"], found["keep"]) == ([0], 2)
    assert {row["name"]: row["saved"][0] > 0 for row in found["standings"]}["random"]


def test_variants_are_named_by_a_dash() -> None:
    assert {name: api.tabular._spec(name).strategy for name in api.tabular.VARIANTS} == {
        **{
            f"controller-{variant}": ControllerStrategySpec(variant=variant)
            for variant in ("learning", "paper", "once")
        },
        "gp-upper-confidence": GaussianProcessSpec(),
        "gp-thompson": GaussianProcessSpec(acquisition="thompson"),
    }
    names = ("--strategies", "controller-paper,gp-thompson,gp")
    shown = run(*QUICK, "--candidates", "4", "--workers", "1", *names)
    for name in ("controller-paper ", "gp-thompson ", "gp "):
        assert f"\n{name}" in shown


def test_what_the_file_has_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []

    def noted(*given: Any) -> Any:
        ran.append((given[1].controller.strategy.name, given[1].seed))
        return replay(*given)

    monkeypatch.setattr("kdnas.tabular.comparison.replay", noted)
    output = tmp_path / "found.json"
    first = json.loads(run(*QUICK, *NAMES, "--output", str(output), "--json"))
    assert len(ran) == 4
    assert json.loads(run(*QUICK, *NAMES, "--output", str(output), "--json")) == first
    assert len(ran) == 4
    more = (*QUICK, *NAMES, "--output", str(output), "--seeds", "3", "--json")
    assert json.loads(run(*more))["seeds"] == 3
    assert sorted(ran[4:]) == [("fastest-first", 2), ("random", 2)]
    told = json.loads(output.read_text())
    assert {(one["strategy"], one["seed"]) for one in told["replays"]} == {
        (name, seed) for name in ("random", "fastest-first") for seed in range(3)
    }
    with pytest.raises(SpecError, match=r"found\.json holds results of another table, goal or"):
        run(*QUICK, *NAMES, "--output", str(output), "--latency-price", "0.03")
    assert json.loads(output.read_text()) == told


def test_what_ran_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_late(*given: Any) -> Any:
        if given[1].controller.strategy.name == "fastest-first":
            raise SpecError("no")
        return replay(*given)

    monkeypatch.setattr("kdnas.tabular.comparison.replay", fails_late)
    output = tmp_path / "found.json"
    with pytest.raises(SpecError, match="no"):
        run(*QUICK, *NAMES, "--output", str(output))
    assert [one["strategy"] for one in json.loads(output.read_text())["replays"]] == ["random"] * 2


def test_all_strategies_are_compared_unless_some_are_named() -> None:
    surface = api.tabular.synthetic("rough")
    names = list(api.tabular._specs(None, surface))
    assert names == [*STRATEGIES, "controller-paper"]
    unread = list(api.tabular._specs(None, replace(surface, starts={})))
    assert set(names) - set(unread) == {"reading-only", "reading-fit"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--table", "smooth"), "--table 'smooth' is neither a .parquet or .csv file nor one of"),
        (("--table", "no.csv"), "no.csv cannot be read"),
        (("--seeds", "0"), "seeds is 0"),
        (("--budgets", "4,x"), "--budgets '4,x' holds something else than whole numbers"),
        (("--budgets", "8,4"), "budgets are [8, 4]"),
        (("--rungs", "0,x"), "--rungs '0,x' holds something else than whole numbers"),
        (("--rungs", "30"), "not every training of rough was read after step 30"),
        (("--rungs", "0", "--keep", "0"), "proxy.keep: "),
        (("--keep", "5"), "--keep is 5, and without --rungs no training ends early"),
        (("--strategies", "randon"), "unknown strategy 'randon', did you mean 'random'"),
        (("--strategies", "no_module:X"), "strategy 'no_module:X' cannot be imported"),
        (("--reference", "gp"), "strategy of --reference 'gp'"),
        (("--latency-price", "2"), "reward.latency_price: give a number of at least 0 and below 1"),
        (("--goal", "limit"), "within limits, and there is none; add `limits.max_latency_ratio`"),
        (("--goal", "fornt"), "not 'fornt'; did you mean 'front'"),
        (
            ("--table", "additive", "--schedule", "99"),
            "--schedule is 99, and additive is a formula",
        ),
        (("--plot", "found.svg"), "--plot found.svg is no .png file"),
        (
            ("--strategies", "controller-new"),
            "Known: controller, controller-learning, controller-once, controller-paper, evolution, "
            "fastest-first, gp, gp-thompson, gp-upper-confidence, ",
        ),
        (("--max-latency-ratio", "0.0001"), "limits: limits.max_latency_ratio is 0.0001 and the"),
        (("--max-latency-ms", "0.0001"), "limits: limits.max_latency_ms is 0.0001 and the"),
        (("--max-params", "0.0001"), "limits: limits.max_params_millions is 0.0001 and the"),
        (("--candidates", "0"), "--candidates: "),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    output = tmp_path / "found.json"
    with pytest.raises(KdnasError) as raised:
        run(*QUICK, *NAMES, "--output", str(output), *arguments)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_result_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    for text in ("{}", "no json", '{"question": 1}'):
        output.write_text(text)
        with pytest.raises(SpecError, match="holds no results of a comparison"):
            run(*QUICK, *NAMES, "--output", str(output))
        assert output.read_text() == text
