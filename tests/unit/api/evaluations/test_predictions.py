"""What was said, beside a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.evaluations.predictions import put_predictions
from api.jobs.files import evaluation_folder
from kdnas.db.engine import Database
from kdnas.db.records import EvaluationRecord
from kdnas.db.repository import evaluations
from kdnas.db.repository.evaluations import NewEvaluation
from kdnas.evaluation.results import Prediction, TaskResult
from kdnas.evaluation.scoring.paired import write_predictions
from kdnas.evaluation.settings import FinetuneSettings
from kdnas.settings import Settings

pytestmark = pytest.mark.databases("sqlite")


def test_models_whose_folders_end_alike_keep_their_own_files(
    database: Database, tmp_path: Path
) -> None:
    settings = Settings.from_environment({"KDNAS_HOME": str(tmp_path / "home")})
    said = {"dev": (Prediction("1", "yes", 1.0, "yes"),)}
    result = TaskResult(
        *("SST-2", "glue", 0, FinetuneSettings(1e-3, 1), {"dev": {"accuracy": 1.0}}, 1.0, 1.0),
        *(1, 1, True),
        predictions=said,
    )
    records: list[EvaluationRecord] = []
    for model in ("/a/student", "/b/student", "teacher"):
        with database.write() as session:
            pair = NewEvaluation("glue", "SST-2", 0, {})
            (row_id,) = evaluations.create_evaluations(session, [pair], model=model)
            evaluations.set_figures(session, row_id, result.to_json())
            records.append(evaluations.get_evaluation(session, row_id))
        write_predictions(evaluation_folder(settings, row_id), result)
    assert put_predictions(tmp_path / "said", records, database, settings) == 3
    names = {path.name for path in (tmp_path / "said").iterdir()}
    assert names == {"a-student", "b-student", "teacher"}
    assert all((tmp_path / "said" / name / "SST-2-seed0.jsonl").is_file() for name in names)
