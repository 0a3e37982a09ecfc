"""`kdnas task-distill` and `kdnas task-distillations`: requests, screens and answers.

The work itself is made up; what comes of real work is for tests of their own.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.jobs.files import task_run_folder
from kdnas.cli.main import app
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import TaskDistillation
from kdnas.db.repository import jobs, task_distillations
from kdnas.errors import NotFoundError, OutputError, RequestError, SpecError
from kdnas.settings import Settings
from kdnas.testing.demo_tasks import add_task_distillation, keep_predictions, task_run
from kdnas.testing.task_work import TaskWork


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a home, and the files of RTE as far as their names go."""
    for name in ("KDNAS_DATABASE_URL", "KDNAS_TEACHER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    for part in ("train", "dev"):
        (tmp_path / "glue" / "RTE" / f"{part}.tsv").write_text("sentence1\tsentence2\tlabel\n")
    return tmp_path


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> TaskWork:
    return TaskWork.installed(monkeypatch)


def opened() -> Database:
    return open_database(Settings.from_environment())


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def run(*arguments: str) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result


DISTIL = ("task-distill", "--task", "rte", "--data-dir", "glue")


def test_the_command_of_the_manual(home: Path, work: TaskWork) -> None:
    (home / "my-bert").mkdir()
    done = run(
        *(*DISTIL, "--teacher", "./my-bert", "--method", "universal-kd-il"),
        *("--student", "first-layers:4", "--output", "./rte-student", "--name", "first"),
    )
    assert (home / "rte-student" / "weights").read_text() == "universal-kd-il 0"
    with opened() as database, database.read() as session:
        row = jobs.get_job(session, "first", TaskDistillation)
        asked = row.requested
    assert row.owner_kind == "cli"
    assert asked["teacher"]["ref"] == str(home / "my-bert")
    assert (asked["data_dir"], asked["output"]) == (str(home / "glue"), str(home / "rte-student"))
    assert (asked["methods"], asked["seeds"], asked["student"]) == (
        ["universal-kd-il"],
        [0],
        "first-layers:4",
    )
    told = " ".join(done.stderr.split())
    assert "distilling first (id" in told
    assert "teacher bert-base-uncased, 12 layers, fine-tuned for it here: 68.2" in told
    assert "its layers 1:" in told
    assert "warning: the student begins with the teacher's lowest layers" in told
    main = 100 * (task_run("universal-kd-il", 0).main or 0.0)
    assert f"universal-kd-il seed 0: {main:.1f}, held out" in told
    shown = done.stdout
    assert "universal-kd-il" in shown
    assert "beside what Wu et al. (2021) print in their Tables 2 to 6:" in shown
    assert f"best by held-out score in {home / 'rte-student'}" in shown


def test_every_option_is_at_its_place(home: Path, work: TaskWork) -> None:
    run(
        *(*DISTIL, "--method", "none,pkd", "--method", "takd", "--seeds", "3,5", "--name", "all"),
        *("--epochs", "2", "--finetune-epochs", "1", "--max-steps", "7", "--dropout", "0.2"),
        *("--grid", "--grid-batch-sizes", "4,8", "--grid-betas", "0.3", "--temperature", "2"),
        *("--grid-learning-rates", "1e-5", "--layer-choice", "last", "--teacher-layers", "2,4"),
        *("--assistant", "first-layers:4", "--cache", "never", "--teacher-epochs", "4"),
        *("--teacher-learning-rate", "3e-5", "--teacher-batch-size", "64", "--teacher-seed", "9"),
        *("--warmup-states", "standardised"),
        *("--warmup-epochs", "2", "--warmup-fraction", "0", "--max-length", "64"),
        *("--teacher-fine-tune", "always"),
        *("--published", "bert-4", "--dtype", "float32", "--device", "cpu", "--threads", "1"),
    )
    with opened() as database, database.read() as session:
        asked = jobs.get_job(session, "all", TaskDistillation).requested
    assert (asked["methods"], asked["seeds"]) == (["none", "pkd", "takd"], [3, 5])
    assert asked["grid"] == {"batch_sizes": [4, 8], "learning_rates": [1e-5], "betas": [0.3]}
    assert asked["teacher_layers"] == [2, 4]
    teacher = asked["teacher"]
    assert [teacher[key] for key in ("epochs", "learning_rate", "batch_size", "seed")] == [
        *(4, 3e-5, 64, 9),
    ]
    assert (teacher["ref"], teacher["warmup_epochs"]) == ("minilm", 2)
    assert teacher["warmup_states"] == "standardised"
    assert teacher["fine_tune"] == "always"
    flat = {
        **{"epochs": 2, "finetune_epochs": 1, "max_steps": 7, "dropout": 0.2, "temperature": 2},
        **{"layer_choice": "last", "assistant": "first-layers:4", "cache": "never"},
        **{"warmup_fraction": 0, "max_length": 64, "published": "bert-4", "threads": 1},
        **{"dtype": "float32", "device": "cpu"},
    }
    assert {key: asked[key] for key in flat} == flat


def test_a_task_of_ones_own_and_a_file_with_a_request(
    home: Path, work: TaskWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_TEACHER", "bert-base-uncased")
    (home / "mine.csv").write_text("a,b,score\nx,y,0.5\n")
    (home / "request.yaml").write_text("methods: [none, vanilla-kd]\nseeds: 2\nbeta: 0.7\n")
    run(
        *("task-distill", "--task", "mine", "--data-dir", "mine.csv", "--config", "request.yaml"),
        *("--kind", "regression", "--text", "a", "--pair", "b", "--label", "score"),
        *("--beta", "0.2", "--seeds", "1", "--name", "mine"),
    )
    with opened() as database, database.read() as session:
        asked = jobs.get_job(session, "mine", TaskDistillation).requested
    own = {"kind": "regression", "text": "a", "pair": "b", "label": "score"}
    assert {key: asked["own"][key] for key in own} == own
    assert (asked["methods"], asked["seeds"], asked["beta"]) == (["none", "vanilla-kd"], [0], 0.2)
    assert asked["teacher"]["ref"] == "bert-base-uncased"


def test_what_a_grid_has_tried_and_taken_is_printed(home: Path, work: TaskWork) -> None:
    scores = {(4, 1e-5): 0.62, (8, 1e-5): 0.65, (4, 0.5): None, (8, 0.5): 0.5}
    work.scores = lambda point: scores[point.batch_size, point.learning_rate]
    done = run(
        *(*DISTIL, "--method", "none", "--name", "tried", "--grid-batch-sizes", "8,4"),
        *("--grid-learning-rates", "1e-5,0.5"),
    )
    table = [
        "grid of none, 4 points:",
        "batch   rate  β  held out",
        "    4  1e-05  –      62.0",
        "    4    0.5  –  diverged",
        "    8  1e-05  –      65.0  taken",
        "    8    0.5  –      50.0",
    ]
    assert done.stdout.splitlines()[: len(table)] == table
    assert "\n".join(table) in run("task-distillations", "show", "tried").stdout
    again = run("task-distill", "--resume", "tried")
    assert again.stdout == done.stdout
    assert len(work.tried) == 4


def test_json_is_what_the_service_answers_with_the_report(home: Path, work: TaskWork) -> None:
    done = run(*DISTIL, "--method", "none,vanilla-kd", "--seeds", "2", "--name", "all", "--json")
    found = json.loads(done.stdout)
    assert (found["status"], found["done"], found["total"]) == ("succeeded", 4, 4)
    report = found.pop("report")
    assert [row["method"] for row in report["rows"]] == ["none", "vanilla-kd"]
    assert json.loads(run("task-distillations", "show", "all", "--json").stdout) == found
    assert json.loads(run("task-distillations", "report", "all", "--json").stdout) == report
    assert [one["name"] for one in json.loads(run("task-distillations", "list", "--json").stdout)]


def test_stopped_by_ctrl_c_it_goes_on(home: Path, work: TaskWork) -> None:
    def stop(method: str, seed: int) -> None:
        if len(work.begun) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    work.before = stop
    stopped = invoke(*DISTIL, "--method", "none", "--seeds", "3", "--name", "all")
    assert stopped.exit_code == 130
    assert "paused; go on with: kdnas task-distill --resume all" in stopped.stderr
    assert "2 of 3 runs are not done yet" in stopped.stdout
    with pytest.raises(SpecError, match="--method, --task cannot be given with it"):
        invoke("task-distill", "--resume", "all", "--task", "rte", "--method", "none")
    work.before = lambda method, seed: None
    done = run("task-distill", "--resume", "all")
    assert "all  (id" in done.stderr
    assert len(work.begun) == 4
    again = run("task-distill", "--resume", "all")
    assert len(work.begun) == 4
    assert again.stdout == done.stdout


def test_runs_that_failed_are_tried_again(home: Path, work: TaskWork) -> None:
    work.fails = {("none", 1)}
    done = run(*DISTIL, "--method", "none", "--seeds", "2", "--name", "all")
    assert "none seed 1: failed: the loss is no number at step 12" in done.stderr
    assert "note: none with seed 1 failed: the loss is no number at step 12" in done.stdout
    work.fails.clear()
    done = run("task-distill", "--resume", "all")
    assert "none with seed 1 failed" not in done.stdout
    assert work.begun == [("none", 0), ("none", 1), ("none", 1)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "task"),
        (("--task", "nothing"), "unknown task 'nothing'"),
        (("--task", "rte", "--seeds", "two"), "--seeds 'two' is no list of whole numbers"),
        (("--task", "rte", "--seeds", "9" * 5000), "no list of whole numbers"),
        (("--task", "rte", "--grid-betas", "a"), "--grid-betas 'a' is no list of numbers"),
        (("--task", "rte", "--beta", "0.2", "--grid"), "a grid chooses batch size"),
        (("--task", "rte", "--method", "magic"), "methods"),
        (("--task", "mine", "--kind", "tagging", "--data-dir", "glue"), "tagging"),
        (("--task", "cola", "--data-dir", "glue"), "CoLA"),
    ],
)
def test_a_wrong_request_is_refused_and_stored_nowhere(
    home: Path, work: TaskWork, options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        invoke("task-distill", *options)
    assert work.prepared == 0
    with opened() as database, database.read() as session:
        assert jobs.newest_jobs(session, TaskDistillation) == []


def test_a_used_output_folder_is_refused(home: Path, work: TaskWork) -> None:
    (home / "out").mkdir()
    (home / "out" / "mine").touch()
    with pytest.raises(OutputError, match="out is not empty"):
        invoke(*DISTIL, "--output", "out")
    assert work.prepared == 0


def test_what_is_stored_is_listed_and_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = run("task-distillations", "list").stdout
    assert nothing.startswith("nothing was distilled for a task yet")
    with pytest.raises(NotFoundError, match="there is no task distillation 'mine'"):
        invoke("task-distillations", "show", "mine")
    with opened() as database:
        whole = add_task_distillation(database, "whole", failed="pkd")
        for method, seed in product(("vanilla-kd", "universal-kd-il"), range(3)):
            folder = task_run_folder(Settings.from_environment(), whole, method, seed)
            keep_predictions(folder, task_run(method, seed))
        with database.write() as session:
            spec = {"task": "CoLA", "student": "bilstm", "methods": ["none"], "seeds": [0]}
            made = task_distillations.create_task_distillation(session, spec, name="new").id
            jobs.set_status(session, made, "failed", "the disk is full")
            for name, whose in (("waits", "service"), ("left", "cli")):
                task_distillations.create_task_distillation(
                    session, spec, name=name, owner_kind=whose
                )
    header, *rows = (line.split() for line in run("task-distillations", "list").stdout.splitlines())
    assert header == ["name", "status", "task", "student", "methods", "seeds", "runs", "age"]
    assert [row[:4] for row in rows] == [
        ["left", "queued", "CoLA", "bilstm"],
        ["waits", "queued", "CoLA", "bilstm"],
        ["new", "failed", "CoLA", "bilstm"],
        ["whole", "succeeded", "RTE", "first-layers:3"],
    ]
    assert rows[3][6] == "15/15"
    assert len(run("task-distillations", "list", "--task", "CoLA").stdout.splitlines()) == 4
    none = run("task-distillations", "list", "--status", "running").stdout
    assert none.startswith("no such distillation")
    shown = run("task-distillations", "show", "whole").stdout
    assert "teacher    bert-base-uncased, 12 layers" in shown
    assert "pkd seed 2: failed: the loss is no number at step 12" in shown
    assert "next       kdnas task-distillations report whole" in shown
    new = run("task-distillations", "show", "new").stdout
    assert "status     failed: the disk is full" in new
    assert "next       kdnas task-distill --resume new" in new
    for name, advice in (("waits", "jobs watch"), ("left", "task-distill --resume")):
        told = run("task-distillations", "show", name).stdout
        assert f"next       kdnas {advice} {name}" in told
    report = run("task-distillations", "report", "whole").stdout
    lines = report.splitlines()
    assert lines[0] == (
        "RTE: first-layers:3 of bert-base-uncased, in per cent of accuracy, mean ± deviation over "
        "seeds"
    )
    assert lines[1].split()[:3] == ["method", "seeds", "score"]
    assert "to vanilla-kd" in lines[1]
    beside = lines.index("beside what Wu et al. (2021) print in their Tables 2 to 6:")
    assert lines[beside + 1].split("  ")[-1].strip() == "6: DistilRoBERTa, dev"
    table = {line.split()[0]: line.split()[1:] for line in lines[beside + 2 :]}
    assert table["teacher"] == ["68.2", "68.2", "–", "86.3", "68.2", "68.2", "–"]
    assert table["universal-kd-il"][1:3] == ["67.9", "62.6"]
    assert table["takd"] == ["–", "–", "–", "71.8", "–", "–", "–"]
    assert " (+" in lines[5]
    assert lines[5].endswith("  <0.001")
    assert lines[4].split()[-2:] == ["–", "–"]  # of pkd no predictions lie here

    listed = run("task-distillations", "runs", "whole").stdout.splitlines()
    assert len(listed) == 15
    assert "pkd seed 2: failed: the loss is no number at step 12" in listed
    runs = json.loads(run("task-distillations", "runs", "whole", "--json").stdout)["items"]
    assert len(runs) == 15
    assert {"curve", "attention", "samples"} <= set(runs[0])
    with monkeypatch.context() as short:
        short.setattr("kdnas.cli.task_distillations.RUNS_A_PAGE", 4)
        assert run("task-distillations", "runs", "whole").stdout.splitlines() == listed
    assert run("task-distillations", "runs", "new").stdout == "no run is done yet\n"
    of_markdown = run("task-distillations", "report", "whole", "--format", "md").stdout
    assert of_markdown.startswith(f"## whole\n\n{lines[0]}\n\n| method | seeds | score |")
    assert "\n- pkd with seed 2 failed: the loss is no number at step 12\n" in of_markdown
    found = run("task-distillations", "report", "whole", "--format", "csv").stdout
    plain = json.loads(run("task-distillations", "report", "whole", "--format", "json").stdout)
    written = list(csv.DictReader(io.StringIO(found)))
    for ours, row in zip(written, plain["rows"], strict=True):
        assert (ours["task"], ours["method"]) == ("RTE", row["method"])
        assert (float(ours["mean"]), int(ours["planned"])) == (row["mean"], row["planned"])
        compared = row["against"]
        assert ours["against"] == ("vanilla-kd" if compared else "")
        assert ours["difference_low"] == (str(compared["low"]) if compared else "")
    with pytest.raises(SpecError, match="unknown format 'cvs', did you mean 'csv'"):
        invoke("task-distillations", "report", "whole", "--format", "cvs")


def test_the_schema_is_that_of_the_service(home: Path) -> None:
    schema = json.loads(run("schema", "task-distillation").stdout)
    assert "methods" in schema["properties"]
