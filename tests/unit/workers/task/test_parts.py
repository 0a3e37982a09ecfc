"""What is read once for teacher and students is what each of them is scored by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kdnas.evaluation.finetuning.model import TaskModel, load_task_model
from kdnas.evaluation.finetuning.text import TextEncoding
from kdnas.evaluation.tasks.examples import TaskData, TextExample
from kdnas.evaluation.tasks.registry import find_task
from kdnas.models.teacher import prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher
from workers.task.parts import part_of
from workers.task.students import network_of

TASK = find_task("RTE")
LABELS = ("entailment", "not_entailment")
WORDS = ("good", "bad", "film")
EXAMPLES = [
    TextExample("0", "good film", "bad bad film", LABELS[0]),
    TextExample("1", "bad", "film film good", LABELS[1]),
    TextExample("2", "film good bad film", "good", LABELS[1]),
]


def model(folder: Path, kind: str, *, types: bool = True) -> TaskModel:
    make_tiny_teacher(folder, kind, words=WORDS)
    if not types:
        config = folder / "tokenizer_config.json"
        told = json.loads(config.read_text())
        names = ["input_ids", "attention_mask"]
        config.write_text(json.dumps(told | {"model_input_names": names}))
    return load_task_model(prepare_teacher(str(folder)), TASK, LABELS, 0.0, 0)


@pytest.mark.parametrize("types", [True, False])
@pytest.mark.parametrize("reader", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("teacher", ["bert", "distilbert"])
def test_a_network_reads_what_it_is_scored_by(
    teacher: str, reader: str, types: bool, tmp_path: Path
) -> None:
    """Also types of tokens, where the teacher, by which all is cut into tokens, has none."""
    data = TaskData(TASK, EXAMPLES, {"dev": EXAMPLES}, LABELS, True, ())
    cut = TextEncoding(model(tmp_path / "teacher", teacher, types=False), LABELS, 16)
    part = part_of(EXAMPLES, cut, data)
    own = model(tmp_path / "own", reader, types=types)
    own.model.eval()
    with torch.no_grad():
        for number, example in enumerate(EXAMPLES):
            batch = part.tokens.batch(torch.tensor([number]).numpy())
            found, _ = network_of(own).read(batch.inputs)
            given = dict(TextEncoding(own, LABELS, 16).collate([example]))
            del given["labels"]
            scored = own.model(**given).logits
            torch.testing.assert_close(found, scored, rtol=0, atol=1e-6)
