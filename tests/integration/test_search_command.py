"""`kdnas search` from the outside: a whole search, killed, resumed, interrupted."""

from __future__ import annotations

import csv
import os
import re
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from kdnas.cli.main import main
from kdnas.testing.commands import Finished, Program

SEARCH = ("search", "--config", "tiny.yaml", "--json")
RESULT_KEYS = {
    "id", "name", "status", "explored", "trained", "reused", "failed", "attempts", "best",
}  # fmt: skip
STATE_KEYS = {
    "architecture", "reward", "loss", "relative_loss", "output_loss", "loss_start", "latency_ms",
    "latency_ratio", "params_millions", "episode", "source",
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    # A space in the path, as on many a person's machine.
    return Program.make(tmp_path_factory.mktemp("a folder with spaces"))


@pytest.fixture(scope="module")
def finished(program: Program) -> Finished:
    result = program.run(*SEARCH, "--name", "undisturbed", "--seed", "7")
    assert result.code == 0, result.err
    return result


def proposals(program: Program, name: str) -> list[tuple[object, ...]]:
    output = program.folder / f"{name}.csv"
    result = program.run("searches", "export", name, "--output", str(output))
    assert result.code == 0, result.err
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    keys = ("episode", "position", "architecture", "source", "predicted_reward", "status")
    return [tuple(row[key] for key in keys) for row in rows]


def ranking(result: Finished) -> list[tuple[object, ...]]:
    keys = ("architecture", "reward", "loss", "relative_loss", "output_loss")
    return [tuple(state[key] for key in keys) for state in result.json["best"]]


def rows(program: Program, query: str) -> list[tuple[object, ...]]:
    path = program.folder / "home" / "kdnas.db"
    if not path.exists():
        return []
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(query).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # the tables are being made
            raise
        return []
    finally:
        connection.close()


def candidates(program: Program, name: str, status: str) -> int:
    return len(
        rows(
            program,
            "select c.id from candidates c join jobs s on s.id = c.search_id "
            f"where s.name = '{name}' and c.status = '{status}'",
        )
    )


def test_result_is_one_object_with_the_promised_keys(finished: Finished) -> None:
    summary = finished.json
    assert set(summary) >= RESULT_KEYS
    assert summary["status"] == "succeeded"
    assert summary["explored"] == summary["trained"] == summary["attempts"] == 12
    assert summary["reused"] == summary["failed"] == 0
    assert all(set(state) == STATE_KEYS for state in summary["best"])
    rewards = [state["reward"] for state in summary["best"]]
    assert rewards == sorted(rewards, reverse=True)
    assert all(0 < state["relative_loss"] < 2 for state in summary["best"])
    assert all(state["loss"] == state["relative_loss"] for state in summary["best"])
    assert {state["source"] for state in summary["best"]} == {"random", "controller"}


def test_screen_says_what_was_taken_and_what_happens(finished: Finished) -> None:
    assert "teacher    teacher  (from tiny.yaml)" in finished.err
    assert "preset     laptop  (default" in finished.err
    assert "episode 3/3  ε 0.05  4 by controller" in finished.err
    assert "students/hour" in finished.err
    assert "Pareto front" in finished.err


def test_resuming_a_finished_search_prints_its_result(program: Program, finished: Finished) -> None:
    again = program.run("search", "--resume", "undisturbed", "--json")
    assert again.code == 0
    assert again.json == finished.json
    shown = program.run("searches", "show", "undisturbed", "--json")
    assert shown.json["id"] == finished.json["id"]
    assert shown.json["summary"] == finished.json


def test_same_context_never_trains_a_state_twice(program: Program, finished: Finished) -> None:
    again = program.run(*SEARCH, "--name", "looked-up", "--seed", "7")
    assert again.code == 0, again.err
    assert again.json["reused"] == 12
    assert again.json["trained"] == again.json["attempts"] == 0
    assert ranking(again) == ranking(finished)
    assert proposals(program, "looked-up") == proposals(program, "undisturbed")


def test_any_objective_gives_a_reward(program: Program) -> None:
    learnt = ("--objective", "minilmv2", "--relation-heads", "12", "--episodes", "1")
    result = program.run(*SEARCH, *learnt)
    assert result.code == 0, result.err
    assert result.json["trained"] == 4
    assert all(0 < found["loss"] < 1.5 for found in result.json["best"])


def test_no_reuse_trains_anew_and_gives_the_same_losses(
    program: Program, finished: Finished
) -> None:
    again = program.run(*SEARCH, "--name", "anew", "--seed", "7", "--no-reuse", "--group-size", "4")
    assert again.code == 0, again.err
    assert again.json["trained"] == again.json["attempts"] == 12
    assert ranking(again) == ranking(finished)


def test_limits_keep_states_out(program: Program, finished: Finished) -> None:
    sizes = sorted(state["params_millions"] for state in finished.json["best"])
    limit = sizes[len(sizes) // 2]
    result = program.run(*SEARCH, "--max-params", str(limit))
    assert result.code == 0, result.err
    assert max(state["params_millions"] for state in result.json["best"]) <= limit


def test_limits_that_no_state_meets_leave_no_search_behind(program: Program) -> None:
    """Limits on latency are looked at when the table is measured, which takes a stored search."""
    asked = (*SEARCH, "--name", "too-fast", "--goal", "limit", "--max-latency-ratio")
    refused = program.run(*asked, "0.0001")
    assert refused.code == 2
    assert "no state of the space is within the limits" in refused.err
    assert rows(program, "select id from jobs where name = 'too-fast'") == []
    again = program.run(*asked, "100", "--episodes", "1")
    assert again.code == 0, again.err
    assert again.json["name"] == "too-fast"


def test_rungs_must_lie_before_the_end_also_of_epochs(program: Program) -> None:
    """So many steps an epoch has are known when the corpus is."""
    text = (program.folder / "tiny.yaml").read_text().replace("steps: 6", "epochs: 1")
    (program.folder / "epochs.yaml").write_text(text)
    result = program.run("search", "--config", "epochs.yaml", "--rungs", "5,1000")
    assert result.code == 2
    assert "proxy.rungs: rungs lie before the last step of a training, which has " in result.err
    assert "[1000] do not" in result.err


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--goal", "limit", "--max-params", "100"), "lowest loss within the limits"),
        (("--goal", "front"), "Pareto front"),
    ],
)
def test_a_goal_decides_what_is_shown(
    program: Program, finished: Finished, options: tuple[str, ...], shown: str
) -> None:
    result = program.run(*SEARCH, *options, "--episodes", "1")
    assert result.code == 0, result.err
    assert result.json["goal"] == options[1]
    assert shown in result.err
    assert "best by reward" not in result.err
    if "limit" in options:
        assert all(s["reward"] == pytest.approx(1 - s["loss"]) for s in result.json["best"])


