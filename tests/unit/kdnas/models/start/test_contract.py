"""What a start from the teacher promises, in every family alike."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from kdnas.architecture import Architecture
from kdnas.models.families import FAMILIES
from kdnas.models.start.heads import Heads
from kdnas.models.start.linear import InputMap
from kdnas.models.start.relations import Compared
from kdnas.models.start.teacher_start import start_from_teacher
from kdnas.models.start.weights import read_layer
from kdnas.search_space import SearchSpace
from kdnas.specs.parts import Start
from kdnas.testing.start_lab import (
    StartLab,
    assert_finite,
    make_start_lab,
    watch_teacher,
)
from kdnas.testing.tiny_teacher import make_tiny_teacher

STUDENTS = (
    "1,2,24,48,relu",
    "2,6,24,200,gelu",
    "2,3,48,40,silu",
    "5,4,48,96,gelu",  # deeper than the tiny teachers, and otherwise like them
    "3,12,96,256,relu",
    "4,8,48,64,gelu",
)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return make_start_lab(tmp_path_factory.mktemp(request.param), request.param)


def weights(student: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in student.state_dict().items()}


def test_a_student_of_the_teachers_architecture_is_the_teacher(lab: StartLab) -> None:
    student = lab.student(lab.own)
    torch.testing.assert_close(lab.outputs(student), lab.outputs(lab.model), rtol=0, atol=1e-5)


@pytest.mark.parametrize("architecture", ["own", *STUDENTS])
def test_what_it_says_a_student_makes_of_the_text_is_what_it_makes(
    lab: StartLab, architecture: str, tmp_path: Path
) -> None:
    chosen = lab.own if architecture == "own" else Architecture.parse(architecture)
    assert_makes_what_is_said(lab, chosen, tmp_path / "states")


def assert_makes_what_is_said(
    lab: StartLab, architecture: Architecture, folder: Path, compared: Compared | None = None
) -> None:
    student = lab.built(architecture)
    seen = start_from_teacher(student, lab.model, lab.family, architecture, lab.states, 0, compared)
    real = lab.states_of(student, folder)
    assert len(seen) == real.num_layers + 1
    for layer, states in enumerate(seen):
        torch.testing.assert_close(real.output(layer), states, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("architecture", ["1,2,24,48,relu", "2,4,48,96,silu", "5,4,48,96,gelu"])
def test_so_it_is_where_its_last_layer_is_compared(
    lab: StartLab, architecture: str, layer: int, tmp_path: Path
) -> None:
    compared = Compared(layer, 4)
    assert_makes_what_is_said(lab, Architecture.parse(architecture), tmp_path / "states", compared)


@pytest.mark.parametrize("biased", list(product((False, True), repeat=3)))
def test_so_it_is_wherever_a_teacher_has_biases(
    biased: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    """ModernBERT may have them in attention, feed-forward and norms, each by itself."""
    flags = dict(zip(("attention_bias", "mlp_bias", "norm_bias"), biased, strict=True))
    lab = make_start_lab(tmp_path, "modernbert", **flags)
    for number, architecture in enumerate(STUDENTS):
        assert_makes_what_is_said(lab, Architecture.parse(architecture), tmp_path / str(number))


def test_so_it_is_where_scores_are_scaled(tmp_path: Path) -> None:
    """As by YaRN, with which a teacher reads longer texts than it was made for."""
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    longer = {**plain, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    kinds = {"full_attention": longer, "sliding_attention": plain}
    lab = make_start_lab(tmp_path, "modernbert", rope_parameters=kinds)
    rotary = lab.family.rotary(lab.model, 1)
    assert rotary is not None
    assert rotary.scaling > 1.1
    for number, architecture in enumerate(STUDENTS):
        assert_makes_what_is_said(lab, Architecture.parse(architecture), tmp_path / str(number))


@pytest.mark.parametrize("compared", [None, Compared(1, 4), Compared(2, 4)])
def test_the_last_layer_of_a_deeper_student_is_not_silent(
    lab: StartLab, compared: Compared | None
) -> None:
    """What some objectives never train must not be left at zero."""
    student, architecture = lab.built("5,4,48,96,gelu"), Architecture.parse("5,4,48,96,gelu")
    start_from_teacher(student, lab.model, lab.family, architecture, lab.states, 0, compared)
    last = read_layer(lab.family, lab.family.transformer_layers(student)[-1])
    assert last.attention.output.weight.any()
    assert last.feed_forward.outer.weight.any()


def test_norms_begin_as_large_as_fresh_ones(lab: StartLab, tmp_path: Path) -> None:
    """However small the teacher's are: of small states a student learns slowly."""
    model = deepcopy(lab.model)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data.mul_(0.2)
    folder = make_tiny_teacher(tmp_path / "teacher", lab.family.model_type)
    model.save_pretrained(folder)
    small = watch_teacher(str(folder), tmp_path, 200)
    assert_makes_what_is_said(small, Architecture.parse(STUDENTS[0]), tmp_path / "student")
    for architecture in STUDENTS:
        student = small.student(architecture)
        for name, module in student.named_modules():
            # One narrower than the stream stands before a factorised embedding, which is as it was.
            if (
                isinstance(module, nn.LayerNorm)
                and len(module.weight) == student.config.hidden_size
            ):
                assert module.weight.abs().mean().item() == pytest.approx(1, rel=1e-4), name


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


