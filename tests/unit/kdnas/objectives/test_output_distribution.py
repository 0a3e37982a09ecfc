from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.models.batch import Batch
from kdnas.models.lm_head import MaskedLMHead
from kdnas.objectives.output_distribution import OutputDistribution, OutputDistributionHead
from kdnas.objectives.registry import build_stages
from kdnas.records import Losses
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.objective_contract import (
    STUDENT,
    TEACHER,
    ObjectiveContract,
    made_up_activations,
)
from kdnas.testing.output_reference import head_scores, log_softmax, loosen, output_losses, places


def trained(head: OutputDistributionHead) -> OutputDistributionHead:
    loosen(head.own, 1)
    loosen(head.teachers, 2)
    return head


@pytest.mark.parametrize("positions", ["masked", "all"])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
class TestOutputDistribution(ObjectiveContract):
    temperature: float = 1.0
    positions: Literal["masked", "all"] = "masked"

    @pytest.fixture(autouse=True)
    def _take_options(self, temperature: float, positions: Literal["masked", "all"]) -> None:
        self.temperature, self.positions = temperature, positions

    def make(self) -> OutputDistribution:
        return OutputDistribution(self.temperature, self.positions)

    def trained_head(self) -> OutputDistributionHead:
        head = self.head()
        assert isinstance(head, OutputDistributionHead)
        return trained(head)

    def test_all_losses_equal_a_float64_reference(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        at = places(self.positions)
        own = head_scores(head.own, student, STUDENT.layers, at)
        target = head_scores(head.teachers, teacher, TEACHER.layers, at)
        training, kl, relative = output_losses(own, target, self.temperature)
        assert float(head(student, teacher).detach()) == pytest.approx(training, rel=1e-5)
        losses = self.read(head, (student, teacher))
        assert losses.mean == pytest.approx(kl, rel=1e-5)
        assert losses.relative == losses.output == pytest.approx(relative, rel=1e-5)

    def test_a_perfect_student_scores_zero(self) -> None:
        """Its scores are the teacher's; the training loss is the teacher's entropy."""
        teacher, same = self.teacher(), self.teacher()
        shape = TEACHER
        student = Architecture(shape.layers, shape.heads, shape.hidden, shape.intermediate, "gelu")
        lm_head = MaskedLMHead(shape.hidden, shape.hidden, shape.vocab_size, seed=7)
        loosen(lm_head, 3)
        head = self.make().head(student, shape, 0, lm_head)
        head.own.load_state_dict(lm_head.state_dict())
        assert self.read(head, (same, teacher)) == Losses(0.5, 0, 0, 0)
        scores = head_scores(lm_head, teacher, shape.layers, places(self.positions))
        log_p = log_softmax(scores / self.temperature)
        entropy = -(np.exp(log_p) * log_p).sum(1).mean()
        loss = float(head(same, teacher).detach())
        assert loss == pytest.approx(self.temperature**2 * entropy, rel=1e-5)

    def test_the_best_student_that_ignores_its_input_scores_one(self) -> None:
        """It answers the teacher's mean distribution, wherever it is asked."""
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        target = head_scores(head.teachers, teacher, TEACHER.layers, places(self.positions))
        mean = np.exp(log_softmax(target / self.temperature)).mean(0)
        with torch.no_grad():
            head.own.norm_weight.zero_()
            head.own.norm_bias.zero_()
            head.own.bias.copy_(torch.from_numpy(np.log(mean) * self.temperature))
        losses = self.read(head, (student, teacher))
        assert losses.relative == losses.output == pytest.approx(1, rel=1e-5)

    def test_the_word_embeddings_learn_through_the_tied_decoder(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        student.word_embeddings.requires_grad_()
        teacher.word_embeddings.requires_grad_()
        head(student, teacher).backward()
        assert student.word_embeddings.grad is not None
        assert student.word_embeddings.grad.abs().sum() > 0
        assert teacher.word_embeddings.grad is None
        assert all(not p.requires_grad for p in head.teachers.parameters())

    def test_without_any_place_the_loss_is_zero(self) -> None:
        """And so are the gradients, which are there and finite."""
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        ids, mask = student.batch.input_ids, student.batch.attention_mask
        nothing = Batch.of(ids, mask, torch.full_like(ids, -100))
        if self.positions == "all":
            nothing = Batch.of(ids, torch.zeros_like(mask), torch.full_like(ids, -100))
        student.batch = teacher.batch = nothing
        loss = head(student, teacher)
        loss.backward()
        assert float(loss.detach()) == 0
        for parameter in head.own.parameters():
            assert parameter.grad is not None
            assert not parameter.grad.any()


def test_where_it_is_taken_and_at_which_temperature_comes_from_the_spec() -> None:
    spec = objective_spec({"name": "od", "temperature": 3, "positions": "all"})
    (stage,) = build_stages(spec)
    assert stage.objective == OutputDistribution(3.0, "all")
    assert stage.objective.masks_tokens
    assert stage.objective.needs_lm_head
    first, second = build_stages(objective_spec({"name": "hs+od", "temperature": 2}))
    assert (first.objective.name, first.share, first.rate) == ("hs", 0.7, 1.0)
    assert second.objective == OutputDistribution(2.0, "masked")


def test_students_of_any_size_can_learn_it() -> None:
    for student in (STUDENT, Architecture(9, 4, 48, 8, "relu")):
        assert OutputDistribution().problem(student, TEACHER) is None


def test_it_is_not_made_without_the_teachers_head() -> None:
    with pytest.raises(ValueError, match="teacher's masked-LM head"):
        OutputDistribution().head(STUDENT, TEACHER, 0)


def test_masked_places_are_wanted_in_the_batch() -> None:
    lm_head = MaskedLMHead(TEACHER.hidden, TEACHER.hidden, TEACHER.vocab_size)
    head = OutputDistribution().head(STUDENT, TEACHER, 0, lm_head)
    student = made_up_activations(STUDENT.layers, STUDENT.hidden)
    teacher = made_up_activations(TEACHER.layers, TEACHER.hidden)
    student.batch = replace(student.batch, masked=None)
    with pytest.raises(ValueError, match="no tokens were masked"):
        head(student, teacher)


def test_all_heads_of_a_group_share_the_teachers() -> None:
    lm_head = MaskedLMHead(TEACHER.hidden, TEACHER.hidden, TEACHER.vocab_size)
    one, other = (OutputDistribution().head(STUDENT, TEACHER, s, lm_head) for s in (1, 2))
    assert one.teachers is other.teachers is lm_head
    assert one.own is not other.own
    assert one.student_lm_head is one.own


def test_the_students_head_begins_with_the_teachers_bias_near_the_identity() -> None:
    lm_head = MaskedLMHead(TEACHER.hidden, TEACHER.hidden, TEACHER.vocab_size)
    loosen(lm_head, 4)
    head = OutputDistribution().head(STUDENT, TEACHER, 0, lm_head)
    assert torch.equal(head.own.bias, lm_head.bias)
    assert head.own.bias.requires_grad
    assert not lm_head.bias.requires_grad
    noise = head.own.dense_weight - torch.eye(STUDENT.hidden)
    assert 0 < float(noise.detach().std()) < 0.03