def test_dry_run_trains_nothing(program: Program, finished: Finished) -> None:
    before = rows(program, "select count(*) from attempts")
    result = program.run("search", "--config", "tiny.yaml", "--dry-run", "--json")
    assert result.code == 0, result.err
    assert result.json["num_states"] == 48
    assert result.json["num_candidates"] == 12
    assert result.json["num_known"] >= 12
    assert result.json["training_seconds"] > 0
    assert rows(program, "select count(*) from attempts") == before


def test_dry_run_refuses_limits_that_the_search_would_refuse(
    program: Program, finished: Finished
) -> None:
    asked = ("search", "--config", "tiny.yaml", "--max-latency-ratio", "0.001")
    refused, plan = program.run(*asked), program.run(*asked, "--dry-run")
    assert refused.code == plan.code == 2
    assert "no state of the space is within the limits" in plan.err
    assert plan.err.splitlines()[-1] == refused.err.splitlines()[-1]


def test_a_mean_loss_over_several_depths_is_warned_of(program: Program, finished: Finished) -> None:
    warning = "warning: reward.loss mean cannot rank students of different depth, and these have"
    result = program.run("search", "--config", "tiny.yaml", "--dry-run", "--reward-loss", "mean")
    assert result.code == 0, result.err
    assert result.err.count(f"{warning} 1 or 2 layers; take reward.loss relative") == 1
    assert "warning" not in finished.err


