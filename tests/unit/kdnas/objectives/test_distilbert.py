from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.errors import ArchitectureError
from kdnas.models.lm_head import MaskedLMHead
from kdnas.models.taps import Activations
from kdnas.objectives.distilbert import DistilBert, DistilBertHead
from kdnas.objectives.registry import build_stages
from kdnas.records import TeacherShape
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.objective_contract import (
    STUDENT,
    TEACHER,
    ObjectiveContract,
    made_up_activations,
)
from kdnas.testing.output_reference import (
    Array,
    head_scores,
    log_softmax,
    loosen,
    output_losses,
    places,
    rows,
)

SHALLOWER = Architecture(2, TEACHER.heads, TEACHER.hidden, TEACHER.intermediate, TEACHER.activation)


def labels(states: Activations) -> Array:
    ids = states.batch.input_ids.numpy()
    return np.array([ids[b, t] for b, t in places("masked")])


def unit(values: Array) -> Array:
    normed: Array = values / np.linalg.norm(values, axis=1, keepdims=True)
    return normed


class TestDistilBert(ObjectiveContract):
    architecture = SHALLOWER

    def make(self) -> DistilBert:
        return DistilBert()

    def trained_head(self, **options: Any) -> DistilBertHead:
        lm_head = MaskedLMHead(TEACHER.hidden, TEACHER.hidden, TEACHER.vocab_size, seed=7)
        head = DistilBert(**options).head(SHALLOWER, TEACHER, 0, lm_head)
        loosen(head.own, 1)
        loosen(head.teachers, 2)
        return head

    @pytest.mark.parametrize("weights", [(1.0, 5.0, 2.0), (3.0, 0.0, 0.5), (0.0, 1.0, 0.0)])
    @pytest.mark.parametrize("temperature", [2.0, 0.7])
    def test_all_losses_equal_a_float64_reference(
        self, temperature: float, weights: tuple[float, float, float]
    ) -> None:
        head = self.trained_head(temperature=temperature, weights=weights)
        student, teacher = self.student(), self.teacher()
        own = head_scores(head.own, student, 2, places("masked"))
        target = head_scores(head.teachers, teacher, TEACHER.layers, places("masked"))
        output, kl, kl_ratio = output_losses(own, target, temperature)
        directions = unit(rows(teacher, TEACHER.layers, places("all")))
        cosines = (unit(rows(student, 2, places("all"))) * directions).sum(1)
        cosine = float((1 - cosines).mean())
        wanted = labels(student)
        language = float(-log_softmax(own)[np.arange(len(wanted)), wanted].mean())
        shares = np.bincount(wanted, minlength=TEACHER.vocab_size) / len(wanted)
        entropy = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
        best_direction = directions.mean(0) / np.linalg.norm(directions.mean(0))
        ratios = [
            cosine / float((1 - directions @ best_direction).mean()),
            kl_ratio,
            language / entropy,
        ]

        training = float(np.dot(weights, (cosine, output, language)))
        assert float(head(student, teacher).detach()) == pytest.approx(training, rel=1e-5)
        losses = self.read(head, (student, teacher))
        mean = float(np.dot(weights, (cosine, kl, language)) / sum(weights))
        assert losses.mean == pytest.approx(mean, rel=1e-5)
        counted = [ratio for ratio, weight in zip(ratios, weights, strict=True) if weight]
        assert losses.relative == pytest.approx(float(np.mean(counted)), rel=1e-5)
        assert losses.output == pytest.approx(ratios[0], rel=1e-5)

    def test_a_student_equal_to_its_teacher_scores_zero_but_for_masked_lm(self) -> None:
        head, teacher = self.trained_head(weights=(1.0, 5.0, 0.0)), self.teacher()
        head.own.load_state_dict(head.teachers.state_dict())
        student = self.teacher()
        student.hidden[2] = student.hidden[TEACHER.layers]
        losses = self.read(head, (student, teacher))
        assert losses.mean == pytest.approx(0, abs=1e-7)
        assert losses.relative == pytest.approx(0, abs=1e-6)
        assert losses.output == pytest.approx(0, abs=1e-6)

    def test_the_best_student_that_ignores_its_input_scores_one(self) -> None:
        """A constant direction, the mean distribution; labels as often as they are."""
        teacher, student = self.teacher(), self.student()
        at = places("masked")
        head = self.trained_head(temperature=1.0, weights=(1.0, 5.0, 0.0))
        mean = np.exp(log_softmax(head_scores(head.teachers, teacher, TEACHER.layers, at))).mean(0)
        shares = np.bincount(labels(student), minlength=TEACHER.vocab_size) / len(at)
        direction = unit(rows(teacher, TEACHER.layers, places("all"))).mean(0)
        student.hidden[2] = torch.from_numpy(direction).float().expand_as(student.hidden[2])
        for answer, weights in ((mean, (1.0, 5.0, 0.0)), (shares, (0.0, 0.0, 1.0))):
            head = self.trained_head(temperature=1.0, weights=weights)
            with torch.no_grad():
                head.own.norm_weight.zero_()
                head.own.norm_bias.zero_()
                head.own.bias.copy_(torch.from_numpy(np.log(np.maximum(answer, 1e-30))))
            losses = self.read(head, (student, teacher))
            assert losses.relative == pytest.approx(1, rel=1e-5)
            assert losses.output == pytest.approx(1, rel=1e-5)

    def test_the_seed_decides_the_head(self) -> None:
        """Not here: the student's head is a copy of the teacher's, and is trained by itself."""
        head = self.head(1)
        assert isinstance(head, DistilBertHead)
        for own, teachers in zip(head.own.parameters(), head.teachers.parameters(), strict=True):
            assert torch.equal(own, teachers)
            assert own.data_ptr() != teachers.data_ptr()
            assert own.requires_grad
            assert not teachers.requires_grad

    def test_without_masked_tokens_the_cosine_loss_is_left(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        none = torch.full_like(student.batch.input_ids, -100)
        batch = student.batch
        student.batch = teacher.batch = type(batch).of(batch.input_ids, batch.attention_mask, none)
        loss = head(student, teacher)
        loss.backward()
        distance = head.distance(student, teacher).sum() / batch.totals.tokens
        assert float(loss.detach()) == pytest.approx(float(distance), rel=1e-6)
        for parameter in head.own.parameters():
            assert parameter.grad is not None
            assert not parameter.grad.any()


@pytest.mark.parametrize(
    ("student", "message"),
    [
        (STUDENT, "heads 2 cannot .* heads 4; choose heads 4, or the objective hs"),
        (replace(SHALLOWER, hidden=24), "hidden 24 cannot copy layers of a teacher with hidden 12"),
        (replace(SHALLOWER, intermediate=8), "intermediate 8 cannot .* intermediate 24"),
        (replace(SHALLOWER, activation="relu"), "activation relu cannot .* activation gelu"),
        (
            replace(SHALLOWER, layers=6),
            "6 layers .* of 5; choose at most 5, or the objective minilm",
        ),
    ],
)
def test_only_a_student_that_differs_in_depth_will_do(student: Architecture, message: str) -> None:
    problem = DistilBert().problem(student, TEACHER)
    assert problem is not None
    lm_head = MaskedLMHead(TEACHER.hidden, TEACHER.hidden, TEACHER.vocab_size)
    with pytest.raises(ArchitectureError, match=message) as caught:
        DistilBert().head(student, TEACHER, 0, lm_head)
    assert str(caught.value) == problem


def test_some_weight_must_be_larger_than_zero() -> None:
    problem = DistilBert(weights=(0.0, 0.0, 0.0)).problem(SHALLOWER, TEACHER)
    assert problem == "all weights of distilbert are 0; give at least one that is larger"


def test_published_weights_and_temperature_are_the_defaults() -> None:
    (stage,) = build_stages(objective_spec("distilbert"))
    assert stage.objective == DistilBert(2.0, (1.0, 5.0, 2.0))
    assert stage.objective.copies_layers
    assert stage.objective.masks_tokens


def test_an_untied_decoder_of_the_teacher_is_left_with_it() -> None:
    shape: TeacherShape = TEACHER
    lm_head = MaskedLMHead(shape.hidden, shape.hidden, shape.vocab_size, seed=7, tied=False)
    head = DistilBert().head(SHALLOWER, shape, 0, lm_head)
    assert head.own.decoder is None
    assert torch.equal(head.own.dense_weight, lm_head.dense_weight)
    student = made_up_activations(SHALLOWER.layers, SHALLOWER.hidden)
    assert torch.isfinite(head(student, made_up_activations(shape.layers, shape.hidden)))
