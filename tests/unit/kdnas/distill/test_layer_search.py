from __future__ import annotations

import numpy as np
import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.corpus.batches import BatchPlan, eval_batches, pad_batch
from kdnas.distill.held_out import HELD_OUT_BATCH
from kdnas.distill.layer_search import (
    PROBE_BATCHES,
    RIDGE,
    probe_students,
    try_teacher_layers,
    upper_half,
)
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import StagePlan
from kdnas.errors import TrainingError
from kdnas.models.teacher import load_teacher_model
from kdnas.objectives.registry import build_stages
from kdnas.specs.objectives import MiniLMv2Spec
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.testing.tiny_lab import TinyLab, make_tiny_lab

ARCHITECTURE = Architecture(2, 2, 24, 48, "gelu")
OBJECTIVE = MiniLMv2Spec(relation_heads=12, teacher_layer="search")
SPEC = TrainingSpec(steps=1, batch_size=8, learning_rate=2e-3, held_out=24)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> TinyLab:
    return make_tiny_lab(tmp_path_factory.mktemp("lab"))


def plan() -> StagePlan:
    return StagePlan(build_stages(OBJECTIVE)[0].objective, 0, 1, 1)


@pytest.fixture
def setup(lab: TinyLab) -> Setup:
    return Setup(
        lab.teacher, CalibrationText(lab.corpus, lab.store), "cpu", "float32", StudentSpec()
    )


def test_the_upper_half_ends_with_the_last_layer() -> None:
    assert upper_half(12) == [7, 8, 9, 10, 11, 12]
    assert upper_half(5) == [3, 4, 5]
    assert upper_half(1) == [1]


def test_each_layer_of_the_upper_half_is_tried(lab: TinyLab, setup: Setup) -> None:
    told: list[tuple[int, int]] = []
    trials = try_teacher_layers(
        setup, lab.corpus, ARCHITECTURE, OBJECTIVE, SPEC, 6, lambda *at: told.append(at)
    )
    assert [trial.teacher_layer for trial in trials] == [3, 4]
    assert all(0 < trial.relative < 1.5 for trial in trials)
    assert all(0 < trial.probe < 1.1 for trial in trials)
    assert told[-1] == (6, 6)
    # The teacher has all its layers back, and its taps are gone.
    assert len(setup.family.transformer_layers(setup.model)) == lab.teacher.shape.layers
    assert not any(m._forward_hooks for m in setup.model.modules())


def test_trials_are_the_same_whenever_they_are_made(lab: TinyLab, setup: Setup) -> None:
    one, other = (
        try_teacher_layers(setup, lab.corpus, ARCHITECTURE, OBJECTIVE, SPEC, 3) for _ in range(2)
    )
    assert one == other


def test_longer_trials_learn_more(lab: TinyLab, setup: Setup) -> None:
    longer = try_teacher_layers(setup, lab.corpus, ARCHITECTURE, OBJECTIVE, SPEC, 12)
    shorter = try_teacher_layers(setup, lab.corpus, ARCHITECTURE, OBJECTIVE, SPEC, 2)
    for late, early in zip(longer, shorter, strict=True):
        assert late.relative < early.relative


def test_trials_that_all_diverge_say_so(lab: TinyLab, setup: Setup) -> None:
    wild = SPEC.model_copy(update={"learning_rate": 1e12, "max_grad_norm": 0.0})
    with pytest.raises(TrainingError, match="diverged"):
        try_teacher_layers(setup, lab.corpus, ARCHITECTURE, OBJECTIVE, wild, 60)
    with pytest.raises(TrainingError, match="diverged"):  # seen in held-out losses alone
        try_teacher_layers(setup, lab.corpus, ARCHITECTURE, OBJECTIVE, wild, 1)


def test_the_teacher_itself_explains_its_own_last_state(lab: TinyLab, setup: Setup) -> None:
    shape = lab.teacher.shape
    own = Architecture(shape.layers, shape.heads, shape.hidden, shape.intermediate, "gelu")
    copy = load_teacher_model(lab.teacher)
    found = probe_students(setup, lab.corpus, own, {1: copy}, SPEC)
    assert found[1] == pytest.approx(0, abs=1e-3)


def test_a_probe_equals_ridge_regression_in_numpy(lab: TinyLab, setup: Setup) -> None:
    corpus, shape = lab.corpus, lab.teacher.shape
    student = setup.student(ARCHITECTURE, plan(), SPEC)
    found = probe_students(setup, corpus, ARCHITECTURE, {7: student}, SPEC)[7]
    order = BatchPlan(corpus.lengths, corpus.train_indices, SPEC.batch_size, SPEC.seed)
    steps = range(min(PROBE_BATCHES, order.num_batches_per_epoch))
    fit = [pad_batch(corpus, order.batch_indices(step)) for step in steps]
    judge = list(eval_batches(corpus, HELD_OUT_BATCH, SPEC.held_out))

    def states(model: torch.nn.Module, batches: list) -> np.ndarray:
        rows = []
        for batch in batches:
            mask = torch.from_numpy(batch.attention_mask)
            with torch.no_grad():
                output = model(input_ids=torch.from_numpy(batch.input_ids), attention_mask=mask)
            rows.append(output.last_hidden_state[mask == 1].double().numpy())
        return np.concatenate(rows)

    teacher = load_teacher_model(lab.teacher)
    x, y = states(student.eval(), fit), states(teacher, fit)
    x = np.hstack([x, np.ones((len(x), 1))])
    gram = x.T @ x
    weights = np.linalg.solve(gram + RIDGE * gram.diagonal().mean() * np.eye(len(gram)), x.T @ y)
    held_x, held_y = states(student, judge), states(teacher, judge)
    held_x = np.hstack([held_x, np.ones((len(held_x), 1))])
    expected = np.mean((held_x @ weights - held_y) ** 2) / np.mean(held_y.var(0))
    assert found == pytest.approx(expected, rel=1e-5)
    assert shape.hidden == held_y.shape[1]
