"""`kdnas launch` before any work: where values come from, and what is refused in one sentence."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from kdnas.cli import launch, pipelines
from kdnas.cli.options.inputs import gather
from kdnas.cli.options.places import nested
from kdnas.cli.screens.pipeline import most_students, most_task_distillations
from kdnas.db.engine import Database
from kdnas.db.repository import pipelines as repository
from kdnas.errors import ConflictError, RequestError
from kdnas.settings import Settings
from kdnas.specs.load import load_preset, merge, preset_names
from kdnas.specs.pipeline import BaselinesSpec, PipelineSpec
from kdnas.testing.tiny_tasks import write_sst2
from kdnas.testing.walked_pipeline import add_pipeline

pytestmark = pytest.mark.databases("sqlite")

app = typer.Typer()
app.command()(launch.launch)


def gathered(tmp_path: Path, values: dict[str, Any], **environment: str) -> PipelineSpec:
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path), **environment})
    return PipelineSpec.read(gather("pipeline", nested(values), settings).data, "test")


def test_every_preset_has_a_pipeline() -> None:
    for name in preset_names():
        spec = PipelineSpec.read(load_preset(name, "pipeline"), name)
        assert most_students(spec) >= 3  # somebody chosen, and somebody to compare him with
        assert spec.baselines.undistilled
        assert spec.baselines.smallest_cuts
        search = load_preset(name, "search")
        assert spec.search.corpus.max_length == search["corpus"]["max_length"]
        assert spec.search.latency.length == search["latency"]["length"]


def test_the_documented_request_is_one() -> None:
    text = Path("docs/pipeline.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(.+?)```", text, re.DOTALL)
    spec = PipelineSpec.read(yaml.safe_load(example), "docs")
    assert spec.choose.latency_budgets_ms == (6, 9, 12)
    asked = {"variants": (), "smallest_cuts": False}
    assert spec.baselines.model_copy(update=asked) == BaselinesSpec()
    assert spec.baselines.smallest_cuts
    assert [variant.layers for variant in spec.baselines.variants] == [None, 0.5, 1]


def test_the_objective_that_is_asked_for_decides_the_presets_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path)})

    def rate(values: dict[str, Any]) -> float:
        data = gather("distillation", nested(values), settings).data
        return float(data["training"]["learning_rate"])

    slow = rate({"objective.name": "od"})
    assert slow < rate({}) == rate({"objective.name": "hs"})
    assert rate({"objective.name": "od", "training.learning_rate": 0.5}) == 0.5
    (tmp_path / "kdnas.yaml").write_text("objective: od\n", "utf-8")
    assert rate({}) == slow
    assert rate({"objective.name": "hs"}) > slow
    spec = gathered(tmp_path, {})
    assert spec.distillation.training.learning_rate == slow
    assert spec.search.proxy.learning_rate < 1e-3


def test_values_reach_the_part_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kdnas.yaml").write_text(
        "teacher: ./local\nseed: 5\ntraining: {steps: 77}\narchitecture: 3,12,384,384,gelu\n",
        "utf-8",
    )
    plain = gathered(tmp_path, {})
    assert (plain.search.teacher.ref, plain.search.seed) == ("./local", 5)
    assert plain.distillation.training.steps == 77
    assert plain.evaluation.tasks == ("SST-2",)
    spec = gathered(
        tmp_path,
        {
            "search.controller.episodes": 9,
            "choose": {"latency_budgets_ms": ["6", "9"]},
            "evaluation.suite": "ner",
        },
        KDNAS_TEACHER="other",
        KDNAS_CORPUS="texts",
    )
    assert (spec.search.teacher.ref, spec.search.corpus.source) == ("other", ("texts",))
    assert spec.search.controller.episodes == 9
    assert (spec.choose.top, spec.choose.latency_budgets_ms) == (None, (6.0, 9.0))
    assert spec.evaluation.tasks == ()  # those of the preset are of another suite


def test_where_values_come_from_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path), "KDNAS_CORPUS": "texts"})
    inputs = gather("pipeline", nested({"search.teacher.ref": "mine"}), settings, preset="paper")
    assert inputs.lines() == [
        "preset     paper  (from --preset)",
        "teacher    mine  (from the command line)",
        "corpus     texts  (from the environment)",
        "objective  hs  (default; change it with --objective or kdnas.yaml)",
    ]


def test_tasks_stay_with_their_suite() -> None:
    before = {"evaluation": {"suite": "glue", "tasks": ["RTE"], "data_dir": "a", "seeds": 2}}
    same = merge(before, {"evaluation": {"suite": "glue", "seeds": 3}})
    assert same["evaluation"] == {"suite": "glue", "tasks": ["RTE"], "data_dir": "a", "seeds": 3}
    other = merge(before, {"evaluation": {"suite": "squad"}})
    assert other["evaluation"] == {"suite": "squad", "seeds": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--suite", "glu"), "unknown suite 'glu'"),
        (("--tasks", "SST3"), "unknown task 'SST3'"),
        (("--top", "2", "--latency-budgets", "6"), "two ways; give one"),
        (("--latency-budgets", "6,x"), "not 'x'"),
        (("--top", "0"), "choose.top"),
        (("--preset", "laptob"), "did you mean 'laptop'"),
        (("--data-dir", "empty"), "no data of SST-2 in"),
        (("--seeds", "0"), "give from 1 to 1000 seeds"),
        (("--output", "file"), "output folder file cannot be made"),
        (
            ("--resume", "one", "--teacher", "x", "--top", "3"),
            "so --teacher, --top cannot be given",
        ),
        (("--resume", "one"), "there is no pipeline 'one'"),
        (("--goal", "limt"), "not 'limt'; did you mean 'limit'"),
        (("--goal", "limit", "--top", "3"), "within limits, and there is none"),
        (("--max-latency-ratio", "0"), "search.limits.max_latency_ratio: give a number above 0"),
        (("--strategy", "gpp"), "search.controller.strategy: unknown name 'gpp', did you mean"),
        (
            ("--strategy", "evolution", "--strategy-option", "sample=90"),
            "sample 90 is more than the population 20",
        ),
        (("--data-dir", "glue", "--teacher", "./nowhere"), "does not exist"),
        (("--task-distill", "pkdd"), "not 'pkdd'; did you mean"),
        (("--task-distill", "universal-kd-ca"), "it is universal-kd-il: take that"),
    ],
)
def test_wrong_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("in the way", "utf-8")
    write_sst2(tmp_path / "glue")
    done = CliRunner().invoke(app, list(arguments))
    assert isinstance(done.exception, RequestError), done.output
    assert message in str(done.exception)


def test_what_is_wanted_of_the_search_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    write_sst2(tmp_path / "glue")
    wanted = ("--goal", "limit", "--top", "2", "--max-latency-ratio", "0.3")
    inputs = ("--data-dir", "glue", "--teacher", "./nowhere")
    by = ("--strategy", "evolution", "--strategy-option", "sample=3")
    done = CliRunner().invoke(app, [*inputs, *wanted, *by])
    assert "goal       limit, candidates by evolution" in done.output
    assert "does not exist" in str(done.exception)  # the teacher, which is read after the request


def test_the_second_step_is_said_and_its_config_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    write_sst2(tmp_path / "glue")
    inputs = ("--data-dir", "glue", "--teacher", "./nowhere", "--task-distill", "vanilla-kd")
    done = CliRunner().invoke(app, [*inputs])
    told = (
        "then       vanilla-kd for SST-2; 20 passes on a teacher that has learned the task and 10 "
        "on the labels alone, at most 500 steps in each stage; of what the search chose; 1 seed"
    )
    assert told in done.output
    (tmp_path / "own.yaml").write_text("task_distill: {method: pkd, epochs: 4}\n", "utf-8")
    done = CliRunner().invoke(app, [*inputs, "--config", "own.yaml", "--max-steps", "9"])
    assert "vanilla-kd for SST-2; 4 passes" in done.output
    assert "at most 9 steps in each stage" in done.output
    (tmp_path / "own.yaml").write_text("task_distill: pkd\n", "utf-8")
    plain = CliRunner().invoke(app, [*inputs[:4], "--config", "own.yaml"])
    assert "then       pkd for SST-2" in plain.output
    spec = gathered(tmp_path, {"task_distill.method": "vanilla-kd", "choose.top": 2})
    assert most_task_distillations(spec) == 2


def test_a_report_is_written_again_beside_the_students(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database.url.render_as_string(hide_password=False))
    first = tmp_path / "first"
    students = {"output": str(first / "students")}
    add_pipeline(database, "mine", owner_kind="cli", distillation=students)
    again = CliRunner().invoke(app, ["--resume", "mine"])
    assert again.exit_code == 0, again.output
    assert "Pipeline mine" in (first / "report.md").read_text("utf-8")
    shutil.rmtree(first)
    first.write_text("in the way", "utf-8")
    barred = CliRunner().invoke(app, ["--resume", "mine"])
    assert isinstance(barred.exception, ConflictError)
    assert f"{first} cannot be made (File exists); name another with --output" in str(
        barred.exception
    )
    second = CliRunner().invoke(app, ["--resume", "mine", "--output", str(tmp_path / "second")])
    assert second.exit_code == 0, second.output
    assert (tmp_path / "second" / "report.md").is_file()


def test_what_is_over_or_the_services_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    add_pipeline(database, "under-way", distilled=1)
    add_pipeline(database, "over")
    write_sst2(tmp_path / "glue")
    monkeypatch.setenv("KDNAS_HOME", str(tmp_path))
    monkeypatch.setenv("KDNAS_DATABASE_URL", database.url.render_as_string(hide_password=False))
    done = CliRunner().invoke(app, ["--resume", "under-way"])
    assert isinstance(done.exception, ConflictError)
    assert "is the service's" in str(done.exception)
    over = CliRunner().invoke(app, ["--resume", "over", "--output", str(tmp_path / "out")])
    assert over.exit_code == 0, over.output
    assert "pipeline over: succeeded, stage done" in over.output
    assert (tmp_path / "out" / "report.md").is_file()
    listed = CliRunner().invoke(pipelines.app, ["list"])
    assert [line.split()[:3] for line in listed.output.splitlines()] == [
        ["name", "status", "stage"],
        ["over", "succeeded", "done"],
        ["under-way", "running", "distillation"],
    ]
    shown = CliRunner().invoke(pipelines.app, ["show", "under-way"])
    assert "chosen" in shown.output
    assert "running, relative loss" in shown.output
    taken = CliRunner().invoke(app, ["--name", "over", "--data-dir", str(tmp_path / "glue")])
    assert isinstance(taken.exception, ConflictError)
    cancelled = CliRunner().invoke(pipelines.app, ["cancel", "under-way"])
    assert cancelled.output == "cancelled under-way; what had succeeded is kept\n"
    with database.read() as session:
        record = repository.get_pipeline(session, "under-way")
        members = repository.list_members(session, record.id)
    assert record.status == "cancelled"
    assert {m.distillation.status for m in members if m.distillation} == {
        *("succeeded", "cancelled")
    }
