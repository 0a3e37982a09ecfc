"""What names a task's figures, so that they are found again when they are the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.evaluations.prepare import PlannedTask
from kdnas.evaluation.settings import AS_IT_IS
from kdnas.evaluation.tasks.task import own_task
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

RETRIEVAL = own_task("mine", "retrieval", metrics=("ndcg_at_10",))


def planned(max_length: int) -> PlannedTask:
    settings = replace(AS_IT_IS, max_length=max_length)
    return PlannedTask(RETRIEVAL, settings, "data", 0, {"test": 3}, True)


def key_where(texts: Any, max_length: int, folder: Path) -> str:
    (folder / "sentence_bert_config.json").write_text(json.dumps(texts))
    return planned(max_length).key(prepare_teacher(str(folder)), 0)


@pytest.mark.parametrize(
    ("texts", "same"),
    [
        ({"max_seq_length": 20}, True),
        ({"max_seq_length": 32, "do_lower_case": False}, True),
        ({"max_seq_length": 19}, False),
        ({"do_lower_case": True}, False),
    ],
)
def test_embeddings_go_by_what_is_done_to_texts(texts: Any, same: bool, tmp_path: Path) -> None:
    folder = make_tiny_teacher(tmp_path / "model")
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    named = [{"type": f"sentence_transformers.models.{t}", "path": p} for t, p in modules]
    (folder / "modules.json").write_text(json.dumps(named))
    assert (key_where(texts, 20, folder) == key_where({}, 20, folder)) == same
