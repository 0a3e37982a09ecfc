from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import truncnorm
from torch import nn
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from kdnas.architecture import Architecture
from kdnas.errors import TeacherError
from kdnas.models.families import FAMILIES, Family, family_of, family_problem
from kdnas.models.student import build_student, load_weights, student_config
from kdnas.models.teacher import load_teacher_model, prepare_teacher
from kdnas.records import TeacherShape
from kdnas.testing.tiny_teacher import make_tiny_teacher
from kdnas.testing.tiny_tokenizer import make_tiny_tokenizer

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


def fresh_std(config: PretrainedConfig) -> float:
    """Deviation of fresh weights: ModernBERT draws them from a normal that is cut at 2·0.02."""
    cut = getattr(config, "initializer_cutoff_factor", None)
    return 0.02 * (1.0 if cut is None else float(truncnorm(-cut, cut).std()))


def test_the_student_is_of_the_teachers_family(teacher: Teacher) -> None:
    _, family, config = teacher
    student = build_student(config, NARROW)
    own = student.config
    assert own.model_type == family.model_type
    assert own.vocab_size == config.vocab_size
    assert own.max_position_embeddings == config.max_position_embeddings
    assert own.pad_token_id == config.pad_token_id
    for axis, key in family.config_keys.items():
        assert getattr(own, key) == getattr(NARROW, axis)
    assert len(family.transformer_layers(student)) == NARROW.layers
    assert word_table(student).shape == (config.vocab_size, NARROW.hidden)
    positions = family.position_embeddings(student)
    if positions is not None:
        assert positions.shape == (config.max_position_embeddings, NARROW.hidden)
    names = [name for name, _ in student.named_parameters()]
    assert not any("pooler" in name or "embeddings_project" in name for name in names)
    ids = torch.ones(1, config.max_position_embeddings - 2, dtype=torch.long)
    assert student(input_ids=ids).last_hidden_state.shape[-1] == NARROW.hidden


def test_the_teachers_configuration_stays_as_it_was(teacher: Teacher) -> None:
    config = teacher[2]
    before = config.to_dict()
    student_config(config, NARROW, dropout=0.3)
    assert config.to_dict() == before


def test_dropout_is_the_one_asked_for(teacher: Teacher) -> None:
    _, _, config = teacher
    for wanted in (0.0, 0.25):
        student = build_student(config, NARROW, dropout=wanted)
        assert {m.p for m in student.modules() if isinstance(m, nn.Dropout)} == {wanted}


def test_the_seed_decides_the_weights_and_nothing_else_changes(teacher: Teacher) -> None:
    config = teacher[2]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one = build_student(config, NARROW, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    same, other = (build_student(config, NARROW, seed=s) for s in (1, 2))
    pairs = zip(one.parameters(), same.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(word_table(one), word_table(other))
    wider = build_student(config, Architecture(3, 4, 28, 60, "relu"), seed=1)
    assert not torch.equal(word_table(one)[1], word_table(wider)[1, :24])


def test_fresh_weights_have_the_usual_deviation_whatever_the_teacher_had(teacher: Teacher) -> None:
    _, family, config = teacher
    student = build_student(config, WIDE)
    # ModernBERT starts what ends its residual branches smaller by √(2·L).
    smaller = (2 * WIDE.layers) ** 0.5 if family.final else 1.0
    for name, parameter in student.named_parameters():
        if parameter.ndim == 2 and parameter.numel() > 1000:
            silent = any(name.endswith(f"{path}.weight") for path in family.silent)
            expected = fresh_std(config) / (smaller if silent else 1.0)
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.1)


def test_factorised_embeddings_are_multiplied_out(tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "t", "electra")))
    model, family = load_teacher_model(handle), family_of("electra")
    words, _ = family.input_embeddings(model)
    projection = model.get_submodule("embeddings_project")
    expected = word_table(model) @ projection.get_parameter("weight").T
    assert words.shape == (handle.shape.vocab_size, 48)
    assert torch.allclose(words, expected)


def test_another_vocabulary_may_be_given(teacher: Teacher) -> None:
    assert word_table(build_student(teacher[2], NARROW, vocab_size=11)).shape == (11, 24)


FULL, LOCAL = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("teacher_layers", "every", "student_layers", "expected"),
    [
        (22, 3, 4, [FULL, LOCAL, LOCAL, FULL]),
        (6, 2, 3, [FULL, LOCAL, FULL]),
        (4, 1, 6, [FULL] * 6),
        (4, 3, 8, [FULL, LOCAL, LOCAL, FULL, LOCAL, LOCAL, FULL, LOCAL]),
        (1, 3, 2, [FULL, FULL]),
    ],
)
def test_kinds_of_layers_follow_the_teachers_pattern(
    tmp_path: Path, teacher_layers: int, every: int, student_layers: int, expected: list[str]
) -> None:
    teacher = AutoConfig.for_model(
        "modernbert",
        num_hidden_layers=teacher_layers,
        global_attn_every_n_layers=every,
        local_attention=16,
        vocab_size=50,
        pad_token_id=0,
    )
    student = build_student(teacher, Architecture(student_layers, 2, 24, 36))
    assert isinstance(student, PreTrainedModel)
    student.save_pretrained(tmp_path)
    own = AutoConfig.from_pretrained(tmp_path)
    assert own.layer_types == expected
    assert own.num_hidden_layers == student_layers
    assert own.local_attention == 16
    assert own.rope_parameters == teacher.rope_parameters


