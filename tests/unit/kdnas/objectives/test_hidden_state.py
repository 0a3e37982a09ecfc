from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from kdnas.architecture import Architecture
from kdnas.errors import LayerMappingError
from kdnas.models.taps import Activations, TapPoints
from kdnas.objectives.hidden_state import HiddenState, HiddenStateHead
from kdnas.objectives.registry import build_stages
from kdnas.records import Losses, TeacherShape
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.objective_contract import (
    LENGTHS,
    STUDENT,
    TEACHER,
    ObjectiveContract,
    made_up_activations,
)


def with_hidden(like: Activations, hidden: dict[int, Tensor]) -> Activations:
    """The same batch with other hidden states."""
    return Activations(like.batch, hidden, {}, like.word_embeddings)


def sized(shape: TeacherShape, layers: int, hidden: int) -> TeacherShape:
    return replace(shape, layers=layers, hidden=hidden)


def real_tokens(states: Activations, layer: int) -> NDArray[np.float64]:
    """(N, D) of all sequences, one after the other."""
    values = states.hidden[layer].double().numpy()
    return np.concatenate([values[b, :n] for b, n in enumerate(LENGTHS)])


def reference(
    head: HiddenStateHead, student: Activations, teacher: Activations
) -> tuple[float, Losses]:
    """Σ_i Σ_{j∈g(i)} MSE(H_i^S W_i^j, H_j^T) in float64, and the losses that can be compared."""
    losses, ratios = {}, {}
    last = STUDENT.layers, TEACHER.layers
    for i, group in head.mapping.items():
        weights = head.projections[str(i)].detach().double().numpy()
        for position, j in enumerate(group):
            start = position * TEACHER.hidden
            projection = weights[:, start : start + TEACHER.hidden]  # (d_S, d_T)
            target = real_tokens(teacher, j)
            losses[i, j] = np.mean((real_tokens(student, i) @ projection - target) ** 2)
            ratios[i, j] = losses[i, j] / np.mean(np.var(target, axis=0))
    training = sum(losses.values()) + (head.weights[last] - 1) * losses[last]
    return training, Losses(
        training=0.5,
        mean=float(np.mean(list(losses.values()))),
        relative=float(np.mean(list(ratios.values()))),
        output=ratios[last],
    )


def approx(losses: Losses, **tolerance: float) -> Losses:
    return Losses(
        pytest.approx(losses.training, **tolerance),
        pytest.approx(losses.mean, **tolerance),
        pytest.approx(losses.relative, **tolerance),
        pytest.approx(losses.output, **tolerance),
    )


