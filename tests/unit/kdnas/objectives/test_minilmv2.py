from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from kdnas.architecture import Architecture
from kdnas.errors import RequestError
from kdnas.models.batch import Batch
from kdnas.models.taps import PROJECTIONS, Activations
from kdnas.objectives.minilmv2 import MiniLMv2, MiniLMv2Head
from kdnas.objectives.registry import build_stages, objective_problem
from kdnas.records import Losses
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.objective_contract import LENGTHS, STUDENT, TEACHER, ObjectiveContract
from kdnas.testing.relation_reference import eager_relation_loss, sequence_losses

Relations = tuple[tuple[str, float], ...]

DEFAULT: Relations = (("qq", 1.0), ("kk", 1.0), ("vv", 1.0))
WEIGHTED: Relations = (("qk", 0.5), ("vv", 2.0))
ALL_NINE: Relations = tuple((a + b, 1.0) for a, b in product(PROJECTIONS, PROJECTIONS))


@pytest.mark.parametrize("relations", [DEFAULT, WEIGHTED, ALL_NINE])
@pytest.mark.parametrize(("heads", "layer"), [(4, None), (2, 2), (1, 5)])
class TestMiniLMv2(ObjectiveContract):
    relations: Relations = DEFAULT
    heads: int = 4
    layer: int | None = None

    @pytest.fixture(autouse=True)
    def _take_options(self, relations: Relations, heads: int, layer: int | None) -> None:
        self.relations, self.heads, self.layer = relations, heads, layer

    def make(self) -> MiniLMv2:
        return MiniLMv2(self.relations, self.heads, self.layer)

    def test_all_losses_equal_a_float64_reference(self) -> None:
        head, student, teacher = self.head(), self.student(), self.teacher()
        own = student.projections[STUDENT.layers]
        target = teacher.projections[self.layer or 4]
        training, means, ratios = 0.0, [], []
        for (alpha, beta), weight in self.relations:
            losses, baselines = sequence_losses(
                (own[alpha], own[beta]), (target[alpha], target[beta]), LENGTHS, self.heads
            )
            training += weight * losses.mean()
            means.append(losses.mean())
            ratios.append(losses.mean() / baselines.mean())
        assert float(head(student, teacher).detach()) == pytest.approx(training, rel=1e-5)
        found = self.read(head, (student, teacher))
        assert found.mean == pytest.approx(np.mean(means), rel=1e-5)
        assert found.relative == pytest.approx(np.mean(ratios), rel=1e-5)
        assert found.output == found.relative

    def test_gradients_equal_those_of_autograd(self) -> None:
        head, student, teacher = self.head(), self.student(), self.teacher()
        own = {n: x.requires_grad_() for n, x in student.projections[STUDENT.layers].items()}
        target = teacher.projections[self.layer or 4]
        head(student, teacher).backward()
        twins = {n: x.detach().double().requires_grad_() for n, x in own.items()}
        exact = sum(
            weight
            * eager_relation_loss(
                (twins[alpha], twins[beta]),
                (target[alpha].double(), target[beta].double()),
                student.batch.real,
                self.heads,
            )
            for (alpha, beta), weight in self.relations
        ) / len(LENGTHS)
        exact.backward()
        for name, twin in twins.items():
            found = own[name].grad
            if twin.grad is None:
                assert found is None
                continue
            assert found is not None
            size = float(twin.grad.abs().max())
            np.testing.assert_allclose(found.numpy(), twin.grad.numpy(), atol=1e-5 * size)

    def test_a_perfect_student_scores_zero(self) -> None:
        teacher = self.teacher()
        same = Architecture(3, 3, TEACHER.hidden, 16, "gelu")
        student = Activations(
            teacher.batch, {}, {3: teacher.projections[self.layer or 4]}, teacher.word_embeddings
        )
        head = self.make().head(same, TEACHER, 0)
        assert float(head(student, teacher).detach()) == 0
        assert self.read(head, (student, teacher)) == Losses(0.5, 0, 0, 0)

    def test_a_student_of_uniform_relations_scores_one(self) -> None:
        head, student, teacher = self.head(), self.student(), self.teacher()
        for values in student.projections[STUDENT.layers].values():
            values.zero_()
        losses = self.read(head, (student, teacher))
        assert losses.relative == losses.output == pytest.approx(1, rel=1e-6)

    def test_sequences_without_real_tokens_count_as_none(self) -> None:
        """Nor does a whole batch of them, and no loss is NaN."""
        head, student, teacher = self.head(), self.student(), self.teacher()
        expected = self.read(head, (student, teacher))
        found = student.batch
        nothing = Batch.of(found.input_ids, torch.zeros_like(found.attention_mask))
        empty = self.student(), self.teacher()
        for activations in empty:
            activations.batch = nothing
        assert self.read(head, empty, (student, teacher)) == expected


