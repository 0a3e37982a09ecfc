"""Word embeddings that examples read, learned apart from the others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from kdnas.taskspecific.examples import Examples
from kdnas.taskspecific.read_words import ReadWords
from kdnas.taskspecific.stages import Stage
from kdnas.taskspecific.student_run import StudentRun
from kdnas.testing.tiny_task_training import VOCABULARY, TinyTask

STAGE = Stage(1, 10, 5)
TABLE = "bert.embeddings.word_embeddings.weight"
WORDS = np.array([0, 3, 5, 6])


def table() -> nn.Embedding:
    torch.manual_seed(0)
    return nn.Embedding(9, 4, padding_idx=0)


def test_words_are_looked_up_in_the_smaller_table() -> None:
    embedding = table()
    words = ReadWords(embedding, WORDS)
    ids = torch.tensor([[3, 5, 0], [6, 3, 0]])
    wanted = embedding(ids)
    with words.looked_up():
        found = embedding(ids)
    assert torch.equal(found, wanted)
    assert words.weight.shape == (4, 4)
    found.sum().backward()
    assert words.weight.grad is not None
    assert words.weight.grad[:, 0].tolist() == [0.0, 2.0, 1.0, 1.0]  # none of padding
    assert embedding.weight.grad is None
    assert embedding(ids).requires_grad  # in the whole table again


def test_what_is_learned_is_written_back_and_the_others_decay() -> None:
    embedding = table()
    start = embedding.weight.detach().clone()
    words = ReadWords(embedding, WORDS)
    with torch.no_grad():
        words.weight.add_(1.0)
    words.decays(0.5)
    words.decays(0.5)
    words.write_back(others=False)
    others = [1, 2, 4, 7, 8]
    assert torch.equal(embedding.weight[WORDS], start[WORDS] + 1)
    assert torch.equal(embedding.weight[others], start[others])
    words.write_back(others=True)
    words.write_back(others=True)
    assert torch.equal(embedding.weight[WORDS], start[WORDS] + 1)
    torch.testing.assert_close(embedding.weight[others], start[others] / 4)


def test_what_was_saved_is_read_again() -> None:
    embedding = table()
    words = ReadWords(embedding, WORDS)
    with torch.no_grad():
        embedding.weight.add_(2.0)
    words.read_again()
    assert torch.equal(words.weight, embedding.weight[WORDS])


def without_dropout(run: StudentRun) -> StudentRun:
    for module in run.student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return run


def after(task: TinyTask, examples: Examples, words: Any, steps: int) -> dict[str, Tensor]:
    """Weights after some steps, in two epochs."""
    run = without_dropout(task.run("none", weight_decay=0.5))
    if words is not None:
        run.reads_only(words)
    run.begin(STAGE)
    for step in range(steps):
        run.step(step, examples.batch(np.arange(6) + step), None)
        if step == 1:
            run.write_back()
    run.write_back()
    return {name: tensor.clone() for name, tensor in run.student.model.state_dict().items()}


def test_a_student_comes_to_what_it_would_with_the_whole_table(classes: TinyTask) -> None:
    """Also words that have a gradient in some steps alone, and those that never have one."""
    few = Examples(classes.train.input_ids[:10], None, classes.train.labels[:10], 0, 64)
    words = few.words()
    assert len(words) < VOCABULARY
    found, wanted = (after(classes, few, read, 4) for read in (words, None))
    assert found.keys() == wanted.keys()
    start = classes.run("none").student.model.state_dict()
    never = np.setdiff1d(np.arange(VOCABULARY), words)
    assert len(never)
    assert not torch.equal(wanted[TABLE][never], start[TABLE][never])
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=2e-4, atol=2e-5)


def test_decay_that_no_number_can_hold_is_left_to_who_reads_the_loss() -> None:
    embedding = table()
    words = ReadWords(embedding, WORDS)
    words.decays(1e300)
    words.write_back(others=True)
    assert math.isinf(float(embedding.weight.detach().abs().max()))


@pytest.mark.parametrize("kind", ["bilstm", "gated-cnn"])
def test_a_table_that_is_not_trained_is_left_alone(kind: str, classes: TinyTask) -> None:
    run = classes.run("none", kind)
    run.reads_only(classes.train.words())
    run.begin(STAGE)
    run.step(0, classes.train.batch(np.arange(8)), None)
    assert run.state_dict()["decay"] == 1.0