def test_students_that_have_not_learned_fail_the_search_also_when_looked_up(
    program: Program,
) -> None:
    # A start from the teacher would have learned before the first step.
    short = (
        *SEARCH,
        "--learning-rate",
        "1e-9",
        "--episodes",
        "1",
        "--seed",
        "7",
        "--init",
        "random",
    )
    for name, trainings in (("unlearned", 4), ("unlearned-again", 0)):
        result = program.run(*short, "--name", name)
        assert result.code == 1
        assert "none of the 4 candidates could be trained" in result.err
        assert "a smaller proxy.learning_rate than 1e-09 or more steps may help" in result.err
        shown = program.run("searches", "show", name, "--json").json["summary"]
        figures = [shown[key] for key in ("explored", "failed", "attempts", "best")]
        assert figures == [4, 4, trainings, []]


def test_ctrl_c_ends_in_good_order_and_says_how_to_go_on(
    program: Program, finished: Finished
) -> None:
    # A number of steps that no other search has here: what is known of theirs is counted.
    stopped = program.interrupt_when(
        lambda: candidates(program, "stopped", "succeeded") >= 2,
        *SEARCH, "--name", "stopped", "--seed", "7", "--no-reuse", "--steps", "35",
        signal_number=signal.SIGINT,
    )  # fmt: skip
    assert stopped.code == 130
    assert "kdnas search --resume stopped" in stopped.err
    assert stopped.json["status"] == "paused"
    assert "Traceback" not in stopped.err
    ended = program.run("search", "--resume", "stopped", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "succeeded"
    assert ended.json["attempts"] <= ended.json["trained"] + 1


IN_MID_EPISODE = ("--no-reuse", "--seed", "7", "--steps", "30")


@pytest.fixture(scope="module")
def control(program: Program) -> Finished:
    """What a killed search should come to; neither backend nor group changes a result."""
    result = program.run(*SEARCH, "--name", "control", *IN_MID_EPISODE, "--group-size", "2")
    assert result.code == 0, result.err
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", [("local", "1"), pytest.param(("ray", "2"), marks=pytest.mark.ray)]
)
def test_killed_search_resumes_as_if_nothing_had_happened(
    program: Program, control: Finished, backend: tuple[str, str]
) -> None:
    name = "-".join(["killed", *backend])
    options = (*IN_MID_EPISODE, "--backend", backend[0], "--group-size", backend[1])
    # In mid-episode: more than the first episode is done, and the second is not.
    program.interrupt_when(
        lambda: candidates(program, name, "succeeded") >= 5, *SEARCH, "--name", name, *options
    )
    kept = candidates(program, name, "succeeded")
    assert 5 <= kept < 12
    resumed = program.run("search", "--resume", name, "--json")
    assert resumed.code == 0, resumed.err
    assert ranking(resumed) == ranking(control)
    assert proposals(program, name) == proposals(program, "control")
    assert resumed.json["trained"] == 12
    trained_twice = rows(
        program,
        "select a.candidate_id from attempts a join candidates c on c.id = a.candidate_id "
        f"join jobs s on s.id = c.search_id where s.name = '{name}' and a.error is null "
        "group by a.candidate_id having count(*) > 1",
    )
    assert trained_twice == []
    assert resumed.json["attempts"] <= 12 + int(backend[1])


RUNGS = (
    *("--no-reuse", "--seed", "7", "--steps", "40", "--rungs", "10,20", "--keep", "2"),
    *("--episodes", "5", "--candidates", "6"),
)


@pytest.fixture(scope="module")
def with_rungs(program: Program) -> Finished:
    """A search that stops some of its students, undisturbed, each trained alone."""
    result = program.run(*SEARCH, "--name", "rungs", *RUNGS)
    assert result.code == 0, result.err
    return result


def decisions(program: Program, name: str) -> list[tuple[object, ...]]:
    """What became of every candidate, with the sentence that says why."""
    return rows(
        program,
        "select c.episode, c.position, c.architecture, c.status, c.num_steps, c.readings, "
        "c.predicted_reward, c.reward, c.note from candidates c join jobs s on s.id = c.search_id "
        f"where s.name = '{name}' order by c.episode, c.position",
    )


