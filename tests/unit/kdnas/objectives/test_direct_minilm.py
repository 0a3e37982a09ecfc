from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kdnas.architecture import Architecture
from kdnas.errors import RequestError
from kdnas.models.taps import PROJECTIONS, Activations, Projection
from kdnas.objectives.direct_minilm import DirectMiniLM, DirectMiniLMHead
from kdnas.objectives.registry import build_stages
from kdnas.records import Losses
from kdnas.specs.objective_registry import objective_spec
from kdnas.testing.objective_contract import LENGTHS, STUDENT, TEACHER, ObjectiveContract


def real_heads(
    activations: Activations, layer: int, name: Projection, heads: int
) -> NDArray[np.float64]:
    """(A_r, N, d_r) of all sequences, one after the other."""
    values = activations.projections[layer][name].detach().double().numpy()
    rows = np.concatenate([values[b, :n] for b, n in enumerate(LENGTHS)])
    return rows.reshape(len(rows), heads, -1).transpose(1, 0, 2)


def orthonormal(weight: torch.Tensor) -> bool:
    """Rows, or columns where these are longer."""
    tall = weight if weight.shape[-2] >= weight.shape[-1] else weight.mT
    return torch.allclose(tall.mT @ tall, torch.eye(tall.shape[-1]), atol=1e-5)


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize(("heads", "layer"), [(None, None), (2, 2), (1, 5)])
class TestDirectMiniLM(ObjectiveContract):
    heads: int | None = None
    layer: int | None = None
    orthogonal: bool = False

    @pytest.fixture(autouse=True)
    def _take_options(self, heads: int | None, layer: int | None, orthogonal: bool) -> None:
        self.heads, self.layer, self.orthogonal = heads, layer, orthogonal

    def make(self) -> DirectMiniLM:
        return DirectMiniLM(self.heads, self.layer, self.orthogonal)

    def trained_head(self) -> DirectMiniLMHead:
        """Projections far from their start, so that every term counts."""
        head = self.head()
        assert isinstance(head, DirectMiniLMHead)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator))
        return head

    def test_all_losses_equal_a_float64_reference(self) -> None:
        head, student, teacher = self.trained_head(), self.student(), self.teacher()
        losses, ratios = [], []
        for name, weight in zip(PROJECTIONS, head.weight.detach().double().numpy(), strict=True):
            source = real_heads(student, STUDENT.layers, name, head.relation_heads)
            target = real_heads(teacher, self.layer or 4, name, head.relation_heads)
            for a, matrix in enumerate(weight):
                losses.append(np.mean((source[a] @ matrix - target[a]) ** 2))
                ratios.append(losses[-1] / np.mean(np.var(target[a], axis=0)))
        assert len(losses) == 3 * (self.heads or TEACHER.heads)
        assert float(head(student, teacher).detach()) == pytest.approx(sum(losses), rel=1e-5)
        found = self.read(head, (student, teacher))
        assert found.mean == pytest.approx(np.mean(losses), rel=1e-5)
        assert found.relative == pytest.approx(np.mean(ratios), rel=1e-5)
        assert found.output == found.relative

    def test_the_seed_decides_the_head(self) -> None:
        """An orthogonal weight starts in a buffer of torch's, beside an equal parameter."""
        state = torch.get_rng_state()
        one, same, other = (self.make().head(STUDENT, TEACHER, seed) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), state)
        assert all(
            torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items()
        )
        assert not torch.isclose(one.weight, other.weight).any()

    def test_the_state_survives_a_round_trip(self, tmp_path: Path) -> None:
        head = self.trained_head()
        torch.save(head.state_dict(), tmp_path / "head.pt")
        again = self.make().head(STUDENT, TEACHER, 99)
        again.load_state_dict(torch.load(tmp_path / "head.pt", weights_only=True))
        assert torch.equal(head.weight, again.weight)
        student, teacher = self.student(), self.teacher()
        assert torch.equal(head(student, teacher), again(student, teacher))

    def test_orthogonal_weights_stay_orthogonal(self) -> None:
        """Through steps with weight decay; other weights start near zero and go where they like."""
        head, student, teacher = self.head(), self.student(), self.teacher()
        assert isinstance(head, DirectMiniLMHead)
        before = head.weight.detach().clone()
        optimizer = torch.optim.AdamW(head.parameters(), lr=0.1, weight_decay=0.1)
        first = float(head(student, teacher).detach())
        for _ in range(10):
            optimizer.zero_grad()
            head(student, teacher).backward()
            optimizer.step()
        assert float(head(student, teacher).detach()) < first
        after = head.weight.detach()
        assert float((after - before).abs().max()) > 0.1
        assert orthonormal(before) == orthonormal(after) == self.orthogonal
        if not self.orthogonal:
            assert float(before.abs().max()) < 0.1