def test_nothing_is_learned_beside_the_student() -> None:
    head = MiniLMv2(relation_heads=4).head(STUDENT, TEACHER, 0)
    assert list(head.parameters()) == []
    assert head.state_dict() == {}


def test_heads_and_layer_follow_the_teacher() -> None:
    base = replace(TEACHER, layers=12, hidden=768)
    large = replace(TEACHER, layers=24, hidden=1024)
    objective = MiniLMv2()
    narrow = objective.head(Architecture(3, 2, 288, 64, "gelu"), base, 0)
    wide = objective.head(Architecture(3, 2, 512, 64, "gelu"), large, 0)
    assert (narrow.relation_heads, narrow.teacher_layer) == (48, 11)
    assert (wide.relation_heads, wide.teacher_layer) == (64, 21)
    assert narrow.relations == {"qq": 1, "kk": 1, "vv": 1}


def test_a_student_may_be_deeper_than_its_teacher() -> None:
    deep = Architecture(9, 2, 8, 16, "gelu")
    assert MiniLMv2(relation_heads=2).problem(deep, TEACHER) is None
    assert MiniLMv2(relation_heads=2).head(deep, TEACHER, 0).student_taps.last_layer == 9


@pytest.mark.parametrize(
    ("objective", "hidden", "words"),
    [
        (
            MiniLMv2(),
            100,
            "48 relation heads do not divide the student's hidden size 100; choose a hidden size "
            "that is a multiple of 48, or --relation-heads 1, 2 or 4",
        ),
        (
            MiniLMv2(relation_heads=5),
            288,
            "5 relation heads do not divide the teacher's hidden size 768; choose "
            "--relation-heads 1, 2, 3 or 4, which divide it and the student's 288",
        ),
        (MiniLMv2(teacher_layer=13), 288, "teacher layer 13 is outside 1 … 12"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(
    objective: MiniLMv2, hidden: int, words: str
) -> None:
    teacher = replace(TEACHER, layers=12, hidden=768)
    student = Architecture(3, 2, hidden, 64, "gelu")
    problem = objective.problem(student, teacher)
    assert problem is not None
    assert problem.startswith(words)
    with pytest.raises(RequestError) as error:
        objective.head(student, teacher, 0)
    assert str(error.value) == problem


def test_the_spec_names_all_options() -> None:
    spec = objective_spec(
        {
            "name": "minilmv2",
            "relations": {"qk": 1.0, "vv": 2.0},
            "relation_heads": 4,
            "teacher_layer": 3,
        }
    )
    head = build_stages(spec)[0].objective.head(STUDENT, TEACHER, 0)
    assert isinstance(head, MiniLMv2Head)
    assert head.relations == {"qk": 1.0, "vv": 2.0}
    assert (head.relation_heads, head.teacher_layer) == (4, 3)
    assert objective_problem(spec, STUDENT, TEACHER) is None
    assert objective_problem(objective_spec("minilmv2"), STUDENT, TEACHER) is not None