@pytest.mark.slow
def test_rungs_end_trainings_early(program: Program, with_rungs: Finished) -> None:
    summary, known = with_rungs.json, decisions(program, "rungs")
    assert summary["stopped"] + summary["trained"] == summary["explored"] == 30
    steps = {status: {row[4] for row in known if row[3] == status} for _, _, _, status, *_ in known}
    assert steps["succeeded"] == {40}
    assert steps["stopped"] <= {10, 20}
    made = sum(int(str(row[4])) for row in known)
    assert summary["steps_saved"] == pytest.approx(1 - made / (30 * 40))
    assert f"rungs saved {100 * summary['steps_saved']:.0f} % of the steps" in with_rungs.err
    assert re.search(r" stopped after [12]0 of 40 steps: a loss of .* foretells ", with_rungs.err)
    assert "stopped early" in program.run("searches", "show", "rungs").out
    stopped = {row[2] for row in known if row[3] == "stopped"}
    assert not stopped & {state["architecture"] for state in summary["best"]}
    # Without rungs the context is the same: those that were trained to the end are looked up.
    again = program.run(*SEARCH, "--dry-run", "--steps", "40")
    assert again.json["num_known"] == summary["trained"]
    planned = program.run(*SEARCH[:-1], "--dry-run", *RUNGS)
    assert "each 40 steps of 8 sequences (fewer with rungs after 10, 20); " in planned.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", [("local", "4"), pytest.param(("ray", "2"), marks=pytest.mark.ray)]
)
def test_a_killed_search_with_rungs_decides_the_same_again(
    program: Program, with_rungs: Finished, backend: tuple[str, str]
) -> None:
    """Once in the midst of an episode that stops some, in other groups and by other workers."""
    name = "-".join(["rungs-killed", *backend])
    options = (*RUNGS, "--backend", backend[0], "--group-size", backend[1])
    program.interrupt_when(
        lambda: candidates(program, name, "stopped") >= 1, *SEARCH, "--name", name, *options
    )
    before = decisions(program, name)
    assert any(row[3] in ("proposed", "running") for row in before) or len(before) < 30
    resumed = program.run("search", "--resume", name, "--json")
    assert resumed.code == 0, resumed.err
    assert decisions(program, name) == decisions(program, "rungs")
    assert ranking(resumed) == ranking(with_rungs)
    assert resumed.json["steps_saved"] == with_rungs.json["steps_saved"]


@pytest.mark.slow
def test_two_processes_cannot_work_on_one_search(program: Program, finished: Finished) -> None:
    process = program.fork(*SEARCH, "--name", "shared", "--no-reuse", "--steps", "200")
    try:
        while candidates(program, "shared", "running") == 0:
            assert not process.has_ended
            time.sleep(0.05)
        second = program.run("search", "--resume", "shared")
        assert second.code == 2
        assert "is being worked on by" in second.err
    finally:
        os.kill(process.pid, signal.SIGINT)
    assert process.wait(120).code == 130


