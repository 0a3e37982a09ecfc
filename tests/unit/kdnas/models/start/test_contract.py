"""What a start from the teacher promises, in every family alike."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

from kdnas.architecture import Architecture
from kdnas.models.families import FAMILIES
from kdnas.models.start.teacher_start import start_from_teacher
from kdnas.search_space import PAPER_HEADS, PAPER_INTERMEDIATE, PAPER_LAYERS, SearchSpace
from kdnas.testing.start_lab import StartLab, make_start_lab, watch_teacher

SPACE = SearchSpace(
    PAPER_LAYERS, PAPER_HEADS, (24, 48, 72, 96), tuple(f // 24 for f in PAPER_INTERMEDIATE)
)
"""As many states as the paper's, deeper, shallower, wider and narrower than the tiny teachers; all
heads have an even width, as ModernBERT wants."""

STUDENTS = (
    "1,2,24,48,relu",
    "2,6,24,200,gelu",
    "2,3,48,40,silu",
    "5,4,48,96,gelu",
    "3,12,96,256,relu",
    "4,8,48,64,gelu",
)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return make_start_lab(tmp_path_factory.mktemp(request.param), request.param)


def weights(student: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in student.state_dict().items()}


def assert_finite(lab: StartLab, architecture: Architecture | str) -> None:
    student = lab.student(architecture)
    broken = [name for name, value in student.state_dict().items() if not value.isfinite().all()]
    assert not broken, f"{architecture}: {broken}"
    output = lab.outputs(student)
    assert output.isfinite().all(), f"{architecture}"
    assert output.std(0).min() > 0, f"{architecture} says the same of all tokens"


def test_a_student_of_the_teachers_architecture_is_the_teacher(lab: StartLab) -> None:
    student = lab.student(lab.own)
    torch.testing.assert_close(lab.outputs(student), lab.outputs(lab.model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["own", *STUDENTS])
def test_what_it_says_a_student_makes_of_the_text_is_what_it_makes(
    lab: StartLab, architecture: str, tmp_path: Path
) -> None:
    chosen = lab.own if architecture == "own" else Architecture.parse(architecture)
    student = lab.built(chosen)
    seen = start_from_teacher(student, lab.model, lab.family, chosen, lab.states, 0)
    real = lab.states_of(student, tmp_path / "states")
    assert len(seen) == real.num_layers + 1
    for layer, states in enumerate(seen):
        torch.testing.assert_close(real.output(layer), states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", STUDENTS)
def test_a_seed_decides_a_start_to_the_bit(lab: StartLab, architecture: str) -> None:
    first = weights(lab.student(architecture, seed=1))
    torch.manual_seed(99)  # nor does anybody's random state matter
    again = weights(lab.student(architecture, seed=1))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    other = weights(lab.student(architecture, seed=2))
    same = all(torch.equal(value, other[name]) for name, value in first.items())
    # A student of the teacher's width keeps its channels, and may have nothing left to chance.
    assert not same or Architecture.parse(architecture).hidden == lab.own.hidden


def test_the_teacher_stays_as_it_is(lab: StartLab) -> None:
    before = weights(lab.model)
    for architecture in (lab.own, *STUDENTS):
        student = lab.student(architecture)
        with torch.no_grad():
            for value in student.parameters():
                value.add_(1.0)  # nor do the two share memory
    assert all(torch.equal(value, before[name]) for name, value in lab.model.state_dict().items())


def test_drawn_students_are_finite(lab: StartLab) -> None:
    shallow = [state for state in SPACE.states if state.layers <= 4]
    for architecture in Random(lab.family.model_type).sample(shallow, 40):
        assert_finite(lab, architecture)


@pytest.mark.slow
def test_a_sixth_of_all_states_in_each_family_is_finite(lab: StartLab) -> None:
    """All 2400 in each would take six times as long; here each state is tried in one family."""
    assert len(SPACE) == 2400
    order = Random(0).sample(SPACE.states, len(SPACE))
    share = order[sorted(FAMILIES).index(lab.family.model_type) :: len(FAMILIES)]
    assert len(share) == 400
    for architecture in share:
        assert_finite(lab, architecture)


@pytest.mark.parametrize("architecture", ["1,1,2,1,gelu", "1,24,48,1,relu", "9,2,4,3,silu"])
def test_very_small_students_are_finite(lab: StartLab, architecture: str) -> None:
    student = lab.student(architecture)
    assert lab.outputs(student).isfinite().all()


@pytest.mark.parametrize("activation", ["relu", "silu", "gelu_new"])
def test_teachers_of_every_activation(lab: StartLab, activation: str, tmp_path: Path) -> None:
    family = lab.family.model_type
    other = make_start_lab(tmp_path, family, tokens=200, activation=activation)
    if activation != "gelu_new":
        student = other.student(other.own)
        assert torch.equal(other.outputs(student), other.outputs(other.model))
    for architecture in STUDENTS:
        assert_finite(other, architecture)


def test_fewer_tokens_than_the_teacher_is_wide_are_enough_to_stay_finite(
    lab: StartLab, tmp_path: Path
) -> None:
    few = make_start_lab(tmp_path, lab.family.model_type, tokens=24)
    assert few.states.num_tokens < few.handle.shape.hidden
    for architecture in STUDENTS:
        assert_finite(few, architecture)


def test_a_factorised_embedding_also_starts_warm_and_copied(tmp_path: Path) -> None:
    lab = make_start_lab(tmp_path, "electra")
    assert lab.family.word_embeddings(lab.model).shape[1] < lab.own.hidden
    copied = lab.student(lab.own, init="copy")
    torch.testing.assert_close(lab.outputs(copied), lab.outputs(lab.model), rtol=0, atol=1e-5)
    warm = lab.student(lab.own, init="warm")
    assert torch.equal(lab.family.word_embeddings(warm), lab.family.word_embeddings(lab.model))
    assert lab.outputs(warm).isfinite().all()


@pytest.mark.parametrize("family", ["bert", "electra", "distilbert"])
def test_a_teacher_without_a_padding_token(family: str, tmp_path: Path) -> None:
    lab = make_start_lab(tmp_path, family, tokens=200, pad_token_id=None)
    assert lab.handle.config.pad_token_id is None
    for architecture in STUDENTS:
        assert_finite(lab, architecture)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return watch_teacher("minilm", tmp_path_factory.mktemp("minilm"), 800)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_drawn_students_of_a_real_teacher_are_finite(minilm: StartLab, part: int) -> None:
    states = SearchSpace.scaled_to(minilm.handle.shape).states
    for architecture in Random(0).sample(states, 100)[part::5]:
        assert_finite(minilm, architecture)