@pytest.mark.parametrize(
    "mapping",
    [
        "single",
        "last",
        "uniform",
        "uniform_consecutive",
        "uniform_last",
        "kdnas",
        {1: (1, 3), 2: (5,)},
    ],
)
class TestHiddenState(ObjectiveContract):
    mapping: str | dict[int, tuple[int, ...]] = "kdnas"

    @pytest.fixture(autouse=True)
    def _take_mapping(self, mapping: str | dict[int, tuple[int, ...]]) -> None:
        self.mapping = mapping

    def make(self) -> HiddenState:
        return HiddenState(self.mapping)

    def trained_head(self) -> HiddenStateHead:
        """Projections far from their start, so that every term counts."""
        head = self.head()
        assert isinstance(head, HiddenStateHead)
        with torch.no_grad():
            for weight in head.projections.values():
                weight.mul_(20)
        return head

    def test_all_losses_equal_a_float64_reference(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        training, losses = reference(head, student, teacher)
        assert float(head(student, teacher).detach()) == pytest.approx(training, rel=1e-5)
        assert self.read(head, (student, teacher)) == approx(losses, rel=1e-5)

    def test_the_last_pair_may_weigh_more_than_the_others(self) -> None:
        """In what is trained on; held-out losses know no weights."""
        plain, student, teacher = self.trained_head(), self.student(), self.teacher()
        heavy = HiddenState(self.mapping, last_weight=10).head(STUDENT, TEACHER, 0)
        heavy.load_state_dict(plain.state_dict())
        training, losses = reference(heavy, student, teacher)
        assert training > reference(plain, student, teacher)[0]
        assert float(heavy(student, teacher).detach()) == pytest.approx(training, rel=1e-5)
        assert self.read(heavy, (student, teacher)) == approx(losses, rel=1e-5)
        assert self.read(heavy, (student, teacher)) == self.read(plain, (student, teacher))

    def test_gradients_equal_those_of_single_products(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        head(student, teacher).backward()
        for i, group in head.mapping.items():
            weight = head.projections[str(i)]
            rows = real_tokens(student, i)
            target = np.concatenate([real_tokens(teacher, j) for j in group], axis=1)
            error = rows @ weight.detach().double().numpy() - target
            expected = 2 * rows.T @ error / (len(rows) * TEACHER.hidden)
            assert weight.grad is not None
            np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-4, atol=1e-4)

    def test_a_perfect_student_scores_zero(self) -> None:
        """The student's states are the teacher's, the projections pick them out."""
        teacher = self.teacher()
        wide = 3 * TEACHER.hidden
        head = self.make().head(replace(STUDENT, hidden=wide), TEACHER, 0)
        layers: dict[int, Tensor] = {}
        with torch.no_grad():
            for i, group in head.mapping.items():
                parts = [teacher.hidden[j] for j in group]
                padding = torch.zeros(*parts[0].shape[:2], wide - TEACHER.hidden * len(parts))
                layers[i] = torch.cat([*parts, padding], 2)
                head.projections[str(i)].copy_(torch.eye(wide)[:, : TEACHER.hidden * len(parts)])
        student = with_hidden(teacher, layers)
        assert float(head(student, teacher).detach()) == 0
        assert self.read(head, (student, teacher)) == Losses(0.5, 0, 0, 0)

    def test_the_best_student_that_ignores_its_input_scores_one(self) -> None:
        """It says the teacher's mean over the real tokens, whatever it is asked."""
        head, teacher = self.trained_head(), self.teacher()
        layers = {
            i: torch.ones(len(LENGTHS), max(LENGTHS), STUDENT.hidden)
            for i in head.student_taps.hidden
        }
        with torch.no_grad():
            for i, group in head.mapping.items():
                means = torch.cat([teacher.rows(j).mean(0) for j in group])
                head.projections[str(i)].copy_(means.expand(STUDENT.hidden, -1) / STUDENT.hidden)
        losses = self.read(head, (with_hidden(teacher, layers), teacher))
        assert losses.relative == pytest.approx(1, rel=1e-5)
        assert losses.output == pytest.approx(1, rel=1e-5)


def test_projections_start_at_a_deviation_of_002_without_bias() -> None:
    head = HiddenState().head(Architecture(2, 2, 200, 16), sized(TEACHER, 4, 300), 0)
    assert {name for name, _ in head.named_parameters()} == {"projections.1", "projections.2"}
    for weight in head.parameters():
        assert weight.shape == (200, 600)
        assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.01)


def test_a_narrow_variance_counts_as_much_as_a_wide_one() -> None:
    """A ratio of sums would nearly ignore the layer of small variance (science §3)."""
    teacher = made_up_activations(2, 12, seed=2)
    teacher.hidden[1] = teacher.hidden[1] * 1e-3
    head = HiddenState("last").head(STUDENT, sized(TEACHER, 2, 12), 0)
    with torch.no_grad():
        for weight in head.parameters():
            weight.zero_()
    meter = head.meter()
    with torch.no_grad():
        meter.add(made_up_activations(2, STUDENT.hidden, seed=1), teacher)
    losses = meter.losses(0.0)
    ratios = [
        float(teacher.rows(j).square().mean() / teacher.rows(j).var(0, False).mean())
        for j in (1, 2)
    ]
    assert losses.relative == pytest.approx(sum(ratios) / 2, rel=1e-5)


def test_the_spec_names_objective_and_mapping() -> None:
    (stage,) = build_stages(objective_spec({"mapping": "last"}))
    objective = stage.objective
    assert objective == HiddenState("last")
    for name in ("hs", "hs+od"):
        weighted = build_stages(objective_spec({"name": name, "last_weight": 10}))[0].objective
        assert weighted == HiddenState(last_weight=10)
    assert (objective.name, objective.masks_tokens, objective.needs_lm_head) == ("hs", False, False)
    assert not objective.copies_layers
    assert objective.head(STUDENT, sized(TEACHER, 6, 12), 0).teacher_taps.hidden == {5, 6}


def test_only_hidden_states_are_read_and_only_mapped_ones() -> None:
    head = HiddenState("single").head(STUDENT, TEACHER, 0)
    assert head.student_taps == TapPoints(hidden=frozenset({STUDENT.layers}))
    assert head.teacher_taps == TapPoints(hidden=frozenset({TEACHER.layers}))
    assert head.student_lm_head is None


def test_a_mapping_that_does_not_fit_is_refused() -> None:
    """With the same words before work begins and when it does."""
    four = sized(TEACHER, 4, 12)
    for objective, student, words in (
        (HiddenState({2: (4, 9)}), STUDENT, "teacher layer 9"),
        (HiddenState(), replace(STUDENT, layers=5), "5 layers"),
    ):
        problem = objective.problem(student, four)
        assert problem
        assert words in problem
        with pytest.raises(LayerMappingError, match=words) as caught:
            objective.head(student, four, 0)
        assert str(caught.value) == problem
    assert HiddenState().problem(replace(STUDENT, layers=4), four) is None