WRONG = {
    "preset": (("search", "--preset", "lapto"), "did you mean 'laptop'"),
    "key": (("search", "--config", "wrong.yaml"), "2 problems"),
    "yaml": (("search", "--config", "corpus.txt"), "corpus.txt"),
    "teacher": (("search", "--teacher", "./nowhere"), "does not exist"),
    "corpus": (("search", "--teacher", "teacher", "--corpus", "nothing/*.txt"), "nothing/*.txt"),
    "empty corpus": (("search", "--teacher", "teacher", "--corpus", "empty.txt"), "empty.txt"),
    "small corpus": (("search", "--config", "tiny.yaml", "--corpus", "two.txt"), "two.txt"),
    "resume": (("search", "--resume", "zz-9"), "kdnas searches list"),
    "resume with options": (
        ("search", "--resume", "x", "--steps", "3", "--dry-run", "--teacher", "y"),
        "--dry-run, --steps, --teacher",
    ),
    "length": (("search", "--config", "long.yaml"), "latency.length (600)"),
    "unreachable output": (
        ("full-distill", "--arch", "1,4,48,96,gelu", "--output", "corpus.txt/student"),
        "cannot be made",
    ),
    "demo output": (("demo", "--output", "corpus.txt"), "cannot be made"),
    "lengths": (("search", "--steps", "3", "--epochs", "1"), "contradict"),
    "two prices": (
        ("search", "--alpha", "-0.1", "--latency-price", "0.1"),
        "--alpha -0.1 and --latency-price 0.1 contradict each other",
    ),
    "two prices in a file": (("search", "--config", "prices.yaml"), "contradict each other"),
    "keep": (("search", "--config", "tiny.yaml", "--keep", "2"), "add proxy.rungs"),
    "strategy": (("search", "--config", "tiny.yaml", "--strategy", "clever"), "Known:"),
    "option of the strategy": (
        ("search", "--config", "tiny.yaml", "--strategy-option", "variant=ones"),
        "did you mean 'once'",
    ),
    "limits": (("search", "--config", "tiny.yaml", "--max-params", "0.0001"), "max_params"),
    "alpha": (("search", "--config", "tiny.yaml", "--alpha", "1"), "alpha"),
    "goal": (("search", "--config", "tiny.yaml", "--goal", "limt"), "did you mean 'limit'"),
    "no limit": (("search", "--config", "tiny.yaml", "--goal", "limit"), "and there is none"),
    "architecture": (("full-distill", "--arch", "3,5,48,96,gelu"), "(5) must divide hidden (48)"),
    "text": (("arch", "4,12,576,many,gelu"), "'many'"),
    "activation": (("arch", "4,12,576,768,tanh"), "Known: gelu, relu, silu"),
    "deep": (
        ("full-distill", "--arch", "3,4,48,96,gelu", "--teacher", "teacher", "--corpus",
         "corpus.txt"),
        "at most 2 layers",
    ),
    "output": (
        ("full-distill", "--arch", "1,4,48,96,gelu", "--teacher", "teacher", "--corpus",
         "corpus.txt", "--output", "teacher"),
        "is not empty",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_request_is_one_sentence_and_exit_2(
    program: Program,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process: what is refused is refused before anything is started."""
    (program.folder / "wrong.yaml").write_text("proxi: {steps: 3}\ncontroller: {episods: 2}\n")
    (program.folder / "long.yaml").write_text("teacher: teacher\nlatency: {length: 600}\n")
    prices = "teacher: teacher\nreward: {alpha: -0.1, latency_price: 0.2}\n"
    (program.folder / "prices.yaml").write_text(prices)
    (program.folder / "empty.txt").write_text("")
    (program.folder / "two.txt").write_text("river stone cloud\nold tree sings\n")
    arguments, words = WRONG[case]
    monkeypatch.chdir(program.folder)
    for name in [name for name in os.environ if name.startswith("KDNAS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KDNAS_HOME", program.environment["KDNAS_HOME"])
    monkeypatch.setattr(sys, "argv", ["kdnas", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == 2, err
    assert words in err
    assert "Traceback" not in err
    assert err.count("error:") == 1
    assert out == ""


def test_home_that_cannot_be_written_fails_in_one_sentence(
    program: Program, tmp_path: Path
) -> None:
    blocked = tmp_path / "home"
    blocked.write_text("a file where the home should be")
    result = program.run(*SEARCH, KDNAS_HOME=str(blocked))
    assert result.code == 1
    assert "Traceback" not in result.err
    assert str(blocked) in result.err


@pytest.mark.postgres
def test_search_on_postgresql(program: Program, finished: Finished, postgres_url: str) -> None:
    refused = program.run(*SEARCH, KDNAS_DATABASE_URL=postgres_url)
    assert refused.code == 1
    assert "kdnas db upgrade" in refused.err
    assert program.run("db", "upgrade", KDNAS_DATABASE_URL=postgres_url).code == 0
    result = program.run(*SEARCH, "--episodes", "2", KDNAS_DATABASE_URL=postgres_url)
    assert result.code == 0, result.err
    assert result.json["trained"] == 8