def test_projections_start_at_a_deviation_of_002_without_bias() -> None:
    teacher = replace(TEACHER, layers=12, hidden=768, heads=12)
    head = DirectMiniLM().head(Architecture(3, 2, 288, 64, "gelu"), teacher, 0)
    (weight,) = head.parameters()
    assert weight.shape == (3, 12, 24, 64)
    assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_perfect_student_scores_zero(orthogonal: bool) -> None:
    contract = TestDirectMiniLM()
    teacher = contract.teacher()
    same = Architecture(1, 3, TEACHER.hidden, 16, "gelu")
    head = DirectMiniLM(3, 4, orthogonal).head(same, TEACHER, 0)
    with torch.no_grad():
        turned = {
            name: torch.einsum(
                "btad,aed->btae", torch.unflatten(teacher.projections[4][name], -1, (3, -1)), matrix
            ).flatten(2)
            for name, matrix in zip(PROJECTIONS, head.weight, strict=True)
        }
        if not orthogonal:
            head.weight.copy_(torch.eye(4))
            turned = teacher.projections[4]
    student = Activations(teacher.batch, {}, {1: turned}, teacher.word_embeddings)
    losses = contract.read(head, (student, teacher))
    assert losses == Losses(0.5, *[pytest.approx(0, abs=1e-11)] * 3)


def test_the_best_student_that_ignores_its_input_scores_one() -> None:
    """It says the teacher's mean over the real tokens, whatever it is asked."""
    contract = TestDirectMiniLM()
    student, teacher = contract.student(), contract.teacher()
    head = DirectMiniLM().head(STUDENT, TEACHER, 0)
    with torch.no_grad():
        for name, matrices in zip(PROJECTIONS, head.weight, strict=True):
            student.projections[STUDENT.layers][name].fill_(1.0)
            means = real_heads(teacher, 4, name, 4).mean(1)  # (A_r, d_r^T)
            matrices.copy_(torch.from_numpy(means)[:, None] / 2)
    losses = contract.read(head, (student, teacher))
    assert losses.relative == losses.output == pytest.approx(1, rel=1e-5)


def test_widths_that_heads_do_not_divide_are_refused() -> None:
    teacher = replace(TEACHER, layers=12, hidden=768, heads=12)
    student = Architecture(3, 2, 100, 64, "gelu")
    problem = DirectMiniLM().problem(student, teacher)
    assert problem == (
        "12 relation heads do not divide the student's hidden size 100; choose a hidden size that "
        "is a multiple of 12, or --relation-heads 1, 2 or 4"
    )
    with pytest.raises(RequestError, match="12 relation heads"):
        DirectMiniLM().head(student, teacher, 0)
    problem = DirectMiniLM(teacher_layer=0).problem(student, teacher)
    assert problem is not None
    assert problem.startswith("teacher layer 0 is outside 1 … 12")


def test_a_student_may_be_deeper_than_its_teacher() -> None:
    assert DirectMiniLM().problem(Architecture(9, 2, 8, 16, "gelu"), TEACHER) is None


def test_the_spec_names_all_options() -> None:
    spec = objective_spec(
        {"name": "direct-minilm", "relation_heads": 2, "teacher_layer": 3, "orthogonal": True}
    )
    head = build_stages(spec)[0].objective.head(STUDENT, TEACHER, 0)
    assert isinstance(head, DirectMiniLMHead)
    assert (head.relation_heads, head.teacher_layer) == (2, 3)
    assert orthonormal(head.weight.detach())