class Elsewhere(Tensor):
    """Stands for a tensor of another device: no operation takes it together with one of the CPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.cpu, Tensor.copy_):
            with torch._C.DisableTorchFunctionSubclass():
                result: Tensor = func(*args, **(kwargs or {}))
                return result.as_subclass(Tensor)
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        assert all(isinstance(value, cls) for value in tensors), f"{func} of two devices"
        return super().__torch_function__(func, types, args, kwargs)


def elsewhere(model: nn.Module) -> nn.Module:
    """The same model on another device."""
    moved = deepcopy(model)
    for module in moved.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            module._parameters[name] = nn.Parameter(value.data.as_subclass(Elsewhere), False)
        for name, value in list(module.named_buffers(recurse=False)):
            module._buffers[name] = value.as_subclass(Elsewhere)
    return moved


@pytest.mark.parametrize("architecture", ["own", *STUDENTS])
def test_it_is_the_same_wherever_the_teacher_is(lab: StartLab, architecture: str) -> None:
    chosen = lab.own if architecture == "own" else Architecture.parse(architecture)
    here, there = lab.built(chosen), lab.built(chosen)
    start_from_teacher(here, lab.model, lab.family, chosen, lab.states, 0)
    start_from_teacher(there, elsewhere(lab.model), lab.family, chosen, lab.states, 0)
    for name, value in there.state_dict().items():
        assert type(value) is Tensor
        assert torch.equal(value, here.state_dict()[name]), name


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


@pytest.mark.parametrize("layers", [1, 2])
def test_a_factorised_embedding_starts_as_it_is_where_students_differ_in_depth_alone(
    layers: int, tmp_path: Path
) -> None:
    lab = make_start_lab(tmp_path, "electra")
    assert lab.family.word_embeddings(lab.model).shape[1] < lab.own.hidden
    starts: tuple[Start, ...] = ("teacher", "warm", "copy")
    for init in starts:
        student = lab.student(replace(lab.own, layers=layers), init=init)
        for part in ("embeddings", "embeddings_project"):
            own, wanted = (m.get_submodule(part).state_dict() for m in (student, lab.model))
            assert own.keys() == wanted.keys()
            assert all(torch.equal(value, wanted[name]) for name, value in own.items())
        assert lab.outputs(student).isfinite().all()


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if not f.padded_positions])
def test_a_teacher_without_a_padding_token(family: str, tmp_path: Path) -> None:
    lab = make_start_lab(tmp_path, family, tokens=200, pad_token_id=None)
    assert lab.handle.config.pad_token_id is None
    for architecture in STUDENTS:
        assert_finite(lab, architecture)


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if f.padded_positions])
def test_positions_count_from_whatever_token_pads(family: str, tmp_path: Path) -> None:
    lab = make_start_lab(tmp_path, family, pad_token_id=4)  # no token of the text
    for number, architecture in enumerate(STUDENTS):
        assert_makes_what_is_said(lab, Architecture.parse(architecture), tmp_path / str(number))


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> StartLab:
    return watch_teacher("minilm", tmp_path_factory.mktemp("minilm"), 800)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_drawn_students_of_a_real_teacher_are_finite(minilm: StartLab, part: int) -> None:
    states = SearchSpace.scaled_to(minilm.handle.shape).states
    for architecture in Random(0).sample(states, 100)[part::5]:
        assert_finite(minilm, architecture)


@pytest.mark.parametrize(("number", "head"), [(2, 1), (3, 9)])
def test_heads_that_look_for_the_same_word_count(minilm: StartLab, number: int, head: int) -> None:
    """Of pairs of sentences these two give .29 and .45 of their attention to the same word."""
    width = minilm.own.hidden
    layer = minilm.family.transformer_layers(minilm.model)[number - 1]
    heads = Heads(
        read_layer(minilm.family, layer).attention,
        InputMap(torch.eye(width), torch.zeros(width)),
        minilm.states.read(number),
        minilm.states.variance(number - 1),
    )
    strongest = heads.effects(torch.eye(width)).argsort(descending=True).tolist()
    assert strongest.index(head) < minilm.own.heads // 2