def test_a_local_layer_does_not_see_beyond_its_window() -> None:
    """The student's kinds of layers are those it runs with, not only those it is said to have."""
    teacher = AutoConfig.for_model(
        "modernbert",
        num_hidden_layers=4,
        local_attention=8,
        layer_types=[LOCAL] * 4,
        vocab_size=50,
        pad_token_id=0,
    )
    one = torch.randint(5, 40, (1, 20), generator=torch.Generator().manual_seed(0))
    other = one.clone()
    other[0, -1] = 41
    for kinds, reaches in (([LOCAL] * 4, False), ([FULL] * 4, True)):
        teacher.layer_types = kinds
        student = build_student(teacher, Architecture(2, 2, 24, 36)).eval()
        with torch.no_grad():
            first, second = (student(input_ids=ids).last_hidden_state[0, 0] for ids in (one, other))
        assert torch.equal(first, second) is not reaches


def test_rotary_positions_need_heads_of_an_even_width() -> None:
    shape = TeacherShape("modernbert", 6, 4, 48, 96, "gelu", 99, 64, 0, "f")
    odd = Architecture(2, 12, 36, 96)
    problem = family_problem(odd, shape)
    assert problem == (
        "12 heads of 36 are 3 wide, and ModernBERT needs heads of an even width; choose one of "
        "1, 2, 3, 6, 9, 18 heads"
    )
    for heads in (1, 2, 3, 6, 9, 18):
        assert family_problem(Architecture(2, heads, 36, 96), shape) is None
    assert family_problem(odd, replace(shape, model_type="bert")) is None
    hopeless = family_problem(Architecture(2, 3, 33, 96), shape)
    assert hopeless
    assert hopeless.endswith("choose another hidden size")


def test_students_with_even_heads_run_and_others_do_not() -> None:
    """The refusal is not stricter than the model."""
    teacher = AutoConfig.for_model("modernbert", vocab_size=50, pad_token_id=0)
    shape = TeacherShape("modernbert", 22, 12, 768, 1152, "gelu", 50, 8192, 0, "f")
    ids = torch.ones(1, 4, dtype=torch.long)
    for heads in (1, 2, 3, 4, 6, 12):
        architecture = Architecture(1, heads, 36, 48)
        student = build_student(teacher, architecture)
        if family_problem(architecture, shape) is None:
            assert student(input_ids=ids).last_hidden_state.shape == (1, 4, 36)
        else:
            with pytest.raises(RuntimeError, match="must match"):
                student(input_ids=ids)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_weights_of_an_earlier_student_are_taken_whole(model_type: str, tmp_path: Path) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "teacher", model_type)))
    earlier = build_student(handle.config, NARROW, seed=1)
    assert isinstance(earlier, PreTrainedModel)
    earlier.save_pretrained(tmp_path / "earlier")
    make_tiny_tokenizer(tmp_path / "earlier")
    student = build_student(handle.config, NARROW, seed=2)
    load_weights(student, prepare_teacher(str(tmp_path / "earlier")))
    pairs = zip(student.parameters(), earlier.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert all(p.requires_grad for p in student.parameters())


def test_layers_of_other_kinds_are_refused_though_their_weights_fit(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention"]
    teacher, other = (
        prepare_teacher(str(make_tiny_teacher(tmp_path / str(i), "modernbert", layer_types=order)))
        for i, order in enumerate((kinds, kinds[::-1]))
    )
    student = build_student(teacher.config, Architecture(2, 4, 48, 96))
    with pytest.raises(TeacherError, match=r"has layer_types .*, and the student has layer_types"):
        load_weights(student, other)


@pytest.mark.parametrize(
    ("model_type", "values", "message"),
    [
        ("bert", {"layers": 3}, "has layers 3, and the student has layers 2; .*2,4,48,96,gelu"),
        ("bert", {"hidden": 24}, "has hidden 24, and the student has hidden 48"),
        ("roberta", {}, "model type roberta, and the student has model type bert"),
        ("bert", {"words": ["more"]}, r"has vocabulary (\d+), and the student has vocabulary"),
        ("bert", {"type_vocab_size": 3}, r"do not fit the student .*token_type"),
        ("bert", {"layer_norm_eps": 1e-5}, r"layer_norm_eps 1e-05, and the student has .* 1e-12"),
    ],
)
def test_weights_of_another_model_are_refused(
    model_type: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    handle = prepare_teacher(str(make_tiny_teacher(tmp_path / "teacher")))
    other = prepare_teacher(str(make_tiny_teacher(tmp_path / "other", model_type, **values)))
    student = build_student(handle.config, Architecture(2, 4, 48, 96))
    with pytest.raises(TeacherError, match=message):
        load_weights(student, other)
