"""Evaluations from the request to the stored row: begun, stopped, gone on with, looked up."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.evaluations import run as evaluation_run
from api.evaluations.command import EvaluationOutcome, check_saving, run_evaluation, save_models
from api.evaluations.predictions import put_predictions
from api.evaluations.prepare import PreparedEvaluation, prepare_evaluation, prepared_for
from api.evaluations.report import build_report
from api.evaluations.run import Evaluator, FinishedPair
from api.evaluations.stored_report import stored_report
from api.jobs.files import evaluation_folder
from kdnas.db.engine import Database
from kdnas.db.migrate import open_database
from kdnas.db.models import Evaluation
from kdnas.db.queue import claims, leases
from kdnas.db.queue.leases import LeaseOwner
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.errors import (
    ConflictError,
    NotFoundError,
    RequestError,
    SpecError,
    TaskDataError,
    TeacherError,
    TrainingError,
)
from kdnas.evaluation.prediction.predictor import Predictor
from kdnas.evaluation.tasks.examples import TextExample
from kdnas.settings import Settings
from kdnas.specs.evaluation import EvaluationSpec
from kdnas.testing.tiny_teacher import make_tiny_teacher

# What is tried here is how work runs; that queries find the same is for the repository's tests.
pytestmark = pytest.mark.databases("sqlite")

WORDS = ("good", "bad", "film", "the", "was", "plot", "dull", "fun")


def write_tasks(folder: Path) -> Path:
    """SST-2 and RTE in the files of GLUE."""
    draw = random.Random(0)

    def text() -> str:
        return " ".join(draw.choice(WORDS) for _ in range(6))

    for part, count in (("train", 60), ("dev", 20)):
        lines = [(sentence, int("good" in sentence)) for sentence in (text() for _ in range(count))]
        table = "".join(f"{sentence}\t{label}\n" for sentence, label in lines)
        (folder / "SST-2").mkdir(parents=True, exist_ok=True)
        (folder / "SST-2" / f"{part}.tsv").write_text(f"sentence\tlabel\n{table}", "utf-8")
        rows = "".join(
            f"{i}\t{text()}\t{text()}\t{draw.choice(('entailment', 'not_entailment'))}\n"
            for i in range(count)
        )
        (folder / "RTE").mkdir(exist_ok=True)
        (folder / "RTE" / f"{part}.tsv").write_text(
            f"index\tsentence1\tsentence2\tlabel\n{rows}", "utf-8"
        )
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_tiny_teacher(folder / "large", words=WORDS)
    make_tiny_teacher(folder / "small", words=WORDS, layers=1, hidden=24)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("glue"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")})


def prepared(models: Path, data: Path, model: str = "large", **values: Any) -> PreparedEvaluation:
    request = {
        "model": str(models / model),
        "suite": "glue",
        "data_dir": str(data),
        "seeds": 2,
        "max_steps": 4,
        "batch_size": 8,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
    }
    return prepare_evaluation(EvaluationSpec.read(request | values, "test"))


def figures(outcome: EvaluationOutcome) -> list[tuple[str, int, float, bool]]:
    return [(p.result.task, p.result.seed, p.result.main, p.known) for p in outcome.finished]


def records(outcome: EvaluationOutcome) -> list[EvaluationRecord]:
    return [pair.record for pair in outcome.finished]


def test_a_stopped_evaluation_goes_on_where_it_was(
    database: Database, models: Path, data: Path, settings: Settings, tmp_path: Path
) -> None:
    plan = prepared(models, data)
    assert [p.task.name for p in plan.tasks] == ["SST-2", "RTE"]
    assert "MNLI" in plan.absent
    whole_settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path / "other")})
    asked = iter(range(1000))
    told: list[int] = []
    outcome = run_evaluation(
        plan, database, settings, on_finished=lambda pair: told.append(pair.result.seed),
        should_stop=lambda: next(asked) > 6,
    )  # fmt: skip
    assert outcome.stopped
    assert (len(outcome.finished), told) == (1, [0])
    with database.read() as session:
        rows = evaluations.list_evaluations(session, suite="glue")
    assert [(row.task, row.seed, row.status) for row in rows] == [
        ("SST-2", 1, "paused"),
        ("SST-2", 0, "succeeded"),
    ]
    assert list((evaluation_folder(settings, rows[0].id) / "checkpoints").iterdir())
    resumed = run_evaluation(plan, database, settings)
    assert not resumed.stopped
    assert [row[3] for row in figures(resumed)] == [True, False, False, False]
    again = run_evaluation(prepared(models, data), database, whole_settings)
    assert figures(again) == [(*row[:3], True) for row in figures(resumed)]
    assert not (evaluation_folder(settings, rows[0].id) / "checkpoints").exists()
    evaluator = Evaluator(plan, database, settings)  # as if another had ended it meanwhile
    ready = evaluator.made_ready(plan.tasks[0])
    assert ready is not None
    known = evaluator.take_and_do(plan.tasks[0], 0, ready)
    assert known is not None
    assert (known.known, known.result.main) == (True, resumed.finished[0].result.main)
    changed = prepared(models, data, tasks=["sst2"], max_steps=3)
    assert not run_evaluation(changed, database, settings).finished[0].known


def test_models_are_compared_on_the_same_examples(
    database: Database, models: Path, data: Path, settings: Settings
) -> None:
    large, small = (prepared(models, data, name, tasks=["SST-2"]) for name in ("large", "small"))
    outcome = run_evaluation(small, database, settings)
    other = str(models / "large")
    with pytest.raises(NotFoundError, match="was not evaluated on SST-2 with these data"):
        build_report(small, records(outcome), [other], database, settings)
    theirs = run_evaluation(large, database, settings)
    report = build_report(small, records(outcome), [other], database, settings)
    own, teacher = report.rows[:2]
    (against,) = report.against
    assert own.cells["SST-2"].seeds == 2
    assert against.retained["SST-2"] == pytest.approx(
        own.cells["SST-2"].mean / teacher.cells["SST-2"].mean
    )
    means = [sum(row[2] for row in figures(o)) / 2 for o in (outcome, theirs)]
    assert against.tests["SST-2"].difference == pytest.approx(means[0] - means[1])
    assert against.tests["SST-2"].examples == 20
    file = evaluation_folder(settings, outcome.finished[0].record.id) / "predictions.jsonl"
    first = json.loads(file.read_text("utf-8").splitlines()[0])
    assert (first["set"], first["id"]) == ("dev", outcome_ids(data)[0])
    assert first["prediction"] in ("negative", "positive")
    assert first["score"] == float(first["prediction"] == first["gold"])
    assert against.tests["SST-2"].metric == "accuracy"


def outcome_ids(data: Path) -> list[str]:
    from kdnas.evaluation.data.loading import load_task
    from kdnas.evaluation.tasks.registry import find_task

    return [example.id for example in load_task(find_task("SST-2"), data).evaluations["dev"]]


def test_a_failure_is_written_down_and_may_be_tried_again(
    database: Database,
    models: Path,
    data: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = prepared(models, data, tasks=["RTE"], seeds=1)

    def fail(*_: Any, **__: Any) -> None:
        raise TrainingError("the loss is nan")

    with monkeypatch.context() as patch:
        patch.setattr(evaluation_run, "finetune", fail)
        with pytest.raises(TrainingError):
            run_evaluation(plan, database, settings)
    with database.read() as session:
        (row,) = evaluations.list_evaluations(session)
    assert (row.status, row.error) == ("failed", "the loss is nan")
    (pair,) = run_evaluation(plan, database, settings).finished
    assert (pair.record.id, pair.record.status, pair.record.error) == (row.id, "succeeded", None)


@pytest.mark.databases("sqlite", "postgresql")
def test_two_processes_do_not_work_on_the_same_pair(
    database: Database, models: Path, data: Path, settings: Settings
) -> None:
    plan = prepared(models, data, tasks=["RTE"], seeds=1)
    run_evaluation(plan, database, settings, should_stop=lambda: True)
    with database.write() as session:
        (row,) = evaluations.list_evaluations(session)
        other = LeaseOwner("cli", "elsewhere", 1, 0.0, "token")
        leases.acquire(session, Evaluation, row.id, other, 60)
    with pytest.raises(ConflictError, match="being worked on by the cli in process 1"):
        run_evaluation(plan, database, settings)


def test_wrong_requests_are_explained(models: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unknown suite 'glu', did you mean 'glue'"):
        prepared(models, data, suite="glu")
    with pytest.raises(SpecError, match="unknown task of suite glue 'XNLI'"):
        prepared(models, data, tasks=["XNLI"])
    with pytest.raises(TaskDataError, match="CoLA"):
        prepared(models, data, tasks=["CoLA"])
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TaskDataError):
        prepared(models, empty)


def test_variants_are_models_of_their_own(
    database: Database,
    models: Path,
    data: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))
    whole = prepared(models, data, tasks=["SST-2"], seeds=1)
    cut = prepared(models, data, tasks=["SST-2"], seeds=1, keep_layers=1)
    name = str(models / "large")
    outcomes = [run_evaluation(plan, database, settings) for plan in (whole, cut)]
    pairs = [outcome.finished[0] for outcome in outcomes]
    assert [pair.known for pair in pairs] == [False] * 2
    assert [pair.record.model for pair in pairs] == [name, f"{name} (1 layer)"]

    report = build_report(cut, records(outcomes[1]), [name], database, settings)
    assert [row.model for row in report.rows[:2]] == [f"{name} (1 layer)", name]
    speed_up = report.against[0].speed_up
    assert speed_up is not None
    assert speed_up > 1
    # What was measured stands with the results, and is not measured again.
    with database.read() as session:
        stored = stored_report(session, settings, f"{name} (1 layer)", "glue", [name])
    assert stored.against[0].speed_up == speed_up
    known = run_evaluation(cut, database, settings)
    again = build_report(cut, records(known), [name], database, settings)
    assert again.rows[0].figures == report.rows[0].figures

    beside = prepared_for(name, cut)
    assert beside.is_like(whole)
    assert not beside.is_like(cut)
    assert run_evaluation(beside, database, settings).finished[0].known
    with pytest.raises(TeacherError, match="2 layers cannot be kept of the 2"):
        prepared(models, data, keep_layers=2)


@pytest.mark.slow
def test_int8_is_scored_after_the_same_fine_tuning(
    models: Path, data: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDNAS_LOCKS", str(tmp_path / "locks"))
    with open_database(settings) as database:
        small = prepared(models, data, tasks=["SST-2"], seeds=1, int8=True)
        outcome = run_evaluation(small, database, settings)
        (pair,) = outcome.finished
        assert pair.record.model == f"{models / 'large'} (int8)"
        assert any(note.startswith("weights in int8") for note in pair.result.notes)
        report = build_report(small, records(outcome), [], database, settings)
    found = report.rows[0].figures
    assert found is not None
    assert found.runtime == "onnx-int8"
    assert found.disk_bytes  # of a model this small the graph itself outweighs what int8 saves
    assert found.latency_ms


def test_fine_tuned_models_are_saved(
    models: Path, data: Path, settings: Settings, tmp_path: Path
) -> None:
    plan = replace(prepared(models, data, "small", tasks=["SST-2"]), keeps=True)
    folder = tmp_path / "saved"
    check_saving(plan, folder)
    with open_database(settings) as database:
        finished = run_evaluation(plan, database, settings).finished
        again: list[int] = []

        def note(pair: FinishedPair) -> None:
            again.append(pair.result.seed)

        each = save_models(plan, finished, folder, "each", database, settings, on_retrain=note)
        assert each == [folder / "SST-2-seed0", folder / "SST-2-seed1"]
        assert again == []
        assert not list((settings.home / "evaluations").glob("*/model"))
        # What was not kept is trained again, to the same weights.
        best = max(finished, key=lambda pair: pair.result.main)
        ended: list[list[str]] = []

        def look(*_: Any) -> None:
            with database.read() as session:
                ended.append(claims.ended(session, "evaluation"))

        one = save_models(plan, finished, folder, "best", database, settings, look, note)
        assert one == [folder / "SST-2"]
        # Meanwhile its checkpoints are not taken for those of a row that nobody works on.
        assert ended
        assert not any(best.record.id in ids for ids in ended)
        look()
        assert best.record.id in ended[-1]
    assert again == [best.result.seed]
    twin = folder / f"SST-2-seed{best.result.seed}"
    weights = "model.safetensors"
    assert (folder / "SST-2" / weights).read_bytes() == (twin / weights).read_bytes()
    # It says what was said when it was scored.
    file = evaluation_folder(settings, best.record.id) / "predictions.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rows = (data / "SST-2" / "dev.tsv").read_text().splitlines()[1:]
    examples = [TextExample(str(i), row.split("\t")[0], None, None) for i, row in enumerate(rows)]
    answers = Predictor(str(folder / "SST-2"), threads=1)(examples)
    assert [a.value for a in answers] == [line["prediction"] for line in lines]
    # And scores so without training.
    untrained = {"training": False, "max_steps": None, "batch_size": None}
    plan = prepared(folder, data, "SST-2", tasks=["SST-2"], **untrained)
    with open_database(settings) as database:
        (scored,) = run_evaluation(plan, database, settings).finished
        assert run_evaluation(plan, database, settings).finished[0].known
        put = put_predictions(tmp_path / "said", [scored.record], database, settings)
    assert scored.record.model == f"{folder / 'SST-2'} (as it is)"
    assert (scored.result.steps, scored.result.seed) == (0, 0)
    assert scored.result.metrics == best.result.metrics
    assert put == 1
    assert sorted(path.name for path in (tmp_path / "said" / "SST-2-as-it-is").iterdir()) == [
        *("SST-2-classes.md", "SST-2-dev-confusion.png", "SST-2-seed0.jsonl")
    ]
    with pytest.raises(RequestError, match="has no head, so that it answers nothing as it is"):
        prepared(models, data, tasks=["SST-2"], **untrained)
    with pytest.raises(SpecError, match="without training batch_size counts for nothing; "):
        prepared(models, data, training=False)
    with pytest.raises(RequestError, match="leave out --int8 to save"):
        check_saving(prepared(models, data, int8=True), folder)
