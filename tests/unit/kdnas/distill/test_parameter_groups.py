"""What decays and what does not, in the groups and in a student's step."""

from __future__ import annotations

from contextlib import closing

import torch
from torch import nn

from kdnas.architecture import Architecture
from kdnas.corpus.batches import pad_batch
from kdnas.distill.parameter_groups import parameter_groups
from kdnas.distill.setup import CalibrationText, Setup
from kdnas.distill.stages import plan_stages
from kdnas.objectives.registry import build_stages
from kdnas.specs.objective_registry import objective_spec
from kdnas.specs.parts import StudentSpec, TrainingSpec
from kdnas.testing.tiny_lab import TinyLab

ARCHITECTURE = Architecture(2, 2, 24, 48, "gelu")
RATE, DECAY = 1e-2, 0.3


def test_matrices_and_embeddings_decay_and_the_rest_does_not() -> None:
    layers = nn.ModuleList([nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2)])
    scale = nn.Parameter(torch.tensor(1.0))
    words, norm, linear = layers
    decayed, others = parameter_groups([*layers.parameters(), scale], 0.1)
    assert decayed["params"] == [words.weight, linear.weight]
    assert others["params"] == [norm.weight, norm.bias, linear.bias, scale]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)


def test_no_group_is_empty() -> None:
    linear = nn.Linear(3, 3)
    (one,) = parameter_groups([linear.weight], 0.1)
    (other,) = parameter_groups([linear.bias], 0.1)
    assert (one["params"], other["params"]) == ([linear.weight], [linear.bias])


def after_a_step(lab: TinyLab, weight_decay: float) -> tuple[dict[str, torch.Tensor], ...]:
    """Parameters of student and head before and after one step at the full rate."""
    setup = Setup(
        lab.teacher, CalibrationText(lab.corpus, lab.store), "cpu", "float32", StudentSpec()
    )
    spec = TrainingSpec(
        steps=1, learning_rate=RATE, warmup_fraction=0, weight_decay=weight_decay, batch_size=8
    )
    (plan,) = plan_stages(build_stages(objective_spec("hs")), 1)
    student = setup.student(ARCHITECTURE, plan, spec)
    with (
        closing(setup.trainer(student, ARCHITECTURE, plan, spec)) as trainer,
        setup.teacher_pass([trainer]) as teacher,
    ):
        learned = nn.ModuleList([trainer.student, trainer.head])

        def values() -> dict[str, torch.Tensor]:
            return {name: p.detach().clone() for name, p in learned.named_parameters()}

        before = values()
        batch = setup.batch(pad_batch(lab.corpus, lab.corpus.train_indices[:8]))
        trainer.step(batch, teacher(batch))
        return before, values()


def test_a_step_decays_what_it_should(lab: TinyLab) -> None:
    before, plain = after_a_step(lab, 0.0)
    _, decayed = after_a_step(lab, DECAY)
    sizes = {name: value.ndim for name, value in before.items()}
    assert set(sizes.values()) == {1, 2}
    for name, value in decayed.items():
        if sizes[name] == 1:
            assert torch.equal(value, plain[name]), name
        else:
            expected = plain[name] - RATE * DECAY * before[name]
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
            assert not torch.equal(value, plain[name]) or not before[name].any(), name
