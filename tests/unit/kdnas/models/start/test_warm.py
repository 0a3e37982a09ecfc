from __future__ import annotations

from pathlib import Path

import pytest
import torch
from scipy.stats import truncnorm
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from kdnas.architecture import Architecture
from kdnas.models.families import FAMILIES, Family
from kdnas.models.start.warm import EmbeddingBasis, start_warm
from kdnas.models.student import build_student
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.testing.tiny_teacher import make_tiny_teacher

Teacher = tuple[nn.Module, Family, PretrainedConfig]
NARROW = Architecture(3, 4, 24, 60, "relu")
WIDE = Architecture(2, 6, 72, 100)


@pytest.fixture(scope="module", params=FAMILIES)
def teacher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Teacher:
    folder = make_tiny_teacher(
        tmp_path_factory.mktemp("t") / "t", request.param, initializer_range=0.5
    )
    handle = prepare_teacher(str(folder))
    return load_teacher_model(handle), FAMILIES[request.param], handle.config


def word_table(model: nn.Module) -> torch.Tensor:
    assert isinstance(model, PreTrainedModel)
    table = model.get_input_embeddings().weight
    assert isinstance(table, nn.Parameter)
    return table.detach()


def position_table(model: nn.Module) -> torch.Tensor:
    return model.get_submodule("embeddings").get_parameter("position_embeddings.weight").detach()


def fresh_std(config: PretrainedConfig) -> float:
    """Deviation of fresh weights: ModernBERT draws them from a normal that is cut at 2·0.02."""
    cut = getattr(config, "initializer_cutoff_factor", None)
    return 0.02 * (1.0 if cut is None else float(truncnorm(-cut, cut).std()))


def warm(teacher: Teacher, architecture: Architecture) -> nn.Module:
    model, family, config = teacher
    student = build_student(config, architecture)
    start_warm(student, model, family, EmbeddingBasis.of(model, family))
    return student.eval()


def test_warm_embeddings_have_a_deviation_of_002(teacher: Teacher) -> None:
    assert float(word_table(warm(teacher, NARROW)).std()) == pytest.approx(0.02, rel=0.01)
    table = word_table(warm(teacher, WIDE))
    assert float(table[:, :48].std()) == pytest.approx(0.02, rel=0.01)


def test_warm_embeddings_keep_inner_products_as_well_as_their_width_can(teacher: Teacher) -> None:
    """The best approximation of rank d_S is that of the strongest components (Eckart–Young)."""
    model, family, _ = teacher
    words = family.input_embeddings(model)[0].double()
    gram = (words - words.mean(0)) @ (words - words.mean(0)).T
    values = torch.linalg.eigvalsh(gram).flip(0)
    table = word_table(warm(teacher, NARROW)).double()
    products = table @ table.T
    scale = float((products * gram).sum() / products.square().sum())
    error = float((scale * products - gram).square().sum())
    assert error == pytest.approx(
        float(values[NARROW.hidden :].square().sum()),
        rel=1e-3,
        abs=1e-6 * float(gram.square().sum()),
    )


def test_positions_share_the_words_components_and_scale(teacher: Teacher) -> None:
    model, family, _ = teacher
    words, positions = (e.double() for e in family.input_embeddings(model))
    if family.positions is None:
        assert positions.shape == (0, 48)
        return
    products = (words - words.mean(0)) @ (positions - positions.mean(0)).T
    student = warm(teacher, WIDE)  # wide enough for all components
    kept = word_table(student)[:, :48].double() @ position_table(student)[:, :48].double().T
    scale = 0.02 / float(EmbeddingBasis.of(model, family).words.std())
    assert torch.allclose(kept, products * scale**2, atol=1e-6)


def test_a_wider_student_has_random_values_in_the_rest(teacher: Teacher) -> None:
    rest = word_table(warm(teacher, WIDE))[1:, 48:]
    assert torch.equal(rest, word_table(build_student(teacher[2], WIDE))[1:, 48:])
    assert float(rest.std()) == pytest.approx(fresh_std(teacher[2]), rel=0.1)


def test_a_warm_deep_student_begins_as_its_embeddings(teacher: Teacher) -> None:
    """Both residual branches are silent, so a layer only normalises what it is given.

    ModernBERT's layers do not even do that; its output is normalised once, after the last one.
    """
    student, family = warm(teacher, NARROW), teacher[1]
    ids = torch.randint(5, 80, (2, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = student(input_ids=ids, output_hidden_states=True).hidden_states
    if family.final:
        normalised = nn.functional.layer_norm(states[0], (NARROW.hidden,), eps=1e-5)
        expected = [states[0]] * (NARROW.layers - 1) + [normalised]
    else:
        expected = [nn.functional.layer_norm(states[0], (NARROW.hidden,))] * NARROW.layers
    for state, wanted in zip(states[1:], expected, strict=True):
        assert torch.allclose(state, wanted, atol=1e-4)


def test_embeddings_as_factorised_as_the_teachers_are_the_teachers_own(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path, "electra")))
    model, family = load_teacher_model(handle), FAMILIES["electra"]
    student = build_student(handle.config, Architecture(2, 4, 48, 96))
    start_warm(student, model, family, EmbeddingBasis.of(model, family))
    for part in ("embeddings", "embeddings_project"):
        own, wanted = (m.get_submodule(part).state_dict() for m in (student, model))
        assert own.keys() == wanted.keys()
        assert all(torch.equal(value, wanted[name]) for name, value in own.items())
